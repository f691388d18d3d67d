"""Evidence of a host and of the cluster, area by area."""
