"""`bedplate preflight SITE`: what a new cluster measures of itself, as evidence."""
