"""The simulator: the core under a virtual clock and a performance model."""
