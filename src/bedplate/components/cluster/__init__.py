"""Pulumi components of the cluster stack."""
