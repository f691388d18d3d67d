"""What runs in pods, with `portable.quantities` of the package alone; `kubeaccess` no pod has."""
