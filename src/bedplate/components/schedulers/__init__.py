"""Pulumi components of the schedulers stack."""
