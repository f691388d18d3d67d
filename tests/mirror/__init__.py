"""Whole sites from a mirror, most by `make prove AREA=mirror`; and servers of a site's own."""
