"""How much of a production trace's GPUs get allocated: policies simulated, schedulers run."""
