"""Multi-resource interleaving for deep-learning clusters: scheduler, runtime and simulator."""

__version__ = "0.1.0"
