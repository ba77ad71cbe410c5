"""The model against what turns really give: emulated jobs, and real workloads on this machine's CPUs or a GPU.

Emulated trainers hold each stage for its time, so what differs from the prediction is what turns cost. Combinations
of two to four of the shipped profiles are drawn from a seed, scaled to a cycle of a quarter of a second, and run in
lockstep and at rates; `--fours` runs every four of the eight 1-GPU profiles instead. Real workloads run alone,
side by side without turns, and in turns.

    python benchmarks/interleave.py                            # ten combinations, about three minutes
    python benchmarks/interleave.py --combinations 200         # an hour
    python benchmarks/interleave.py --fours
    python benchmarks/interleave.py --real resnet18+bert,resnet18+gpt2+a2c+dqn [--device cuda --size full]
"""

import argparse
import itertools
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cluster_exp.domain.profile import StageProfile
from cluster_exp.inputs.profiles import default_profiles
from cluster_exp.interleave.speed import LockstepSpeed, RatesSpeed
from cluster_exp.protocol.turns import Discipline
from cluster_exp.results.tables import table
from cluster_exp.runtime.commands import package_path
from cluster_exp.runtime.turn_server import TrainerDone, TrainerEvent, TurnServer

CYCLE_S = 0.25  # of a scaled combination
WINDOW_S = 4.0  # in which iterations are counted
SETTLE_S = 0.5  # before that, when all have begun
WITHIN = 0.05
MANY = 10**9
START_S = 120.0  # in which all trainers must have begun


@dataclass(frozen=True)
class Program:
    """A trainer to start."""

    name: str
    argv: tuple[str, ...]


