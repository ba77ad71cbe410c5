"""`python -m cluster_exp VERB ...` is `cluster-exp VERB ...`."""

import sys

from cluster_exp.cli import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
