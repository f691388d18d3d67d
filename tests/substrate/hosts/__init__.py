"""Bare hosts for the demo and the tests: systemd containers with simulated GPUs, reached by SSH."""
