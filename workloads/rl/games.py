"""What both agents say about games and draws."""

import argparse

import numpy as np
import torch


def add_game_option(parser: argparse.ArgumentParser) -> None:
    """Which game."""
    parser.add_argument("--game", default="Pong", help="an Atari game that ale-py comes with, such as Breakout")


def seed_of(seed: int, rank: int, number: int) -> int:
    """A seed for one generator of one process; 0 to 2^31 - 1."""
    return int(np.random.SeedSequence([seed, rank, number]).generate_state(1)[0] >> 1)


def draws_of(seed: int, rank: int) -> torch.Generator:
    """The generator from which a process draws what it does; no game has the same seed."""
    return torch.Generator().manual_seed(seed_of(seed, rank, 2**32 - 1))
