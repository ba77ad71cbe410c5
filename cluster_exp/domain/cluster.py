"""Clusters: named nodes with GPUs."""

import math
from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True, slots=True)
class NodeSpec:
    """One node."""

    name: str  # unique in a cluster
    num_gpu: int  # GPUs, at least 1
    host: str = "127.0.0.1"  # address of its worker
    gpu_type: str = ""
    gpu_memory_mib: float = math.nan  # per GPU; NaN = not stated
    num_cpu: int = 0  # cores; 0 = not stated
    memory_gib: float = math.nan  # NaN = not stated
    switch: int = 0  # id of its switch


@dataclass(frozen=True)
class ClusterSpec:
    """All nodes, in the order of their ids (a node's id is its index)."""

    nodes: tuple[NodeSpec, ...]

    @cached_property
    def num_gpu(self) -> int:
        """GPUs of the whole cluster."""
        return sum(node.num_gpu for node in self.nodes)
