"""The GPU driver on a host: what is there, how it changes, and the way back."""
