"""Packages in the mirror: what a lock's hosts install, with all it depends on, signed again."""
