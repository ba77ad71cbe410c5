"""Pieces of `benchmarks/control_plane.py`: the processes that it starts and the clock that it reads."""
