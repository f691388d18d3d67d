"""What stands in for bare metal: hosts, GPUs, the mirror, and the tools built for them."""
