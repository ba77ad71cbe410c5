"""A decision of Weave, as its search takes it."""

from collections.abc import Mapping

import numpy as np

from cluster_exp.domain.columns import FloatColumn, IntColumn
from cluster_exp.domain.resources import MAX_GROUP_SIZE
from cluster_exp.domain.snapshot import Snapshot
from cluster_exp.interleave.patterns import Patterns
from cluster_exp.policies.weave_groups import Groups
from cluster_exp.policies.weave_search import Search

_FLAT = 0.1  # exponent of the job's own length in its weight


def weights(left_s: FloatColumn, num_gpu: IntColumn, price: FloatColumn, gpus: int, to_come: float) -> FloatColumn:
    """What a second of progress alone of each job is worth: by how much it lets jobs end earlier, itself included.

    The job's own end comes a second earlier. Those behind it get its GPUs earlier, of the whole cluster
    `num_gpu * price / gpus` seconds. Behind it are those that would end later if all were served in the order of the
    GPU time that they need, and those that are still to come.

    Args:
        left_s: remaining time alone, in seconds.
        num_gpu: GPUs.
        price: GPU time per second alone, of a job of its kind.
        gpus: GPUs of the cluster.
        to_come: jobs that will arrive before the present ones are done.
    """
    size = num_gpu * left_s * price
    order = np.argsort(size, kind="stable")
    before = np.empty(size.size)
    before[order] = np.cumsum(size[order]) - size[order]
    behind = np.empty(size.size)
    behind[np.argsort(before / gpus + left_s, kind="stable")] = np.arange(size.size - 1, -1, -1)
    weight: FloatColumn = (1.0 / num_gpu + price * (behind + to_come) / gpus) * size**-_FLAT
    return weight


class Problem:
    """Jobs numbered by GPU count, kind and weight, and the patterns that they can form."""

    def __init__(
        self,
        jobs: IntColumn,
        num_gpu: IntColumn,
        kind: IntColumn,
        weight: FloatColumn,
        kept: FloatColumn,
        tables: Mapping[int, Patterns],
    ) -> None:
        """The first five have an element for each job.

        Args:
            jobs: slots.
            num_gpu: GPUs.
            kind: profile classes.
            weight: what a second of progress is worth.
            kept: the share of its group's time that a job's costs leave.
            tables: patterns by GPU count; the kinds of each are the profile classes that occur, ascending.
        """
        widths = np.array(sorted(tables), dtype=np.int64)
        most = max(table.prices.size for table in tables.values())
        width = np.searchsorted(widths, num_gpu)
        local = np.empty(jobs.size, np.int64)
        for i in range(widths.size):
            here = width == i
            local[here] = np.searchsorted(np.unique(kind[here]), kind[here])
        queue = width * most + local
        order = np.lexsort((-weight, queue))
        self._slots = jobs[order]
        self._weight, self._kept = weight[order], kept[order]
        self._widths, self._most = widths, most
        self._queues = np.searchsorted(queue[order], np.arange(widths.size * most + 1)).astype(np.int64)
        rows = [tables[one] for one in widths.tolist()]
        self._tables = np.cumsum([0, *(len(table.members) for table in rows)]).astype(np.int64)
        self._members = np.concatenate([table.members for table in rows]).ravel()
        self._speed = np.concatenate([table.speed for table in rows]).ravel()

    def search(self, gpus: int) -> Search:
        """A search in which all jobs wait and `gpus` GPUs are free."""
        return Search(
            Groups(
                gpus,
                self._widths,
                self._most,
                self._queues,
                self._weight,
                self._kept,
                self._tables,
                self._members,
                self._speed,
            )
        )

    def running(self, snapshot: Snapshot, gpus: int) -> list[IntColumn]:
        """The groups that hold GPUs now, as numbers of jobs; as many of them as `gpus` GPUs suffice for."""
        group = snapshot.group[self._slots]
        held = np.flatnonzero(group >= 0)
        by_group = held[np.argsort(group[held], kind="stable")]
        bounds = np.flatnonzero(np.diff(group[by_group])) + 1
        groups = [part for part in np.split(by_group, bounds) if part.size]
        width = np.array([snapshot.num_gpu[self._slots[group[0]]] for group in groups], dtype=np.int64)
        return groups[: int(np.searchsorted(np.cumsum(width), gpus, side="right"))]

    def groups(self, search: Search) -> list[IntColumn]:
        """The groups of a search, as slots."""
        found = search.store
        members = np.asarray(found.group)[: found.num_groups * MAX_GROUP_SIZE].reshape(-1, MAX_GROUP_SIZE)
        return [self._slots[row[row >= 0]] for row in members]
