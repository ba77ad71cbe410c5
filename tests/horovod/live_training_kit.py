"""Live runs of the real workloads, and what they leave behind."""

import os
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from cluster_exp.domain.job import JobSpec
from cluster_exp.domain.plan import GroupPlan, Plan
from cluster_exp.domain.profile import StageProfile
from cluster_exp.domain.snapshot import Snapshot
from cluster_exp.runtime.names import file_name
from cluster_exp.runtime.trainer.launch_folder import newest_folder
from tests.runtime.live_kit import job

PROFILE = StageProfile(1.0, 0.25, 0.25, 0.25, 0.25)


def real(name: str, options: list[str], num_gpu: int, iterations: int, submit_s: float = 0.0) -> JobSpec:
    """A job that trains a workload; its id is the workload's name."""
    plain = job(name, num_gpu, iterations, submit_s, PROFILE)
    return replace(plain, command=("{python}", "-m", f"workloads.{name}", *options))


def checkpoint_of(folder: Path, job_id: str, rank: int) -> Path:
    return newest_folder(folder / file_name(job_id)) / f"rank-{rank}.pt"


def ranks_of(job_id: str) -> dict[int, int]:
    """Process ids of a job's ranks, by rank."""
    found = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            environ = (entry / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        env = dict(item.partition(b"=")[::2] for item in environ)
        if env.get(b"CLUSTER_EXP_JOB_ID", b"").decode() == job_id and b"CLUSTER_EXP_RANK" in env:
            found[int(env[b"CLUSTER_EXP_RANK"])] = int(entry.name)
    return found


@dataclass
class Killer:
    """Kills a rank of a job once, as soon as something is there."""

    job_id: str
    rank: int
    ready: Callable[[], bool]
    killed: int = 0

    def __call__(self, _: object) -> None:
        pid = ranks_of(self.job_id).get(self.rank)
        if not self.killed and pid is not None and self.ready():
            os.kill(pid, signal.SIGKILL)
            self.killed = pid


@dataclass(frozen=True)
class Mover:
    """Lets all jobs but the blocker share a GPU, and moves them to the other node's when one did `every` more.

    A move takes them off their GPU first. While they are off, the blocker is started or stopped: where it sits, on
    the first node, they cannot go.
    """

    total: int  # iterations of each job
    every: int
    moves: int
    blocker: str = "blocker"
    name: str = "mover"
    reads: frozenset[str] = frozenset({"remaining_s"})
    learns: bool = False
    plans_rates: bool = False

    def plan(self, snapshot: Snapshot, memory: Mapping[str, int]) -> Plan:
        """The blocker is the job that arrived first."""
        first, *others = (int(slot) for slot in snapshot.jobs)
        moved, due = memory.get("moved", 0), memory.get("due", 0)
        left = [int(snapshot.remaining_s[slot]) for slot in others]  # an iteration is a second
        least = memory.get("least", 0)
        holders = [slot for slot in others if snapshot.group[slot] >= 0]
        if due and not holders:
            moved, due, least = moved + 1, 0, min(left, default=0)
        elif not due and moved < self.moves and left and min(left) <= (least or self.total) - self.every:
            due = 1
        groups = [GroupPlan((first,))] if moved % 2 == 0 else []
        if others and not due:
            groups.append(GroupPlan(tuple(others), tuple(range(len(others)))))
        return Plan(tuple(groups), memory={"moved": moved, "due": due, "least": least})
