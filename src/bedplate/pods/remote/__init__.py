"""A GPU that is on another node: claims, the engine's Job, and the front before each engine."""
