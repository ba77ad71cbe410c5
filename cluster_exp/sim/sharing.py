"""GPUs that jobs of several groups hold at once: who runs beside whom, and how fast."""

import math
from collections.abc import Iterable, Sequence

from cluster_exp.domain.allotment import Allotment
from cluster_exp.domain.job import JobSpec
from cluster_exp.domain.models import SpeedModel
from cluster_exp.domain.profile import StageProfile

_CROWDED = 2  # beside another opportunistic job an iteration takes this many times as long


class Neighbours:
    """Running jobs that asked for less than whole GPUs, and the GPUs on which they meet."""

    def __init__(self) -> None:
        self._gpus: dict[str, tuple[tuple[int, int], ...]] = {}
        self._group_of: dict[str, int] = {}
        self._jobs: dict[tuple[int, int], list[str]] = {}
        self._touched: dict[int, None] = {}

    def start(self, job_id: str, group_id: int, allotment: Allotment) -> None:
        """A job was launched. One that has its GPUs to itself can have no neighbours, and is not kept."""
        if all(share.fraction >= 1.0 for share in allotment.shares):
            return
        self._gpus[job_id] = allotment.gpus
        self._group_of[job_id] = group_id
        for gpu in allotment.gpus:
            self._jobs.setdefault(gpu, []).append(job_id)
        self._touch(allotment.gpus)

    def regroup(self, group_id: int, job_ids: Iterable[str]) -> None:
        """Jobs became members of a group."""
        for job_id in job_ids:
            if job_id in self._gpus and self._group_of[job_id] != group_id:
                self._group_of[job_id] = group_id
                self._touch(self._gpus[job_id])

    def leave(self, job_id: str) -> None:
        """A job left its GPUs."""
        gpus = self._gpus.pop(job_id, ())
        self._group_of.pop(job_id, None)
        for gpu in gpus:
            self._jobs[gpu].remove(job_id)
        self._touch(gpus)

    def of(self, job_id: str) -> list[str]:
        """Jobs of other groups on one or more of its GPUs, each once."""
        if job_id not in self._gpus:
            return []
        group_id = self._group_of[job_id]
        found = {other: None for gpu in self._gpus[job_id] for other in self._jobs[gpu]}
        return [other for other in found if self._group_of[other] != group_id]

    def take_touched(self) -> dict[int, None]:
        """Ids of the groups whose members' neighbours changed since the last call."""
        touched, self._touched = self._touched, {}
        return touched

    def _touch(self, gpus: Iterable[tuple[int, int]]) -> None:
        for gpu in gpus:
            for job_id in self._jobs[gpu]:
                self._touched[self._group_of[job_id]] = None


def leftover_s(speed: SpeedModel, job: JobSpec, iteration_s: float, neighbours: Sequence[JobSpec]) -> float:
    """Seconds per iteration of a job in what the jobs of other groups leave of its GPUs.

    A guaranteed job (priority 0) is never slowed. An opportunistic one takes as long as its most demanding
    neighbour lets it (AntMan, OSDI'20; the rule is that of the simulator published with Muri, SIGCOMM'22).

    Args:
        speed: how long an iteration of a neighbour takes.
        job: the job.
        iteration_s: what it takes without the neighbours.
        neighbours: jobs of other groups on its GPUs.
    """
    if job.priority == 0:
        return iteration_s
    slowest_s = iteration_s
    for other in neighbours:
        if other.priority == 0:
            beside_s = iterations_beside(job.profile, other.profile) * speed.alone_s(other.profile)
        else:
            beside_s = _CROWDED * iteration_s
        slowest_s = max(slowest_s, beside_s)
    return slowest_s


def iterations_beside(job: StageProfile, other: StageProfile) -> int:
    """Iterations of `other` that pass while `job`, in the time that each leaves of a resource, does one of its own.

    Storage and CPU count as one stage. A stage uses its resource while `other` is at its two other stages; what is
    left of the last such gap serves the next stage. Where `other` leaves a resource no time at all, the two take
    turns on it.
    """
    load, compute, exchange = job.storage_s + job.cpu_s, job.gpu_s, job.network_s
    other_load, other_compute, other_exchange = other.storage_s + other.cpu_s, other.gpu_s, other.network_s
    passed, rest = _gaps(load, other_compute + other_exchange, other)
    if rest > 0:
        passed += 1
        compute -= min(compute, other_exchange, other_compute + other_exchange - rest)
    more, rest = _gaps(compute, other_load + other_exchange, other)
    passed += more
    if rest > 0:
        passed += 1
        if rest < other_load:
            exchange -= min(exchange, other_load + other_compute - rest)
    more, rest = _gaps(exchange, other_load + other_compute, other)
    passed += more
    return passed + 1 if rest > other_load else passed


def _gaps(stage_s: float, gap_s: float, other: StageProfile) -> tuple[int, float]:
    """How many whole gaps a stage fills, and how much of one more it needs."""
    if gap_s <= 0:
        gap_s = other.busy_s
    if gap_s <= 0:
        return 0, 0.0
    return math.floor(stage_s / gap_s), stage_s % gap_s
