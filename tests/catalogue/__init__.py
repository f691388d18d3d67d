"""The catalogue compared with sources that nobody here wrote."""
