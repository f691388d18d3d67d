"""`bedplate init`: the folder that a user starts with."""
