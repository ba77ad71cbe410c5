"""Deep Q-network (Mnih et al., 2015, algorithm 1), with Huber loss and Adam."""

import argparse
import copy
from collections.abc import Mapping
from typing import Any

import torch
from torch.nn import functional

from workloads.command import Program, positive
from workloads.communicator import Communicator
from workloads.errors import WorkloadError
from workloads.rl.atari import STACK, Game
from workloads.rl.games import add_game_option, draws_of, seed_of
from workloads.rl.network import AtariNetwork, Player
from workloads.rl.replay import Replay, Transitions
from workloads.workload import Place, Workload

_WARM_UP = {"full": 1000, "small": 500, "tiny": 64}  # steps before the first update
_TARGET_UPDATES = {"full": 1000, "small": 200, "tiny": 5}  # updates for which the target network stays as it is
_EXPLORED = 100_000  # steps until the least share of random actions
_LEAST_RANDOM = 0.1
_DISCOUNT = 0.99
_LEARNING_RATE = 1e-4
_CLIP_NORM = 10.0


class DeepQ(Workload[None, Transitions]):
    """Plays a few steps of one game into the replay buffer, then learns from a sample of it.

    The first iteration also plays the steps of the warm-up.
    """

    clip_norm = _CLIP_NORM

    def __init__(
        self,
        game: Game,
        replay: Replay,
        batch_size: int,
        steps: int,
        size: str,
        draws: torch.Generator,
        device: torch.device,
    ) -> None:
        """`steps` of the game an iteration."""
        self.model = AtariNetwork(size, game.num_actions).to(device)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=_LEARNING_RATE)
        self._target = copy.deepcopy(self.model)
        self._player = Player(self.model, device)
        self._game = game
        self._replay = replay
        self._batch_size = batch_size
        self._steps = steps
        self._warm_up = _WARM_UP[size]
        self._target_updates = _TARGET_UPDATES[size]
        self._draws = draws
        self._device = device
        self._played = 0
        self._updates = 0

    def start(self, comm: Communicator) -> None:
        """Ranks take rank 0's weights."""
        super().start(comm)
        self._target.load_state_dict(self.model.state_dict())
        self._player.refresh(self.model)

    def read(self) -> None:
        """Nothing comes from disk."""

    def prepare(self, raw: None) -> Transitions:
        """Plays, then draws a batch from what was played."""
        for _ in range(self._steps if self._played else self._warm_up):
            frame = self._game.frames[-1]
            action = self._action()
            step = self._game.step(action)
            self._replay.add(frame, action, step.reward, step.ended)
            self._played += 1
        return self._replay.sample(self._batch_size, self._draws)

    def loss(self, batch: Transitions) -> torch.Tensor:
        """Huber loss between the value of what was done and what came of it."""
        seen, actions, rewards, ended, seen_next = (part.to(self._device) for part in batch)
        values = self.model(seen).gather(1, actions[:, None])[:, 0]
        with torch.no_grad():
            following = self._target(seen_next).max(dim=1).values
        return functional.smooth_l1_loss(values, rewards + _DISCOUNT * following * ~ended)

    def updated(self) -> None:
        """The player plays as was learnt; now and then the target follows."""
        self._updates += 1
        self._player.refresh(self.model)
        if self._updates % self._target_updates == 0:
            self._target.load_state_dict(self.model.state_dict())

    def state_dict(self) -> dict[str, Any]:
        """The target network, the replay buffer, the game, the counts and the state of the draws."""
        return {
            "target": self._target.state_dict(),
            "replay": self._replay.state_dict(),
            "game": self._game.state_dict(),
            "draws": self._draws.get_state(),
            "played": self._played,
            "updates": self._updates,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Plays on."""
        self._target.load_state_dict(state["target"])
        self._replay.load_state_dict(state["replay"])
        self._game.load_state_dict(state["game"])
        self._draws.set_state(state["draws"])
        self._played, self._updates = state["played"], state["updates"]
        self._player.refresh(self.model)

    def _action(self) -> int:
        random_share = max(_LEAST_RANDOM, 1 - (1 - _LEAST_RANDOM) * self._played / _EXPLORED)
        if float(torch.rand((), generator=self._draws)) < random_share:
            return int(torch.randint(self._game.num_actions, (), generator=self._draws))
        return int(self._player(torch.from_numpy(self._game.frames)[None]).argmax())


def dqn_program(name: str, about: str) -> Program:
    """The script of DQN."""

    def build(args: argparse.Namespace, place: Place) -> DeepQ:
        if args.replay_size <= STACK + 1:
            raise WorkloadError(
                f"{args.replay_size} is given, a number from {STACK + 2} on is allowed", where="--replay-size"
            )
        game = Game(args.game, seed_of(args.seed, place.rank, 0))
        draws = draws_of(args.seed, place.rank)
        replay = Replay(args.replay_size)
        return DeepQ(game, replay, args.batch_size, args.steps, args.size, draws, place.device)

    def add_options(parser: argparse.ArgumentParser) -> None:
        add_game_option(parser)
        add = parser.add_argument
        add("--steps", type=positive, default=4, metavar="N", help="steps of the game an iteration, 4 frames each")
        add("--replay-size", type=positive, default=20_000, metavar="N", help="steps that are remembered, 7 KiB each")

    return Program(name, about, {"full": 128, "small": 32, "tiny": 16}, add_options, build)
