"""What users run: jobs in every form, and the hub, on real schedulers and queues."""
