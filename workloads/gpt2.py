"""Trains GPT-2 to continue a text."""

import sys

from workloads.command import main
from workloads.language.program import language_program

PROGRAM = language_program("gpt2", "Trains GPT-2 to continue a text.")

if __name__ == "__main__":
    sys.exit(main(PROGRAM))
