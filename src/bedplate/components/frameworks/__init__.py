"""Pulumi components of the frameworks stack."""
