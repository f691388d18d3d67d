"""The Pulumi provider for hosts and nodes: `pulumi-resource-bedplate`."""
