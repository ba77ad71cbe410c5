"""An emulated trainer: a process that holds each stage's turn for its time, and counts iterations.

It stands in for a real training program where there is no GPU, and takes the same road: launcher, SDK, turns. Time
is compressed: one emulated iteration stands for a batch of iterations, so that a cycle is long enough to be real.
"""

import argparse
import math
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

from cluster_exp.domain.profile import StageProfile
from cluster_exp.domain.resources import Resource
from cluster_exp.runtime.trainer import Trainer, WorkerLostError

MIN_CYCLE_WALL_S = 0.1  # a compressed cycle lasts at least this long: handing over turns is small beside it
_LATE_WALL_S = 0.02  # a start no later than this counts as on time, so that waking up late does not add up


def batch_for(cycle_s: float, time_scale: float, min_cycle_wall_s: float = MIN_CYCLE_WALL_S) -> int:
    """How many iterations one emulated iteration stands for, so that its cycle lasts at least `min_cycle_wall_s`.

    Args:
        cycle_s: period of the group (of a job alone: its iteration), in simulated seconds.
        time_scale: simulated seconds per second.
        min_cycle_wall_s: seconds.
    """
    return max(1, math.ceil(min_cycle_wall_s * time_scale / cycle_s))


@dataclass(frozen=True, slots=True)
class Emulation:
    """What is emulated, and how fast."""

    profile: StageProfile
    time_scale: float
    min_cycle_wall_s: float = MIN_CYCLE_WALL_S


def train(trainer: Trainer, emulation: Emulation) -> None:
    """Trains until all iterations are done or the job has to leave."""
    profile = emulation.profile
    alone_batch = batch_for(profile.iteration_s, emulation.time_scale, emulation.min_cycle_wall_s)
    # Alone, prefetching hides what the stages sum to beyond the iteration.
    squeeze = min(1.0, profile.iteration_s / profile.busy_s) if profile.busy_s > 0 else 1.0
    ready_s = time.monotonic()
    while trainer.begin_iteration():
        batch = min(trainer.batch if trainer.turns else alone_batch, trainer.remaining_iterations)
        wall_per_s = batch / emulation.time_scale
        began_s = now_s = _on_time(ready_s)
        for resource in Resource:
            stage_wall_s = profile.stages[resource] * wall_per_s
            with trainer.stage(resource):
                if trainer.turns:
                    now_s = time.monotonic()
                    began_s = now_s if resource is Resource.STORAGE else began_s
                else:
                    stage_wall_s *= squeeze
                now_s += stage_wall_s
                _sleep_until(now_s)
        ready_s = max(now_s, began_s + profile.iteration_s * wall_per_s)
        _sleep_until(ready_s)
        trainer.end_iteration(batch)


def _on_time(due_s: float) -> float:
    now_s = time.monotonic()
    return due_s if 0 <= now_s - due_s <= _LATE_WALL_S else now_s


def _sleep_until(due_s: float) -> None:
    wait_s = due_s - time.monotonic()
    if wait_s > 0:
        time.sleep(wait_s)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs an emulated trainer as the launcher's environment says; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m cluster_exp.runtime.emulated", description=__doc__)
    for stage in ("iteration", "storage", "cpu", "gpu", "network"):
        parser.add_argument(f"--{stage}-s", type=float, required=True, help="simulated seconds per iteration")
    parser.add_argument("--time-scale", type=float, required=True, help="simulated seconds per second")
    parser.add_argument("--min-cycle-s", type=float, default=MIN_CYCLE_WALL_S, help="shortest cycle, in seconds")
    args = parser.parse_args(argv)
    profile = StageProfile(args.iteration_s, args.storage_s, args.cpu_s, args.gpu_s, args.network_s)
    try:
        trainer = Trainer.from_env()
        train(trainer, Emulation(profile, args.time_scale, args.min_cycle_s))
        trainer.close()
    except WorkerLostError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    code = main()
    sys.stderr.flush()
    os._exit(code)  # nothing is left to be torn down, and the GPUs are waited for
