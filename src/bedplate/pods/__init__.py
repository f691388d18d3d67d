"""What runs in pods; it imports nothing of the package but `portable.quantities`."""
