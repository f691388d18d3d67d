"""Containerfiles of the frameworks that a lock chose, with sources as the site has them."""
