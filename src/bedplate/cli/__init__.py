"""The command `bedplate`: its commands in a row, and what belongs to none of them."""
