"""Hot state: what every decision reads, in numpy columns over the slots of live jobs."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from cluster_exp.domain.allotment import Allotment
from cluster_exp.domain.cluster import NodeSpec
from cluster_exp.domain.errors import InvariantError
from cluster_exp.domain.job import FINAL, HOLDS_GPUS, TRANSITIONS, JobSpec, JobStatus
from cluster_exp.domain.models import SpeedModel
from cluster_exp.domain.profile import StageProfile
from cluster_exp.domain.snapshot import GATED_COLUMNS, Ended, FloatColumn, IntColumn, hidden_column

_INT_COLUMNS = ("seq", "status", "num_gpu", "profile_class", "group", "generation", "preempted")
_FLOAT_COLUMNS = (*sorted(GATED_COLUMNS), "iteration_s", "counted_until_s", "first_start_s")
_FIRST_SIZE = 64
_Scalar = TypeVar("_Scalar", bound=np.generic)


@dataclass(slots=True)
class LiveJob:
    """What of a live job no decision reads in bulk."""

    spec: JobSpec
    history: list[JobStatus]  # every state so far, for the error of an illegal transition
    allotment: Allotment | None = None
    cancelled: bool = False


class JobTable:
    """Columns over slots; a slot is given to an arriving job and is free again when the job ended."""

    def __init__(self, speed: SpeedModel) -> None:
        self._speed = speed
        self._size = 0
        self._free: list[int] = []
        self._arrived = 0
        self._classes: dict[tuple[StageProfile, int], int] = {}
        self._codes: dict[str, dict[str, int]] = {"user": {}, "queue": {}}
        self.profiles: list[StageProfile] = []
        self.live: dict[int, LiveJob] = {}  # by slot, in order of arrival
        self.slot_of: dict[str, int] = {}
        self.holders: dict[int, None] = {}  # slots whose job holds GPUs, by launch
        self.leaving: dict[int, None] = {}  # those of them that were told to leave
        self.ended: list[Ended] = []
        self.changed: set[int] = set()
        self._ints: dict[str, IntColumn] = {name: np.empty(0, np.int64) for name in _INT_COLUMNS}
        self._floats: dict[str, FloatColumn] = {name: np.empty(0) for name in _FLOAT_COLUMNS}
        self._hidden = hidden_column(0)
        self._jobs: IntColumn | None = None

    def int_column(self, name: str) -> IntColumn:
        """A writable integer column."""
        return self._ints[name]

    def float_column(self, name: str) -> FloatColumn:
        """A writable float column."""
        return self._floats[name]

    def int_view(self, name: str) -> IntColumn:
        """A read-only view of an integer column."""
        return _read_only(self._ints[name])

    def float_view(self, name: str) -> FloatColumn:
        """A read-only view of a float column."""
        return _read_only(self._floats[name])

    @property
    def hidden(self) -> FloatColumn:
        """A column of NaN, for what a policy did not declare."""
        return self._hidden

    @property
    def jobs(self) -> IntColumn:
        """Slots of all live jobs in order of arrival; read-only."""
        if self._jobs is None:
            self._jobs = np.fromiter(self.live, np.int64, len(self.live))
            self._jobs.flags.writeable = False
        return self._jobs

    def add(self, spec: JobSpec) -> int:
        """Gives an arriving job a slot.

        Raises:
            InvariantError: a live job has the same id.
        """
        if spec.job_id in self.slot_of:
            raise InvariantError(f"job {spec.job_id} arrives twice")
        if not self._free:
            self._grow()
        slot = self._free.pop()
        ints, floats = self._ints, self._floats
        for column in ints.values():
            column[slot] = 0
        for values in floats.values():
            values[slot] = 0.0
        ints["seq"][slot] = self._arrived
        ints["num_gpu"][slot] = spec.num_gpu
        ints["profile_class"][slot] = self._class_of(spec)
        ints["group"][slot] = -1
        floats["submit_s"][slot] = spec.submit_s
        floats["priority"][slot] = spec.priority
        floats["user"][slot] = self._code("user", spec.user)
        floats["queue"][slot] = self._code("queue", spec.queue)
        floats["num_cpu"][slot] = spec.num_cpu
        floats["memory_gib"][slot] = spec.memory_gib
        floats["duration_s"][slot] = spec.duration_s
        floats["iterations"][slot] = spec.iterations
        floats["iteration_s"][slot] = self._speed.alone_s(spec.profile)
        floats["first_start_s"][slot] = math.nan
        self._arrived += 1
        self.live[slot] = LiveJob(spec, [JobStatus.PENDING])
        self.slot_of[spec.job_id] = slot
        self._jobs = None
        self.changed.add(slot)
        self.set_remaining(slot, float(spec.iterations))
        return slot

    def remove(self, slot: int) -> None:
        """Frees the slot of a job that ended."""
        del self.slot_of[self.live.pop(slot).spec.job_id]
        self._free.append(slot)
        self._jobs = None

    def move(self, slot: int, status: JobStatus) -> None:
        """Brings a job into another state.

        Raises:
            InvariantError: no transition leads there; the message has the job's history.
        """
        job = self.live[slot]
        if status not in TRANSITIONS[job.history[-1]]:
            past = " ".join(state.name for state in job.history)
            raise InvariantError(f"job {job.spec.job_id} cannot become {status.name} after {past}")
        job.history.append(status)
        self._ints["status"][slot] = status
        self.changed.add(slot)
        if status in HOLDS_GPUS:
            self.holders[slot] = None
        else:
            self.holders.pop(slot, None)
        if status is JobStatus.PREEMPTING:
            self.leaving[slot] = None
        else:
            self.leaving.pop(slot, None)
        if status in FINAL:
            self._remember(slot, status)

    def status(self, slot: int) -> JobStatus:
        """State of the job in a slot."""
        return self.live[slot].history[-1]

    def set_remaining(self, slot: int, iterations: float) -> None:
        """Notes how many iterations a job still has to do."""
        self._floats["remaining_iterations"][slot] = iterations
        self._floats["remaining_s"][slot] = iterations * self._floats["iteration_s"][slot]

    def count_until(self, now_s: float, slots: Iterable[int]) -> None:
        """Adds the time since the last call to the executed time of jobs that hold GPUs."""
        index = np.fromiter(slots, np.int64)
        executed, last = self._floats["executed_s"], self._floats["counted_until_s"]
        index = index[last[index] < now_s]  # adding no time would still round
        executed[index] = (executed[index] + now_s) - last[index]
        last[index] = now_s
        self._floats["attained_gpu_s"][index] = executed[index] * self._ints["num_gpu"][index]

    def count_one_until(self, now_s: float, slot: int) -> None:
        """The same for one job."""
        executed, last = self._floats["executed_s"], self._floats["counted_until_s"]
        if last[slot] >= now_s:  # adding no time would still round
            return
        executed_s = (executed[slot] + now_s) - last[slot]
        executed[slot] = executed_s
        last[slot] = now_s
        self._floats["attained_gpu_s"][slot] = executed_s * self._ints["num_gpu"][slot]

    def _remember(self, slot: int, status: JobStatus) -> None:
        if status is JobStatus.FINISHED:
            spec = self.live[slot].spec
            service_s = spec.iterations * float(self._floats["iteration_s"][slot])
            self.ended.append(Ended(spec.num_gpu, float(self._floats["executed_s"][slot]), service_s))

    def _class_of(self, spec: JobSpec) -> int:
        key = (spec.profile, spec.num_gpu)
        if key not in self._classes:
            self._classes[key] = len(self.profiles)
            self.profiles.append(spec.profile)
        return self._classes[key]

    def _code(self, column: str, name: str) -> int:
        """Number of a user or queue in order of appearance; -1 for none."""
        codes = self._codes[column]
        return codes.setdefault(name, len(codes)) if name else -1

    def _grow(self) -> None:
        size = max(_FIRST_SIZE, 2 * self._size)
        added = size - self._size
        self._ints = {
            name: np.concatenate([column, np.zeros(added, np.int64)]) for name, column in self._ints.items()
        }
        self._floats = {name: np.concatenate([column, np.zeros(added)]) for name, column in self._floats.items()}
        self._hidden = hidden_column(size)
        self._free.extend(range(size - 1, self._size - 1, -1))
        self._size = size


def _read_only(column: NDArray[_Scalar]) -> NDArray[_Scalar]:
    view = column.view()
    view.flags.writeable = False
    return view


class Nodes:
    """Nodes that are up."""

    def __init__(self) -> None:
        self.specs: dict[int, NodeSpec] = {}

    @property
    def sizes(self) -> dict[int, int]:
        """GPUs by node id, ids ascending."""
        return {node: self.specs[node].num_gpu for node in sorted(self.specs)}
