"""Containerfiles of frameworks: goldens of the four frameworks, and what the command says."""
