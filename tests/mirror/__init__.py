"""A whole site from a mirror that was carried to it; run it with `make prove AREA=mirror`."""
