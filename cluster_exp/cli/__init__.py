"""The command line: one parser for run.py, calc.py and cluster-exp."""

from cluster_exp.cli.parser import main

__all__ = ["main"]
