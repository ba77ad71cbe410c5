"""Pieces that several tests of the workloads share."""

import importlib
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import torch

from workloads.command import Program, main

ROOT = Path(__file__).parents[2]
VISION = ("vgg16", "vgg19", "resnet18", "shufflenet_v2_x1_0")
LANGUAGE = ("bert", "gpt2")
RL = ("a2c", "dqn")
DEADLINE_S = 150.0


def program(name: str) -> Program:
    return importlib.import_module(f"workloads.{name}").PROGRAM


def options(name: str, images: Path, text: Path) -> list[str]:
    """A tiny training of any workload."""
    data = {**dict.fromkeys(VISION, images), **dict.fromkeys(LANGUAGE, text)}.get(name)
    return ["--size", "tiny", *(["--data", str(data)] if data else [])]


def train_here(name: str, *arguments: str) -> None:
    assert main(program(name), arguments) == 0


def train_elsewhere(name: str, *arguments: str, env: dict[str, str] | None = None) -> subprocess.Popen:
    """The script in a new process."""
    return subprocess.Popen([sys.executable, "-m", f"workloads.{name}", *arguments], cwd=ROOT, env=env)


def difference(ours: Any, theirs: Any, where: str = "") -> list[str]:
    """Paths at which two states differ in a bit, a length, a key or a value."""
    if isinstance(ours, torch.Tensor):
        same = ours.dtype == theirs.dtype and ours.shape == theirs.shape
        return [] if same and ours.numpy().tobytes() == theirs.numpy().tobytes() else [where]
    if isinstance(ours, dict):
        if list(ours) != list(theirs):
            return [where]
        return [path for key in ours for path in difference(ours[key], theirs[key], f"{where}/{key}")]
    if isinstance(ours, list | tuple):
        if len(ours) != len(theirs):
            return [where]
        pairs = enumerate(zip(ours, theirs, strict=True))
        return [path for number, pair in pairs for path in difference(*pair, f"{where}/{number}")]
    return [] if ours == theirs else [where]


class Thread:
    """A communicator between the threads of one process."""

    def __init__(self, rank: int, together: threading.Barrier, shared: dict[int, Any]) -> None:
        self.rank = rank
        self.size = together.parties
        self._together = together
        self._shared = shared

    def average(self, tensors: Any) -> None:
        everyone = self._exchange([tensor.clone() for tensor in tensors])
        for number, tensor in enumerate(tensors):
            tensor.copy_(sum(theirs[number] for theirs in everyone) / self.size)

    def broadcast(self, value: Any) -> Any:
        return self._exchange(value)[0]

    def close(self) -> None:
        """The others may still be talking."""

    def _exchange(self, value: Any) -> list[Any]:
        self._shared[self.rank] = value
        self._together.wait(DEADLINE_S)
        everyone = [self._shared[rank] for rank in range(self.size)]
        self._together.wait(DEADLINE_S)
        return everyone
