"""The command line: one parser for run.py, calc.py and cluster-exp."""
