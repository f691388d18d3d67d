"""What users run: jobs in every form on real schedulers and queues."""
