"""A kernel and PCI bus that behave as if NVIDIA's cards were there. Runs on the simulated host."""
