"""Trains BERT to fill in masked words of a text."""

import sys

from workloads.command import main
from workloads.language.program import language_program

PROGRAM = language_program("bert", "Trains BERT to fill in masked words of a text.")

if __name__ == "__main__":
    sys.exit(main(PROGRAM))
