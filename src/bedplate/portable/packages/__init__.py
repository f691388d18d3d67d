"""Package managers: their state, their transactions, and the repositories that they trust."""
