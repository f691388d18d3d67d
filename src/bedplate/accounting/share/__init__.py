"""`bedplate share`: shares of GPUs on request, from a shell."""
