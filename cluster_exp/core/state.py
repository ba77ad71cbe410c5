"""Hot state: what every decision reads, in numpy columns over the slots of live jobs."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import repeat
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from cluster_exp.domain.actions import JobRecord
from cluster_exp.domain.allotment import Allotment
from cluster_exp.domain.columns import FloatColumn, IntColumn
from cluster_exp.domain.errors import InvariantError
from cluster_exp.domain.job import FINAL, HOLDS_GPUS, TRANSITIONS, JobSpec, JobStatus
from cluster_exp.domain.memory import MemoryRules
from cluster_exp.domain.models import SpeedModel
from cluster_exp.domain.profile import StageProfile
from cluster_exp.domain.snapshot import GATED_COLUMNS, Ended, hidden_column

_INT_COLUMNS = (
    "seq",
    "status",  # JobStatus; _EMPTY where there is no job
    "num_gpu",
    "profile_class",
    "group",  # group id, -1 = in none
    "generation",
    "preempted",
    "place",  # number of the GPUs that it holds (`Places`), -1 = none
    "turn",  # its place in the order of turns of its group
    "offset",  # its offset in that
    "mates",  # members of its group, itself included
    "guessed",  # 1 = its profile is a guess
)
_FLOAT_COLUMNS = (*sorted(GATED_COLUMNS), "iteration_s", "counted_until_s", "first_start_s")
_FIRST_SIZE = 64
_EMPTY = -1
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

    def __init__(
        self,
        speed: SpeedModel,
        remembers: bool = True,
        event_cost_s: Callable[[JobSpec], float] = lambda job: 0.0,
        memory: MemoryRules | None = None,
    ) -> None:
        """Without `remembers`, nothing is kept of jobs that ended."""
        self._speed = speed
        self._event_cost_s = event_cost_s
        self.memory = memory
        self._remembers = remembers
        self._size = 0
        self._free: list[int] = []
        self._arrived = 0
        self._classes: dict[tuple[StageProfile, int], int] = {}
        self._codes: dict[str, dict[str, int]] = {"user": {}, "queue": {}}
        self.profiles: tuple[StageProfile, ...] = ()  # by profile class
        self.live: dict[int, LiveJob] = {}  # by slot, in order of arrival
        self.slot_of: dict[str, int] = {}
        self.holders: dict[int, None] = {}  # slots whose job holds GPUs, by launch
        self.leaving: dict[int, None] = {}  # those of them that were told to leave
        self.ended: list[Ended] = []
        self.changed: set[int] = set()
        self.guessed: set[int] = set()  # slots of the jobs whose profile is a guess
        self._aside: set[int] = set()  # slots of live jobs that policies do not see now
        self._ints: dict[str, IntColumn] = {name: np.empty(0, np.int64) for name in _INT_COLUMNS}
        self._floats: dict[str, FloatColumn] = {name: np.empty(0) for name in _FLOAT_COLUMNS}
        self._gated: tuple[Set[str], dict[str, FloatColumn]] | None = None
        self._jobs: IntColumn | None = None
        self._holding: IntColumn | None = None
        self._views: dict[str, NDArray[Any]] = {}
        self._asked: tuple[Sequence[str], IntColumn] | None = None

    def int_column(self, name: str) -> IntColumn:
        """A writable integer column."""
        return self._ints[name]

    def float_column(self, name: str) -> FloatColumn:
        """A writable float column."""
        return self._floats[name]

    def int_view(self, name: str) -> IntColumn:
        """A read-only view of an integer column."""
        if name not in self._views:
            self._views[name] = _read_only(self._ints[name])
        return self._views[name]

    def float_view(self, name: str) -> FloatColumn:
        """A read-only view of a float column."""
        if name not in self._views:
            self._views[name] = _read_only(self._floats[name])
        return self._views[name]

    def columns(self, names: Set[str]) -> Mapping[str, FloatColumn]:
        """Read-only views of the gated columns; those that are not named are NaN in every slot."""
        if self._gated is None or self._gated[0] != names:
            hidden = hidden_column(self._size)
            views = {name: self.float_view(name) if name in names else hidden for name in GATED_COLUMNS}
            self._gated = (names, views)
        return self._gated[1]

    @property
    def jobs(self) -> IntColumn:
        """Slots of the live jobs that policies see, in order of arrival; read-only."""
        if self._jobs is None:
            jobs = np.fromiter(self.live, np.int64, len(self.live))
            self._jobs = jobs[self._ints["status"][jobs] != _EMPTY] if self._aside else jobs
            self._jobs.flags.writeable = False
        return self._jobs

    @property
    def holding(self) -> IntColumn:
        """Slots of the jobs that hold GPUs, by launch; read-only."""
        if self._holding is None:
            self._holding = np.fromiter(self.holders, np.int64, len(self.holders))
            self._holding.flags.writeable = False
        return self._holding

    def add(self, spec: JobSpec, measured: StageProfile | None = None) -> int:
        """Gives an arriving job a slot; with `measured`, that profile counts instead of the stated one.

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
        profile = measured or spec.profile
        counted = profile if self.memory is None else self.memory.counted(spec, profile)
        ints["profile_class"][slot] = self._class_of(counted, spec.num_gpu)
        if measured is None and not spec.profiled:
            ints["guessed"][slot] = 1
            self.guessed.add(slot)
        ints["group"][slot] = ints["place"][slot] = -1
        floats["submit_s"][slot] = spec.submit_s
        floats["priority"][slot] = spec.priority
        floats["user"][slot] = self._code("user", spec.user)
        floats["queue"][slot] = self._code("queue", spec.queue)
        floats["num_cpu"][slot] = spec.num_cpu
        floats["memory_gib"][slot] = spec.memory_gib
        floats["duration_s"][slot] = spec.duration_s
        floats["iterations"][slot] = spec.iterations
        floats["iteration_s"][slot] = self._speed.alone_s(profile)
        floats["first_start_s"][slot] = math.nan
        floats["event_cost_s"][slot] = self._event_cost_s(spec)
        self._arrived += 1
        self._asked = None
        self.live[slot] = LiveJob(spec, [JobStatus.PENDING])
        self.slot_of[spec.job_id] = slot
        self._jobs = None
        self.changed.add(slot)
        self.set_remaining(slot, float(spec.iterations))
        return slot

    def use_profile(self, slot: int, profile: StageProfile, peak_mib: float = 0.0) -> None:
        """From now on a job's columns rest on this profile, which is no guess; a peak of 0 was not measured."""
        ints, floats = self._ints, self._floats
        if self.memory is not None:
            profile = self.memory.counted(self.live[slot].spec, profile, peak_mib)
        ints["profile_class"][slot] = self._class_of(profile, int(ints["num_gpu"][slot]))
        ints["guessed"][slot] = 0
        self.guessed.discard(slot)
        floats["iteration_s"][slot] = self._speed.alone_s(profile)
        self.set_remaining(slot, float(floats["remaining_iterations"][slot]))
        self.changed.add(slot)

    def record(self, slot: int, now_s: float, reason: str) -> JobRecord:
        """What is known of a job that ends now, in the state that it has."""
        spec, starts = self.live[slot].spec, int(self._floats["starts"][slot])
        return JobRecord(
            job_id=spec.job_id,
            num_gpu=spec.num_gpu,
            submit_s=spec.submit_s,
            start_s=float(self._floats["first_start_s"][slot]) if starts else None,
            end_s=now_s,
            executed_s=float(self._floats["executed_s"][slot]),
            duration_s=spec.duration_s,
            preempted=int(self._ints["preempted"][slot]),
            resumed=max(0, starts - 1),
            status=self.status(slot),
            reason=reason,
        )

    def remove(self, slot: int) -> None:
        """Frees the slot of a job that ended."""
        self.guessed.discard(slot)
        self._aside.discard(slot)
        del self.slot_of[self.live.pop(slot).spec.job_id]
        self._ints["status"][slot] = _EMPTY
        self._free.append(slot)
        self._jobs = self._asked = None

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
            if slot not in self.holders:
                self.holders[slot] = None
                self._holding = None
        elif slot in self.holders:
            del self.holders[slot]
            self._holding = None
        if status is JobStatus.PREEMPTING:
            self.leaving[slot] = None
        elif self.leaving:
            self.leaving.pop(slot, None)
        if status in FINAL:
            self._remember(slot, status)

    def set_aside(self, slot: int) -> None:
        """Hides a live job that holds no GPUs from policies: its slot looks empty to them."""
        self._aside.add(slot)
        self._ints["status"][slot] = _EMPTY
        self.changed.add(slot)
        self._jobs = None

    def bring_back(self, slot: int) -> None:
        """Shows it again."""
        self._aside.discard(slot)
        self._ints["status"][slot] = self.status(slot)
        self.changed.add(slot)
        self._jobs = None

    def status(self, slot: int) -> JobStatus:
        """State of the job in a slot."""
        return self.live[slot].history[-1]

    def write_turns(self, members: Mapping[int, int]) -> None:
        """Notes the order of turns of a group: offsets by slot, in that order."""
        turn, offsets, mates = self._ints["turn"], self._ints["offset"], self._ints["mates"]
        for number, (slot, offset) in enumerate(members.items()):
            turn[slot], offsets[slot], mates[slot] = number, offset, len(members)

    def progress(self, job_ids: Sequence[str], remaining_iterations: Sequence[float]) -> None:
        """Notes the same for several jobs; those that hold no GPUs are passed over."""
        if not self.holders:
            return
        index, left = self._slots(job_ids), np.array(remaining_iterations)
        held = (self._ints["place"][index] >= 0) & (index >= 0)
        if not held.all():
            index, left = index[held], left[held]
        self._floats["remaining_iterations"][index] = left
        self._floats["remaining_s"][index] = left * self._floats["iteration_s"][index]
        self._floats["served_s"][index] = (self._floats["iterations"][index] - left) * self._floats["iteration_s"][
            index
        ]

    def _slots(self, job_ids: Sequence[str]) -> IntColumn:
        """Slots of jobs, -1 for those that are not live. A driver may ask for the same ones again and again."""
        if self._asked is None or self._asked[0] is not job_ids:
            slots = map(self.slot_of.get, job_ids, repeat(-1))
            self._asked = (job_ids, np.fromiter(slots, np.int64, len(job_ids)))
        return self._asked[1]

    def set_remaining(self, slot: int, iterations: float) -> None:
        """Notes how many iterations a job still has to do."""
        self._floats["remaining_iterations"][slot] = iterations
        iteration_s = self._floats["iteration_s"][slot]
        self._floats["remaining_s"][slot] = iterations * iteration_s
        self._floats["served_s"][slot] = (self._floats["iterations"][slot] - iterations) * iteration_s

    def count_until(self, now_s: float) -> None:
        """Adds the time since the last call to the executed time of the jobs that hold GPUs."""
        index = self.holding
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
        if status is JobStatus.FINISHED and self._remembers:
            spec = self.live[slot].spec
            service_s = spec.iterations * float(self._floats["iteration_s"][slot])
            self.ended.append(Ended(spec.num_gpu, float(self._floats["executed_s"][slot]), service_s))

    def _class_of(self, profile: StageProfile, num_gpu: int) -> int:
        key = (profile, num_gpu)
        if key not in self._classes:
            self._classes[key] = len(self.profiles)
            self.profiles += (profile,)
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
        self._ints["status"][self._size :] = _EMPTY
        self._gated = None
        self._views.clear()
        self._free.extend(range(size - 1, self._size - 1, -1))
        self._size = size


def _read_only(column: NDArray[_Scalar]) -> NDArray[_Scalar]:
    view = column.view()
    view.flags.writeable = False
    return view


class HeldAllotments(Mapping[int, Allotment]):
    """Allotments of the jobs that hold GPUs, by slot, in order of launch; a view."""

    def __init__(self, jobs: JobTable) -> None:
        self._jobs = jobs

    def __getitem__(self, slot: int) -> Allotment:
        job = self._jobs.live[slot]
        if job.allotment is None:
            raise KeyError(slot)
        return job.allotment

    def __iter__(self) -> Iterator[int]:
        return iter(self._jobs.holders)

    def __len__(self) -> int:
        return len(self._jobs.holders)