class Bench:
    """A turn server and the trainers that were started on it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._progress: dict[str, list[tuple[float, int]]] = {}
        self._changed = threading.Condition()
        self._server = TurnServer(folder / "turns", self._take)
        self._server.start()
        self._processes: list[subprocess.Popen[bytes]] = []
        self._runs = 0

    def _take(self, event: TrainerEvent) -> None:
        if not isinstance(event, TrainerDone):
            with self._changed:
                self._progress.setdefault(event.job_id, []).append((event.monotonic_s, event.iterations_done))
                self._changed.notify_all()

    def rates(
        self, programs: Sequence[Program], offsets: Sequence[int], discipline: Discipline, together: bool = True
    ) -> list[float]:
        """Iterations per second of each trainer, of one group or (not `together`) each in a group of its own."""
        self._runs += 1
        self._server.use(discipline, 0.0)
        jobs = [f"run{self._runs}-{i}-{program.name}" for i, program in enumerate(programs)]
        if together:
            members = [((job, 1), offset) for job, offset in zip(jobs, offsets, strict=True)]
            self._server.set_group(self._runs * 10, 1, members, 1)
        else:
            for i, job in enumerate(jobs):
                self._server.set_group(self._runs * 10 + i, 1, [((job, 1), 0)], 1)
        try:
            for job, program in zip(jobs, programs, strict=True):
                self._start(job, program.argv)
            return self._counted(jobs)
        finally:
            self._end(jobs)

    def _start(self, job: str, argv: Sequence[str]) -> None:
        self._server.expect(job, 1)
        env = {
            **os.environ,
            **package_path(),
            "CLUSTER_EXP_JOB_ID": job,
            "CLUSTER_EXP_GENERATION": "1",
            "CLUSTER_EXP_RANK": "0",
            "CLUSTER_EXP_WORLD": "1",
            "CLUSTER_EXP_WORKER": self._server.address,
            "CLUSTER_EXP_ARBITER": self._server.address,
            "CLUSTER_EXP_ITERATIONS": str(MANY),
            "CLUSTER_EXP_ITERATIONS_DONE": "0",
        }
        with open(self._folder / "output.log", "ab") as log:
            self._processes.append(subprocess.Popen(argv, env=env, stdout=log, stderr=log))

    def _counted(self, jobs: Sequence[str]) -> list[float]:
        with self._changed:
            begun = self._changed.wait_for(
                lambda: all(self._done(job) > 0 for job in jobs) or self._crashed(), timeout=START_S
            )
        if not begun or self._crashed():
            raise RuntimeError(f"a trainer did not begin: {(self._folder / 'output.log').read_text()[-500:]}")
        begin_s = time.monotonic() + SETTLE_S
        end_s = begin_s + WINDOW_S
        while time.monotonic() < end_s + 0.2:
            with self._changed:
                self._changed.wait(0.1)
        return [_rate(self._progress[job], begin_s, end_s) for job in jobs]

    def _done(self, job: str) -> int:
        return self._progress.get(job, [(0.0, 0)])[-1][1]

    def _crashed(self) -> bool:
        return any(process.poll() is not None for process in self._processes)

    def _end(self, jobs: Sequence[str]) -> None:
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.wait()
        self._processes.clear()
        for job in jobs:
            self._server.forget_job(job, 1)

    def close(self) -> None:
        """Stops serving."""
        self._server.close()


def _rate(progress: Sequence[tuple[float, int]], begin_s: float, end_s: float) -> float:
    """Iterations per second between the first report after `begin_s` and the last one before `end_s`."""
    inside = [(at_s, done) for at_s, done in progress if begin_s <= at_s <= end_s]
    (first_s, first), (last_s, last) = inside[0], inside[-1]
    return (last - first) / (last_s - first_s)


def emulated(profile: StageProfile, name: str) -> Program:
    """An emulated trainer of a profile, without compression of time."""
    stages = ("iteration", "storage", "cpu", "gpu", "network")
    times = [f"--{stage}-s={getattr(profile, f'{stage}_s')!r}" for stage in stages]
    module = "cluster_exp.runtime.emulated"
    return Program(name, (sys.executable, "-m", module, *times, "--time-scale=1", "--min-cycle-s=1e-9"))


def scaled(profiles: Sequence[StageProfile]) -> list[StageProfile]:
    """The profiles with times such that their best lockstep cycle lasts `CYCLE_S`."""
    by = CYCLE_S / LockstepSpeed().group(profiles).cycle_s
    times = [(p.iteration_s, p.storage_s, p.cpu_s, p.gpu_s, p.network_s) for p in profiles]
    return [StageProfile(*(seconds * by for seconds in row)) for row in times]


def compared(bench: Bench, profiles: Sequence[StageProfile]) -> Mapping[str, tuple[float, float]]:
    """By discipline, the aggregate normalised throughput and the worst member's rate, measured over predicted."""
    found = {}
    programs = [emulated(profile, "emulated") for profile in profiles]
    for name, speed, discipline in (
        ("lockstep", LockstepSpeed(), Discipline.LOCKSTEP),
        ("rates", RatesSpeed(), Discipline.WORK_CONSERVING),
    ):
        predicted = speed.group(profiles)
        measured = bench.rates(programs, predicted.offsets, discipline)
        shares = [rate * seconds for rate, seconds in zip(measured, predicted.iteration_s, strict=True)]
        throughput = sum(rate * profile.iteration_s for rate, profile in zip(measured, profiles, strict=True))
        found[name] = (throughput, max(shares, key=lambda share: abs(share - 1)))
    return found


def combinations(number: int, seed: int, fours: bool) -> Iterator[tuple[str, list[StageProfile]]]:
    """(models, scaled profiles) of each combination."""
    known = default_profiles()
    if fours:
        keys = sorted((key for key in known if key.num_gpu == 1), key=lambda key: key.model)
        chosen: list[tuple] = list(itertools.combinations(keys, 4))[:number]
    else:
        draw = random.Random(seed)
        keys = sorted(known, key=lambda key: (key.model, key.num_gpu))
        chosen = [tuple(draw.choices(keys, k=draw.choice([2, 3, 4]))) for _ in range(number)]
    for group in chosen:
        profiles = [known.find(key) for key in group]
        yield "+".join(f"{key.model}/{key.num_gpu}" for key in group), scaled(profiles)


