"""Small sites of unusual mixes, each on hosts of its own: one machine; control planes with GPUs."""
