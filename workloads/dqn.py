"""Trains a deep Q-network (DQN) on an Atari game."""

import sys

from workloads.command import main
from workloads.rl.dqn import dqn_program

PROGRAM = dqn_program("dqn", "Trains a deep Q-network (DQN) on an Atari game.")

if __name__ == "__main__":
    sys.exit(main(PROGRAM))
