"""Container runtimes: their configuration, images, and what containers see."""