def emulated_table(bench: Bench, number: int, seed: int, fours: bool) -> tuple[str, bool]:
    """The table, and whether everything came out within 5 %."""
    rows, worst = [], {"lockstep": [], "rates": []}
    for models, profiles in combinations(number, seed, fours):
        found = compared(bench, profiles)
        for name, (_, share) in found.items():
            worst[name].append(abs(share - 1))
        cells = [f"{value:.3f}" for pair in found.values() for value in pair]
        rows.append((models, *cells))
        sys.stderr.write(f"{len(rows)} {models} {' '.join(cells)}\n")
    for name, found_ in worst.items():
        met = sum(one <= WITHIN for one in found_)
        rows.append((f"{name}: within 5 %", f"{met} of {len(found_)}", f"worst {max(found_):.3f}", "", ""))
    head = ("combination", "lockstep: throughput", "measured/predicted", "rates: throughput", "measured/predicted")
    return table(head, rows), all(max(found_) <= WITHIN for found_ in worst.values())


def real_table(bench: Bench, groups: Sequence[str], command: Callable[[str], Program]) -> str:
    """Throughput of real workloads, each over that alone: side by side without turns, and in turns."""
    alone: dict[str, float] = {}
    rows = []
    for names in (group.split("+") for group in groups):
        programs = [command(name) for name in names]
        for name, program in zip(names, programs, strict=True):
            if name not in alone:
                (alone[name],) = bench.rates([program], [0], Discipline.WORK_CONSERVING)
        offsets = list(range(len(names)))
        row = ["+".join(names)]
        for discipline, together in ((Discipline.WORK_CONSERVING, False), (Discipline.WORK_CONSERVING, True)):
            rates = bench.rates(programs, offsets, discipline, together)
            parts = [rate / alone[name] for rate, name in zip(rates, names, strict=True)]
            row += [f"{sum(parts):.2f}", " ".join(f"{part:.2f}" for part in parts)]
        rows.append(tuple(row))
    head = ("workloads", "without turns", "each", "in turns", "each")
    lines = [f"{name}: {rate:.1f} iterations/s alone" for name, rate in alone.items()]
    return "\n".join([*lines, table(head, rows)])


def main(argv: Sequence[str] | None = None) -> int:
    """Prints a table; 1 when an emulated rate or cycle differs by more than 5 %."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--combinations", type=int, default=10, metavar="N")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--fours", action="store_true", help="every four of the eight 1-GPU profiles")
    parser.add_argument("--real", metavar="A+B[,C+D...]", help="real workloads instead, by name")
    parser.add_argument("--size", default="tiny", help="of the real workloads: full, small or tiny")
    parser.add_argument("--device", default="cpu", help="of the real workloads: cpu or cuda")
    args = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="interleave-") as folder:
        bench = Bench(Path(folder))
        try:
            if args.real:
                print(f"{os.cpu_count()} cores, device {args.device}, size {args.size}")
                print(real_table(bench, args.real.split(","), _real(Path(folder), args.size, args.device)))
                return 0
            number = 70 if args.fours else args.combinations
            printed, met = emulated_table(bench, number, args.seed, args.fours)
            print(printed)
            return int(not met)
        finally:
            bench.close()


def _real(folder: Path, size: str, device: str) -> Callable[[str], Program]:
    """Makes the data, and returns what makes a workload's command."""
    make = [sys.executable, "-m", "workloads.data", "make"]
    for kind, size_ in (("images", ["--size", "64", "--classes", "4"]), ("text", ["--size", "200"])):
        made = [*make, kind, "--out", str(folder / kind), *size_]
        subprocess.run(made, env={**os.environ, **package_path()}, check=True, stdout=subprocess.DEVNULL)
    vision, language = ("vgg16", "vgg19", "resnet18", "shufflenet_v2_x1_0"), ("bert", "gpt2")

    def command(name: str) -> Program:
        options = ["--size", size, "--device", device, "--log-every", "1000000"]
        if name in vision:
            options += ["--data", str(folder / "images")]
        elif name in language:
            options += ["--data", str(folder / "text" / "train.txt")]
        return Program(name, (sys.executable, "-m", f"workloads.{name}", *options))

    return command


if __name__ == "__main__":
    sys.exit(main())
