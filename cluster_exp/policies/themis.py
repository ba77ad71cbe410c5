"""Themis (NSDI'20): finish-time fairness, as a share of time for each job."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np

from cluster_exp.domain.columns import FloatColumn, IntColumn
from cluster_exp.domain.plan import Plan
from cluster_exp.domain.snapshot import Snapshot
from cluster_exp.policies.options import choice
from cluster_exp.policies.parts import fill, still_live

_CLOSE = 0.01  # who is ahead of others by less than such a part is ahead by lot
_GOLDEN = (math.sqrt(5) - 1) / 2  # its multiples, modulo 1, spread evenly
_NEVER_RAN = 1e9  # what a share counts for a job that never ran; else it is divided by the executed seconds
_BISECTIONS = 64


class Units(Enum):
    """In what the time that a job would need alone is counted."""

    SECONDS = "seconds"
    ITERATIONS = "iterations"  # as published, where a job's seconds are divided by its iterations


@dataclass(frozen=True, slots=True)
class Ratios:
    """Finish-time ratios (`waited_s` + `work_s` / share) / `alone`, an element a job."""

    waited_s: FloatColumn  # since the submission
    work_s: FloatColumn  # remaining, alone
    alone: FloatColumn  # time from start to end with an equal part of the cluster
    num_gpu: IntColumn

    def shares(self, num_gpu: int) -> FloatColumn:
        """Shares of time, in [0, 1], with which the largest ratio is as small as it can be.

        That leaves most of them open: whoever needs little for it gets as much as the others who do, an equal share.

        Args:
            num_gpu: GPUs of the cluster: shares times GPUs sum to at most that.
        """
        least = self.least_shares(self.largest(num_gpu))
        if int(self.num_gpu.sum()) <= num_gpu:
            return np.ones(least.size)
        order = np.argsort(least, kind="stable")
        ascending, gpus = least[order], self.num_gpu[order]
        # The first k jobs share equally what the others, who need more than that, leave.
        level = (num_gpu - float(ascending @ gpus) + np.cumsum(ascending * gpus)) / np.cumsum(gpus)
        k = int(np.argmax(level <= np.append(ascending[1:], math.inf)))
        return np.clip(least, level[k], 1.0)

    def largest(self, num_gpu: int) -> float:
        """The least largest ratio. A larger one needs smaller shares of every job: it is found by bisection."""
        finite = self.alone > 0
        alone = self.alone[finite]
        low = float(((self.waited_s + self.work_s)[finite] / alone).max(initial=0.0))  # someone's share would pass 1
        if float(self.least_shares(low) @ self.num_gpu) <= num_gpu:
            return low
        equal = self.work_s * self.num_gpu * (self.num_gpu.size / num_gpu)  # with num_gpu / jobs GPUs for each
        high = float(((self.waited_s + equal)[finite] / alone).max())
        for _ in range(_BISECTIONS):
            middle = (low + high) / 2
            if not low < middle < high:
                break
            if float(self.least_shares(middle) @ self.num_gpu) > num_gpu:
                low = middle
            else:
                high = middle
        return high

    def least_shares(self, ratio: float) -> FloatColumn:
        """The least shares that bring every ratio down to this one, at most 1."""
        time_s = ratio * self.alone - self.waited_s
        enough = time_s > self.work_s
        return np.where(enough, self.work_s / np.where(enough, time_s, 1.0), 1.0)


@dataclass(frozen=True)
class Themis:
    """Least finish-time ratio for the worst job, at every plan, as in the simulator published with Muri (SIGCOMM'22).

    The ratio is the time from submission to end over the same with an equal part of the cluster (section 3 of the
    paper). It gives each job a share of time; jobs run by share over executed time, then by how much less than their
    shares they ran, and pass over what does not fit.

    Many jobs, above all those that never ran, have shares that differ by next to nothing. Exact differences would
    serve them by length, so that at last only long ones are left and none of them ends for long. The published
    solver's own errors decided between them; here a lot does, the same for a job at every plan.

    Memory: parallel lists over the live jobs: `seq`; `alone`, what they did so far in time with an equal part;
    `entitled_s`, their shares integrated over time; `share` and `equal_part` since the last plan; `remaining`
    iterations then; and `now_s`, its time.
    """

    name: str = "themis"
    units: Units = Units.SECONDS
    reads: frozenset[str] = frozenset({"submit_s", "executed_s", "remaining_iterations", "remaining_s"})
    learns: bool = False
    plans_rates: bool = False

    def plan(self, snapshot: Snapshot, memory: Mapping[str, Any]) -> Plan:
        """The jobs whose shares are furthest ahead of what they got."""
        jobs = snapshot.jobs
        alone, entitled_s = self._so_far(snapshot, memory)
        equal_part = _equal_part(snapshot)
        remaining_s = snapshot.remaining_s[jobs]
        needed = alone + self._work(snapshot, snapshot.column("remaining_iterations"))[jobs] / equal_part
        ratios = Ratios(snapshot.now_s - snapshot.submit_s[jobs], remaining_s, needed, snapshot.num_gpu[jobs])
        share = ratios.shares(snapshot.cluster.num_gpu)
        executed_s = snapshot.executed_s[jobs]
        ahead = share * np.where(executed_s > 0, 1.0 / np.where(executed_s > 0, executed_s, 1.0), _NEVER_RAN)
        ahead *= 1.0 + _CLOSE * _lots(snapshot.seq[jobs])
        order = np.lexsort((-share, executed_s - entitled_s, -ahead))
        return Plan(
            fill(snapshot, jobs[order], f"policy={self.name}"),
            reason=f"jobs={jobs.size}",
            memory={
                "now_s": snapshot.now_s,
                "seq": snapshot.seq[jobs].tolist(),
                "alone": alone.tolist(),
                "entitled_s": entitled_s.tolist(),
                "share": share.tolist(),
                "equal_part": equal_part.tolist(),
                "remaining": snapshot.column("remaining_iterations")[jobs].tolist(),
            },
        )

    def _so_far(self, snapshot: Snapshot, memory: Mapping[str, Any]) -> tuple[FloatColumn, FloatColumn]:
        """`alone` and `entitled_s` of the live jobs up to now, by arrival."""
        alone, entitled_s = np.zeros(snapshot.seq.size), np.zeros(snapshot.seq.size)
        if memory:
            slots = still_live(snapshot, memory["seq"])
            live = np.isin(memory["seq"], snapshot.seq[slots])
            last = {key: np.array(memory[key])[live] for key in ("alone", "entitled_s", "share", "equal_part")}
            done = np.array(memory["remaining"])[live] - snapshot.column("remaining_iterations")[slots]
            work = np.zeros(snapshot.seq.size)
            work[slots] = done
            alone[slots] = last["alone"] + self._work(snapshot, work)[slots] / last["equal_part"]
            entitled_s[slots] = last["entitled_s"] + last["share"] * (snapshot.now_s - memory["now_s"])
        return alone[snapshot.jobs], entitled_s[snapshot.jobs]

    def _work(self, snapshot: Snapshot, iterations: FloatColumn) -> FloatColumn:
        """Iterations, by slot, in the units of the time alone."""
        if self.units is Units.ITERATIONS:
            return iterations
        alone_s = np.array([snapshot.speed.alone_s(profile) for profile in snapshot.profiles])
        return iterations * alone_s[snapshot.profile_class] if alone_s.size else iterations


def _lots(seq: IntColumn) -> FloatColumn:
    """A number from -1 to 1 for each arrival number: as good as drawn, and always the same."""
    lots: FloatColumn = 2.0 * (seq.astype(np.float64) * _GOLDEN % 1.0) - 1.0
    return lots


def _equal_part(snapshot: Snapshot) -> FloatColumn:
    """What of its GPUs each live job would have, at most all, if every job had an equal number; by arrival."""
    jobs = snapshot.jobs
    equal = -(-snapshot.cluster.num_gpu // max(1, jobs.size))
    return np.minimum(1.0, equal / snapshot.num_gpu[jobs])


OPTIONS = {"units": choice({units.value: units for units in Units})}


def themis(name: str = "themis", units: Units = Units.SECONDS) -> Themis:
    """Finish-time fairness; `units` says in what the time alone is counted."""
    return Themis(name, units)
