"""Published tables beside our own: what is simulated for each, and how the two compare."""
