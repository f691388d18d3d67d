"""What the three stacks would apply to Kubernetes, as YAML: without a cluster, and without Pulumi's
engine."""
