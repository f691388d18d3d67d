"""`bedplate measure`: what a program takes of a GPU, and the share that a course needs for it."""
