"""What a policy sees: read-only columns over the slots of live jobs."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from cluster_exp.domain.allotment import Allotment
from cluster_exp.domain.cluster import ClusterSpec
from cluster_exp.domain.columns import FloatColumn, IntColumn
from cluster_exp.domain.memory import MemoryRules
from cluster_exp.domain.models import SpeedModel, Trial
from cluster_exp.domain.profile import StageProfile

# Columns that every policy may read, and columns that it must declare in `Policy.reads`.
OPEN_COLUMNS = frozenset({"seq", "status", "num_gpu", "profile_class", "group"})
GATED_COLUMNS = frozenset(
    {
        "submit_s",
        "executed_s",
        "attained_gpu_s",
        "starts",
        "priority",
        "user",
        "queue",
        "num_cpu",
        "memory_gib",
        "duration_s",
        "iterations",
        "remaining_iterations",
        "remaining_s",
        "served_s",
        "event_cost_s",
    }
)
# Columns from which a job's length can be told: a policy for unknown durations declares none of them.
DURATION_COLUMNS = frozenset({"duration_s", "iterations", "remaining_iterations", "remaining_s"})
# Those of them that change while a job runs.
PROGRESS_COLUMNS = frozenset({"remaining_iterations", "remaining_s", "served_s"})


@dataclass(frozen=True, slots=True)
class Ended:
    """A job that finished since the run began, for policies that learn from history."""

    num_gpu: int
    executed_s: float  # time in which it held GPUs
    service_s: float  # its length alone: iterations times seconds per iteration alone


@dataclass(frozen=True)
class Snapshot:
    """The cluster and its live jobs at one instant; valid until `plan` returns.

    Columns are indexed by slot; `jobs` lists the slots in use. A column that the policy did not declare is NaN
    in every slot. Arrays cannot be written to.
    """

    now_s: float
    jobs: IntColumn  # slots of all live jobs, by arrival
    seq: IntColumn  # arrival number of the job in each slot: never reused, unlike slots
    status: IntColumn  # JobStatus
    num_gpu: IntColumn
    profile_class: IntColumn  # index into `profiles`
    group: IntColumn  # group id while the job holds GPUs, else -1
    columns: Mapping[str, FloatColumn]  # the gated columns, float64
    profiles: tuple[StageProfile, ...]  # by profile class
    cluster: ClusterSpec  # nodes that are up
    speed: SpeedModel
    trial: Callable[[], Trial]  # an empty imagined cluster under the placement in force
    node_ids: tuple[int, ...] = ()  # ids of the nodes of `cluster`, ascending
    allotments: Mapping[int, Allotment] = field(default_factory=dict)  # of the jobs that hold GPUs, by slot
    ended: Sequence[Ended] = ()  # jobs that finished so far, for policies that declare `learns`
    changed: frozenset[int] = frozenset()  # slots whose job arrived, started or left its GPUs since last time
    # By slot, 1 where the job's profile is a guess: it has to be alone on its GPUs until it was measured.
    memory: MemoryRules | None = None  # which jobs fit on the same GPUs; None = all do
    guessed: IntColumn = field(default_factory=lambda: np.zeros(0, np.int64))

    def column(self, name: str) -> FloatColumn:
        """One gated column: float64, by slot. Raises KeyError for a name that is none."""
        return self.columns[name]

    @property
    def submit_s(self) -> FloatColumn:
        """Submit times in seconds."""
        return self.columns["submit_s"]

    @property
    def executed_s(self) -> FloatColumn:
        """Seconds in which each job has held GPUs."""
        return self.columns["executed_s"]

    @property
    def attained_gpu_s(self) -> FloatColumn:
        """Attained service: `executed_s` times GPUs."""
        return self.columns["attained_gpu_s"]

    @property
    def remaining_s(self) -> FloatColumn:
        """Remaining service alone: remaining iterations times seconds per iteration alone."""
        return self.columns["remaining_s"]

    @property
    def served_s(self) -> FloatColumn:
        """What a job has got so far: iterations done times seconds per iteration alone. It tells no job's length."""
        return self.columns["served_s"]

    @property
    def event_cost_s(self) -> FloatColumn:
        """Seconds that a running job loses whenever anything happens: 0 but in published accounting."""
        return self.columns["event_cost_s"]

    @property
    def duration_s(self) -> FloatColumn:
        """The length that the user or the log states, in seconds."""
        return self.columns["duration_s"]


def hidden_column(size: int) -> FloatColumn:
    """A read-only column of NaN, for what a policy did not declare."""
    column = np.full(size, math.nan)
    column.flags.writeable = False
    return column
