"""A grid of simulations: its file, its runs, its directory, its table."""
