"""What all the scripts share: options, devices, checkpoints on the way, exit codes."""

import argparse
import logging
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from workloads import checkpoint
from workloads.communicator import Communicator
from workloads.errors import WorkloadError
from workloads.exchange import CommunicationError, launched
from workloads.loop import LaunchFolder, SupersededError, Trainer, Training, WorkerLostError, train
from workloads.workload import Place, Workload

SIZES = ("full", "small", "tiny")
# A resumed run may differ in these; every other option is part of what is being trained.
_MAY_CHANGE = frozenset(
    {"iterations", "data", "device", "threads", "checkpoint_dir", "checkpoint_every", "log_every"}
)

_ENOUGH = 2  # checkpoints of a launch that make those of earlier launches superfluous: one, and the one before it
_log = logging.getLogger("workloads")


@dataclass(frozen=True, slots=True)
class Program:
    """A script: its name and options, and how its workload is made."""

    name: str
    about: str  # a sentence
    batch_size: Mapping[str, int]  # samples per process and iteration, by size
    add_options: Callable[[argparse.ArgumentParser], None]
    build: Callable[[argparse.Namespace, Place], Workload[Any, Any]]  # torch's generator is seeded before


def positive(text: str) -> int:
    """A whole number from 1, as an option's type."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is given, a whole number from 1 on is allowed")
    return number


def not_negative(text: str) -> int:
    """A whole number from 0, as an option's type."""
    number = int(text)
    if number < 0:
        raise argparse.ArgumentTypeError(f"{text} is given, a whole number from 0 on is allowed")
    return number


def main(program: Program, argv: Sequence[str] | None = None, comm: Communicator | None = None) -> int:
    """Trains as the options say.

    Exit codes: 0 done, or told to leave; 1 the worker or another rank is gone; 2 bad input; 130 stopped by Ctrl-C.

    `comm` is closed at the end; without it the launcher says how the ranks exchange gradients.
    """
    args = _parser(program).parse_args(argv)
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout)
    try:
        comm = comm or launched()
        try:
            _run(program, args, comm)
        finally:
            comm.close()
    except (CommunicationError, WorkloadError, SupersededError, ImportError, OSError) as error:
        sys.stderr.write(f"{program.name}: {error}\n")
        return 1 if isinstance(error, WorkerLostError | CommunicationError) else 2
    except KeyboardInterrupt:
        return 130
    return 0


