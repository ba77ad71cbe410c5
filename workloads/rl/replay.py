"""A replay buffer that keeps each frame once and puts the stacks together when they are asked for."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch

from workloads.rl.atari import SIDE, STACK, Frame


class Transitions(NamedTuple):
    """A batch of what was seen, done, and seen next."""

    seen: torch.Tensor  # (batch, STACK, SIDE, SIDE)
    actions: torch.Tensor  # (batch,)
    rewards: torch.Tensor  # (batch,)
    ended: torch.Tensor  # (batch,): the episode was over; what was seen next means nothing
    seen_next: torch.Tensor  # like seen


class Replay:
    """The last `capacity` steps of one game, in order."""

    def __init__(self, capacity: int) -> None:
        """An empty buffer."""
        self._capacity = capacity
        self._frames = torch.empty(capacity, SIDE, SIDE, dtype=torch.uint8)
        self._actions = torch.empty(capacity, dtype=torch.int64)
        self._rewards = torch.empty(capacity)
        self._ended = torch.empty(capacity, dtype=torch.bool)
        self._added = 0  # ever

    def __len__(self) -> int:
        return min(self._added, self._capacity)

    def add(self, frame: Frame, action: int, reward: float, ended: bool) -> None:
        """A step: the latest frame before the action, and what came of it. The oldest step makes room."""
        slot = self._added % self._capacity
        self._frames[slot] = torch.from_numpy(frame)
        self._actions[slot] = action
        self._rewards[slot] = reward
        self._ended[slot] = ended
        self._added += 1

    def sample(self, count: int, draws: torch.Generator) -> Transitions:
        """`count` steps, each as likely, some perhaps twice. There must be more than STACK steps."""
        # A step needs STACK - 1 before it and one after it.
        ages = torch.randint(1, len(self) - STACK + 1, (count,), generator=draws)
        slots = (self._added - 1 - ages) % self._capacity
        around = (slots[:, None] + torch.arange(1 - STACK, 2)) % self._capacity
        frames, ended = self._frames[around], self._ended[around]
        return Transitions(
            _within_episode(frames[:, :-1], ended[:, : STACK - 1]),
            self._actions[slots],
            self._rewards[slots],
            self._ended[slots],
            _within_episode(frames[:, 1:], ended[:, 1:STACK]),
        )

    def state_dict(self) -> dict[str, Any]:
        """The steps, copied."""
        filled = len(self)
        return {
            "added": self._added,
            "frames": self._frames[:filled].clone(),
            "actions": self._actions[:filled].clone(),
            "rewards": self._rewards[:filled].clone(),
            "ended": self._ended[:filled].clone(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes the steps of a buffer of the same capacity."""
        self._added = state["added"]
        filled = len(self)
        self._frames[:filled] = state["frames"]
        self._actions[:filled] = state["actions"]
        self._rewards[:filled] = state["rewards"]
        self._ended[:filled] = state["ended"]


def _within_episode(frames: torch.Tensor, ended: torch.Tensor) -> torch.Tensor:
    """Zeros in place of frames of an earlier episode than the last frame's; `ended` tells what lies between two."""
    earlier = ended.flip(1).cumsum(1).flip(1) > 0
    visible = torch.cat((~earlier, torch.ones_like(earlier[:, :1])), dim=1)
    return frames * visible[:, :, None, None]
