"""`bedplate kubeconfig`: a member of a team gets a kubeconfig for some hours."""
