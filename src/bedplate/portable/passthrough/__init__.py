"""Hypervisors: what their kernel is told, and the guests that get PCI devices."""
