"""Discovery: what is read of machines that are only folders, and what is made of it."""
