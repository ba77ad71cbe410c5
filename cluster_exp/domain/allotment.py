"""Allotments: which GPUs a job has."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class NodeShare:
    """A job's part of one node."""

    node: int  # node id: index into the cluster's nodes
    gpus: tuple[int, ...]  # GPU ids on that node, ascending
    fraction: float = 1.0  # share of each GPU that is asked for
    memory_mib: float = 0.0  # GPU memory asked for per GPU; 0 = not stated


@dataclass(frozen=True, slots=True)
class Allotment:
    """A job's GPUs, by node id ascending."""

    shares: tuple[NodeShare, ...]

    @property
    def num_gpu(self) -> int:
        """GPUs in all."""
        return sum(len(share.gpus) for share in self.shares)

    @property
    def parts(self) -> list[tuple[int, int]]:
        """(node id, number of GPUs) pairs, ascending."""
        return [(share.node, len(share.gpus)) for share in self.shares]

    @property
    def gpus(self) -> tuple[tuple[int, int], ...]:
        """(node id, GPU id) pairs, ascending."""
        return tuple((share.node, gpu) for share in self.shares for gpu in share.gpus)

    @property
    def lead_node(self) -> int:
        """Lowest node id: its worker arbitrates the turns of the job."""
        return self.shares[0].node
