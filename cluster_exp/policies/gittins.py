"""Gittins index: who is likely to finish soon for the service that it takes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cluster_exp.domain.columns import FloatColumn
from cluster_exp.domain.plan import Plan
from cluster_exp.domain.snapshot import Ended, Snapshot
from cluster_exp.policies.options import FILE, Option
from cluster_exp.policies.parts import fill


def gittins_index(attained_gpu_s: FloatColumn, history_gpu_s: Sequence[float]) -> FloatColumn:
    """Gittins index of each attained service under the empirical distribution of a history.

    G(a) is the supremum over d > 0 of P(S - a <= d | S > a) / E[min(S - a, d) | S > a]: the chance to finish within
    d, for each GPU-second that it is expected to take. It is reached where d ends at an observed service. (Gittins
    1979; as a policy for training jobs: Tiresias, NSDI'19, section 3.3.)

    Args:
        attained_gpu_s: GPU-seconds, any shape (n,).
        history_gpu_s: service of finished jobs in GPU-seconds.

    Returns:
        (n,) floats per GPU-second; 0 where no observed service is larger than the attained one.
    """
    services = np.sort(np.asarray(history_gpu_s, dtype=np.float64))
    sums = np.concatenate([[0.0], np.cumsum(services)])
    index = np.zeros(attained_gpu_s.shape)
    for i, attained in enumerate(attained_gpu_s.tolist()):
        first = int(np.searchsorted(services, attained, side="right"))
        longer = services[first:]
        if longer.size == 0:
            continue
        done = np.arange(1, longer.size + 1)
        spent = sums[first + 1 :] - sums[first] - done * attained + (longer.size - done) * (longer - attained)
        index[i] = float(np.max(done / spent))
    return index


@dataclass(frozen=True)
class Gittins:
    """The largest Gittins index first; of equals, the least attained service, then the first that arrived.

    The distribution is that of a history, if one was given, and of the jobs that finished so far in the run. Without
    either it is least attained service.
    """

    name: str = "gittins"
    history: tuple[Ended, ...] = ()  # earlier jobs
    reads: frozenset[str] = frozenset({"attained_gpu_s"})
    learns: bool = True
    plans_rates: bool = False

    def plan(self, snapshot: Snapshot, memory: Mapping[str, Any]) -> Plan:
        """The first jobs of the order that fit."""
        attained = snapshot.attained_gpu_s[snapshot.jobs]
        known = [ended.service_s * ended.num_gpu for ended in (*self.history, *snapshot.ended)]
        order = snapshot.jobs[np.lexsort((attained, -gittins_index(attained, known)))]
        return Plan(fill(snapshot, order, f"policy={self.name}"), reason=f"history={len(known)}")


OPTIONS: dict[str, Option] = {"history": FILE}  # a job.csv of an earlier run


def gittins(name: str = "gittins", history: tuple[Ended, ...] = ()) -> Gittins:
    """The policy `gittins`."""
    return Gittins(name, history)
