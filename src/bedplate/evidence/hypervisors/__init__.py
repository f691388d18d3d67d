"""What hypervisors of other kinds are told of a guest, and pools from guests that are there."""
