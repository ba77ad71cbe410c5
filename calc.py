"""`python calc.py DIR...` is `cluster-exp calc DIR...`."""

import sys

from cluster_exp.cli import main

if __name__ == "__main__":
    sys.exit(main(["calc", *sys.argv[1:]]))