class _Defaults(argparse.ArgumentDefaultsHelpFormatter):
    """Names the default of each option that has one."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        return action.help if action.default is None else super()._get_help_string(action)


def _parser(program: Program) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=f"python -m workloads.{program.name}",
        description=program.about,
        formatter_class=_Defaults,
    )
    sizes = ", ".join(f"{size} {number}" for size, number in program.batch_size.items())
    add = parser.add_argument
    add("--size", choices=SIZES, default="full", help="of the model and its input; tiny trains on a CPU in no time")
    add("--batch-size", type=positive, help=f"samples per process and iteration (default: {sizes})")
    add("--iterations", type=positive, default=100, help="to do in all; in a cluster the launcher says how many")
    add("--seed", type=not_negative, default=0, help="of weights, data order and every draw")
    add("--device", default="cuda" if torch.cuda.is_available() else "cpu", help="cpu, cuda or cuda:N")
    add("--threads", type=positive, default=1, help="of computations on the CPU; other numbers give other bits")
    add("--checkpoint-dir", metavar="DIR", help="resume from here if there is a checkpoint, and leave one at the end")
    add("--checkpoint-every", type=positive, metavar="N", help="iterations between checkpoints on the way")
    add("--log-every", type=positive, default=10, metavar="N", help="iterations between lines of output")
    program.add_options(parser)
    return parser


def _run(program: Program, args: argparse.Namespace, comm: Communicator) -> None:
    if args.batch_size is None:
        args.batch_size = program.batch_size[args.size]
    device = _device(args.device)
    torch.set_num_threads(args.threads)
    if device.type == "cpu":
        torch.use_deterministic_algorithms(True)
    torch.manual_seed(args.seed)
    workload = program.build(args, Place(comm.rank, comm.size, device))
    torch.manual_seed(args.seed + comm.rank + 1)
    what = {name: value for name, value in vars(args).items() if name not in _MAY_CHANGE}
    training = Training(workload, comm, device, {"program": program.name, **what})
    trainer = Trainer.from_env()
    directory = args.checkpoint_dir or trainer.checkpoint_dir
    saves = _Saves(trainer, comm, directory, args.checkpoint_every)
    _begin(training, comm, saves.load())
    resumed_at = training.iterations
    watch = _Watch(program.name, args.log_every)

    def between(training: Training) -> None:
        watch(training)
        if saves.due(training):
            saves.save(training)

    train(training, trainer, args.iterations, between)
    if training.iterations > max(resumed_at, saves.latest):
        saves.save(training)
    trainer.close()
    _log.info("%s: %d iterations done, loss %.4f", program.name, training.iterations, training.loss)


class _Saves:
    """One rank's checkpoints: where they lie, when they are written, who hears of them."""

    def __init__(self, trainer: Trainer, comm: Communicator, directory: str, every: int | None) -> None:
        """`directory` "": none are written; `every` None: as the launcher says.

        Raises:
            SupersededError: a newer launch of the job has begun.
            OSError: the folder cannot be made.
        """
        self.latest = 0  # iterations of the newest one that this process wrote
        self._trainer = trainer
        self._comm = comm
        self._every = every
        self._folder: LaunchFolder | None = None
        self._path: Path | None = None
        self._written = 0
        if directory and trainer.identity is not None:
            self._folder = LaunchFolder(directory, trainer.identity.generation)
            self._path = checkpoint.path_of(self._folder.path, comm.rank)
        elif directory:
            self._path = checkpoint.path_of(directory, comm.rank)

    def load(self) -> Mapping[str, Any] | None:
        """The state to go on from: in a cluster the newest that all ranks have; None to begin anew.

        Raises:
            WorkloadError: the launcher counts iterations as saved, and the ranks have no checkpoint together.
        """
        if self._folder is None:
            return None if self._path is None else checkpoint.load(self._path)
        mine = checkpoint.found(self._folder.older(), self._comm.rank)
        agreed = self._agree(sorted(mine, reverse=True))
        counted = self._trainer.iterations_done
        if agreed is None:
            if counted:
                held = ", ".join(map(str, sorted(mine))) or "none"
                where = str(self._folder.path.parent)
                raise WorkloadError(
                    f"no checkpoint that all ranks have, the launcher counts {counted} iterations; rank "
                    f"{self._comm.rank} has: {held}",
                    where=where,
                )
            return None
        if agreed != counted:
            _log.warning("goes on from %d iterations, the launcher counts %d", agreed, counted)
        self._trainer.resumed(agreed)
        return checkpoint.load(mine[agreed])

    def _agree(self, mine: Sequence[int]) -> int | None:
        """The most iterations of which every rank has a checkpoint."""
        for candidate in self._comm.broadcast(list(mine)):
            have = torch.tensor([float(candidate in mine)])
            self._comm.average([have])
            if have.item() > 1 - 0.5 / self._comm.size:
                return int(candidate)
        return None

    def due(self, training: Training) -> bool:
        """Whether to write one now, between two iterations."""
        if self._every is None:
            return self._trainer.checkpoint_due
        return training.iterations % self._every == 0

    def save(self, training: Training) -> None:
        """Writes one and says so. Raises OSError when the disk does not take it, SupersededError when it must not."""
        if self._path is None:
            return
        if self._folder is not None:
            self._folder.check()
        checkpoint.save(training.state_dict(), self._path)
        self.latest = training.iterations
        self._written += 1
        if self._folder is not None and self._written == _ENOUGH:
            checkpoint.drop(self._folder.older(), self._comm.rank)
        self._trainer.checkpointed()


def _begin(training: Training, comm: Communicator, state: Mapping[str, Any] | None) -> None:
    """Resumes or starts, as all ranks do: one that cannot follow rank 0 says so and leaves."""
    if state is not None:
        training.load_state_dict(state)
    agreed = comm.broadcast(training.iterations)
    if training.iterations != agreed:
        raise WorkloadError(
            f"of rank {comm.rank}: {training.iterations} iterations done, and {agreed} of rank 0", where="checkpoint"
        )
    if state is None:
        training.start()


def _device(name: str) -> torch.device:
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise WorkloadError(f"{name} is given, cpu, cuda and cuda:N are allowed", where="--device") from error
    if device.type not in ("cpu", "cuda"):
        raise WorkloadError(f"{name} is given, cpu, cuda and cuda:N are allowed", where="--device")
    if device.type == "cuda" and not torch.cuda.is_available():
        raise WorkloadError(f"{name} is given, and torch sees no GPU here; cpu is allowed", where="--device")
    return device


class _Watch:
    """Writes a line every so many iterations."""

    def __init__(self, name: str, every: int) -> None:
        self._name, self._every = name, every
        self._since = time.monotonic()
        self._iterations = 0

    def __call__(self, training: Training) -> None:
        self._iterations += 1
        if training.iterations % self._every:
            return
        now = time.monotonic()
        seconds = (now - self._since) / self._iterations
        _log.info(
            "%s iteration=%d loss=%.4f iteration_s=%.4f", self._name, training.iterations, training.loss, seconds
        )
        self._since, self._iterations = now, 0
