"""GPU memory: which jobs fit on the same GPUs."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from cluster_exp.domain.job import JobSpec
from cluster_exp.domain.profile import StageProfile


@dataclass(frozen=True, slots=True)
class MemoryRules:
    """How much there is, and what counts for jobs of which nothing is known."""

    gpu_mib: float  # of the smallest GPU of the cluster
    assumed_mib: float | None = None  # None = a job of unknown memory shares with nobody

    def counted(self, spec: JobSpec, profile: StageProfile, measured_mib: float = 0.0) -> StageProfile:
        """The profile with the memory that counts: measured, else stated, else assumed, else infinite."""
        if measured_mib > 0:
            return replace(profile, memory_mib=measured_mib)
        if not math.isnan(spec.gpu_memory_mib):
            return replace(profile, memory_mib=spec.gpu_memory_mib)
        return replace(profile, memory_mib=math.inf if self.assumed_mib is None else self.assumed_mib)

    def fit(self, profiles: Sequence[StageProfile]) -> bool:
        """Whether jobs of these profiles can share a GPU; one alone always can."""
        return len(profiles) < 2 or sum(profile.memory_mib for profile in profiles) <= self.gpu_mib
