"""A stand-in for the internet: the vendors' hosts, names and layouts, on this machine alone."""
