"""`bedplate doctor`: what this machine lacks for a site, or for any."""
