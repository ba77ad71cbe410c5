"""Stage profiles: how long one iteration of a job spends on each resource."""

from dataclasses import dataclass

from cluster_exp.domain.resources import Resource


@dataclass(frozen=True, slots=True)
class ProfileKey:
    """What a profile depends on; never a job."""

    model: str  # name of the model
    batch_size: int  # samples per GPU
    num_gpu: int  # ranks
    gpu_type: str = ""  # "" = the cluster's only type
    spread: int = 1  # nodes that the job spans


@dataclass(frozen=True, slots=True)
class StageProfile:
    """Times of one iteration, in seconds, of a job that runs alone.

    The stages may sum to more than `iteration_s` (prefetching overlaps them) or to less (the rest is idle
    time on no resource).
    """

    iteration_s: float  # one iteration alone
    storage_s: float  # reading
    cpu_s: float  # preprocessing
    gpu_s: float  # forward and backward
    network_s: float  # gradient exchange
    memory_mib: float = 0.0  # peak per GPU, where that limits who can share; 0 = it does not

    @property
    def stages(self) -> tuple[float, float, float, float]:
        """Stage times in seconds, indexed by `Resource`."""
        return (self.storage_s, self.cpu_s, self.gpu_s, self.network_s)

    @property
    def busy_s(self) -> float:
        """Sum of the stage times in seconds."""
        return self.storage_s + self.cpu_s + self.gpu_s + self.network_s

    @property
    def idle_s(self) -> float:
        """Part of an iteration alone, in seconds, that uses no resource."""
        return max(0.0, self.iteration_s - self.busy_s)

    def stage_s(self, resource: Resource) -> float:
        """Time of one stage in seconds."""
        return self.stages[resource]
