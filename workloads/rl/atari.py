"""An Atari game as an agent sees it (Mnih et al., 2015, methods, preprocessing), and its whole state."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import ale_py
import gymnasium
import numpy as np
import numpy.typing as npt
import torch
from PIL import Image

from workloads.errors import WorkloadError

SIDE = 84  # pixels
STACK = 4  # frames that an agent sees at once
_SKIP = 4  # emulated frames for each action
_REPEAT = 0.25  # chance, at each emulated frame, that the last action goes on (Machado et al., 2018)
_MAX_WAITS = 30  # emulated frames without an action, at most, when an episode begins
_WAIT = 0  # the action that does nothing

Frame = npt.NDArray[np.uint8]  # (SIDE, SIDE), grey


class Step(NamedTuple):
    """What an action led to; the reward is a sign."""

    reward: float
    ended: bool  # the episode is over and the next one has begun


class Game:
    """An emulator, the frames that are seen, and the draws that concern it.

    Actions are repeated here: the emulator can do it, but leaves the last action out of its saved state.

    Attributes:
        frames: (STACK, SIDE, SIDE), the latest last; a new array after each step. Zeros before an episode's first.
        num_actions: actions from 0 on are allowed.
    """

    def __init__(self, name: str, seed: int) -> None:
        """A game, at the beginning of an episode. Raises WorkloadError when there is no such game."""
        ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)  # before it greets
        gymnasium.register_envs(ale_py)
        try:
            self._env = gymnasium.make(
                f"ALE/{name}-v5",
                frameskip=1,
                repeat_action_probability=0.0,
                obs_type="grayscale",
                disable_env_checker=True,
            )
        except gymnasium.error.Error as error:
            games = sorted(key[4:-3] for key in gymnasium.registry if key.startswith("ALE/") and key.endswith("-v5"))
            allowed = ", ".join(game for game in games if "-ram" not in game)
            raise WorkloadError(f"{name} is given; allowed are {allowed}", where="--game") from error
        self.num_actions = int(self._env.action_space.n)
        self._draws = torch.Generator().manual_seed(seed)
        self._env.reset(seed=seed)
        self._begin()

    def step(self, action: int) -> Step:
        """Repeats an action, and begins the next episode when this one is over."""
        total, ended = 0.0, False
        seen: list[Frame] = []  # the last two
        for _ in range(_SKIP):
            if float(torch.rand((), generator=self._draws)) >= _REPEAT:
                self._last_action = action
            screen, reward, over, cut, _ = self._env.step(self._last_action)
            total += float(reward)
            seen = [*seen[-1:], screen]
            if over or cut:
                ended = True
                break
        if ended:
            self._env.reset()
            self._begin()
        else:
            self._see(np.maximum(seen[0], seen[-1]))  # sprites flicker: every other frame shows them
        return Step(float(np.sign(total)), ended)

    def state_dict(self) -> dict[str, Any]:
        """The emulator with its own random state, what is seen, and the state of the draws."""
        emulator = self._env.unwrapped.clone_state(include_rng=True).serialize()
        return {
            "emulator": torch.frombuffer(bytearray(emulator), dtype=torch.uint8),
            "frames": torch.from_numpy(self.frames),
            "last_action": self._last_action,
            "draws": self._draws.get_state(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on from a saved state of the same game."""
        self._env.unwrapped.restore_state(ale_py.ALEState(state["emulator"].numpy().tobytes()))
        self.frames = state["frames"].numpy()
        self._last_action = state["last_action"]
        self._draws.set_state(state["draws"])

    def _begin(self) -> None:
        """Waits for a random while, so that episodes differ."""
        waits = int(torch.randint(1, _MAX_WAITS + 1, (), generator=self._draws))
        for _ in range(waits):
            screen, _, over, cut, _ = self._env.step(_WAIT)
            if over or cut:
                self._env.reset()
        self._last_action = _WAIT
        self.frames = np.zeros((STACK, SIDE, SIDE), dtype=np.uint8)
        self._see(screen)

    def _see(self, screen: Frame) -> None:
        small = Image.fromarray(screen).resize((SIDE, SIDE), Image.Resampling.BILINEAR)
        self.frames = np.concatenate((self.frames[1:], np.asarray(small)[np.newaxis]))
