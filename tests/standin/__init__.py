"""Real package managers on stand-in packages."""
