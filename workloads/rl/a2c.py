"""Advantage actor-critic, synchronous (Mnih et al., 2016, algorithm S3)."""

import argparse
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.nn import functional

from workloads.command import Program, positive
from workloads.communicator import Communicator
from workloads.errors import WorkloadError
from workloads.rl.atari import Game
from workloads.rl.games import add_game_option, draws_of, seed_of
from workloads.rl.network import AtariNetwork, Player
from workloads.workload import Place, Workload

_ENVS = {"full": 16, "small": 8, "tiny": 2}  # games at once
_DISCOUNT = 0.99
_VALUE_WEIGHT, _ENTROPY_WEIGHT = 0.5, 0.01
_LEARNING_RATE = 7e-4
_CLIP_NORM = 0.5


class Rollout(NamedTuple):
    """What was played, step by step in all games."""

    seen: torch.Tensor  # (steps + 1, games, STACK, SIDE, SIDE)
    actions: torch.Tensor  # (steps, games)
    rewards: torch.Tensor  # (steps, games)
    ended: torch.Tensor  # (steps, games)


class ActorCritic(Workload[None, Rollout]):
    """Plays a few steps in several games, then learns from them. The last output is the value, the others logits."""

    clip_norm = _CLIP_NORM

    def __init__(
        self, games: Sequence[Game], steps: int, size: str, draws: torch.Generator, device: torch.device
    ) -> None:
        """`steps` in each game an iteration."""
        self.model = AtariNetwork(size, games[0].num_actions + 1).to(device)
        self.optimizer = torch.optim.RMSprop(self.model.parameters(), lr=_LEARNING_RATE, eps=1e-5)
        self._player = Player(self.model, device)
        self._games = games
        self._steps = steps
        self._draws = draws
        self._device = device

    def start(self, comm: Communicator) -> None:
        """Ranks take rank 0's weights."""
        super().start(comm)
        self.updated()

    def read(self) -> None:
        """Nothing comes from disk."""

    def prepare(self, raw: None) -> Rollout:
        """Plays."""
        seen = [self._seen()]
        actions, rewards, ended = [], [], []
        for _ in range(self._steps):
            chances = torch.softmax(self._player(seen[-1])[:, :-1], dim=1)
            chosen = torch.multinomial(chances, 1, generator=self._draws)[:, 0]
            steps = [game.step(action) for game, action in zip(self._games, chosen.tolist(), strict=True)]
            actions.append(chosen)
            rewards.append(torch.tensor([step.reward for step in steps]))
            ended.append(torch.tensor([step.ended for step in steps]))
            seen.append(self._seen())
        return Rollout(torch.stack(seen), torch.stack(actions), torch.stack(rewards), torch.stack(ended))

    def loss(self, batch: Rollout) -> torch.Tensor:
        """Policy gradient, squared error of the values, and a bonus for staying undecided."""
        seen, actions, rewards, ended = (part.to(self._device) for part in batch)
        outputs = self.model(seen.flatten(0, 1)).unflatten(0, seen.shape[:2])
        values = outputs[..., -1]
        chances = functional.log_softmax(outputs[:-1, :, :-1], dim=-1)
        returns = discounted(rewards, ended, values[-1].detach())
        advantages = returns - values[:-1]
        taken = chances.gather(-1, actions.unsqueeze(-1)).squeeze(-1)
        entropy = -(chances.exp() * chances).sum(-1).mean()
        policy = -(taken * advantages.detach()).mean()
        return policy + _VALUE_WEIGHT * advantages.square().mean() - _ENTROPY_WEIGHT * entropy

    def updated(self) -> None:
        """The player plays as was learnt."""
        self._player.refresh(self.model)

    def state_dict(self) -> dict[str, Any]:
        """All games, and the state of the draws of actions."""
        return {"games": [game.state_dict() for game in self._games], "draws": self._draws.get_state()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Plays on."""
        for game, saved in zip(self._games, state["games"], strict=True):
            game.load_state_dict(saved)
        self._draws.set_state(state["draws"])
        self.updated()

    def _seen(self) -> torch.Tensor:
        return torch.from_numpy(np.stack([game.frames for game in self._games]))


def discounted(rewards: torch.Tensor, ended: torch.Tensor, last_values: torch.Tensor) -> torch.Tensor:
    """Returns, (steps, games): rewards until the episode's end, or until the last step and then its value."""
    returns = []
    following = last_values
    for reward, over in zip(rewards.flip(0), ended.flip(0), strict=True):
        following = reward + _DISCOUNT * following * ~over
        returns.append(following)
    return torch.stack(returns[::-1])


def a2c_program(name: str, about: str) -> Program:
    """The script of A2C."""

    def build(args: argparse.Namespace, place: Place) -> ActorCritic:
        count = args.envs or _ENVS[args.size]
        if args.batch_size % count:
            raise WorkloadError(
                f"{args.batch_size} is given, a multiple of the {count} games (--envs) is allowed",
                where="--batch-size",
            )
        games = [Game(args.game, seed_of(args.seed, place.rank, number)) for number in range(count)]
        draws = draws_of(args.seed, place.rank)
        return ActorCritic(games, args.batch_size // count, args.size, draws, place.device)

    def add_options(parser: argparse.ArgumentParser) -> None:
        add_game_option(parser)
        counts = ", ".join(f"{size} {count}" for size, count in _ENVS.items())
        parser.add_argument("--envs", type=positive, metavar="N", help=f"games played at once (default: {counts})")

    return Program(name, about, {"full": 64, "small": 32, "tiny": 8}, add_options, build)
