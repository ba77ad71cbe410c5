"""Trains advantage actor-critic (A2C) on an Atari game."""

import sys

from workloads.command import main
from workloads.rl.a2c import a2c_program

PROGRAM = a2c_program("a2c", "Trains advantage actor-critic (A2C) on an Atari game.")

if __name__ == "__main__":
    sys.exit(main(PROGRAM))
