"""What runs inside the hub: mounted there from a ConfigMap, with nothing else of this package."""
