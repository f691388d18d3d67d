"""A host of Slurm: configuration, GPUs, munge's key, and a node's service."""
