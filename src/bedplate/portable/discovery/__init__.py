"""What a host is and what already runs on it."""
