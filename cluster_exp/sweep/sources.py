"""Where the jobs and the nodes of a sweep's runs come from."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cluster_exp.domain.cluster import ClusterSpec
from cluster_exp.domain.errors import InputError
from cluster_exp.domain.job import JobSpec
from cluster_exp.inputs.clusters import read_cluster
from cluster_exp.inputs.generate import GeneratorConfig, generate_trace
from cluster_exp.inputs.profiles import default_profiles
from cluster_exp.inputs.traces import read_trace


@dataclass(frozen=True, slots=True)
class ClusterSource:
    """A cluster file."""

    name: str  # unique in a sweep
    given: str  # the path as the sweep's file writes it
    path: Path
    num_gpu: int  # GPUs of the whole cluster

    def read(self) -> ClusterSpec:
        """The cluster. Raises InputError."""
        return read_cluster(self.path)

    def words(self) -> str:
        """What it is, in words that do not depend on where the sweep's file lies."""
        return f"{self.name} = {self.given}"


@dataclass(frozen=True, slots=True)
class FileTrace:
    """A trace file."""

    name: str  # unique in a sweep
    given: str  # the path as the sweep's file writes it
    path: Path

    @property
    def needs_seed(self) -> bool:
        """Whether the grid's seed decides what jobs there are."""
        return False

    def jobs(self, cluster: ClusterSpec, seed: int, *, drop_unfit: bool) -> tuple[JobSpec, ...]:
        """The jobs, by submit time. Raises InputError."""
        return read_trace(self.path, default_profiles(), cluster, drop_unfit=drop_unfit).jobs

    def words(self) -> str:
        """What it is, in words that do not depend on where the sweep's file lies."""
        return f"{self.name} = {self.given}"

    def origin(self, seed: int) -> str:
        """What run.json says of it."""
        return str(self.path)


@dataclass(frozen=True, slots=True)
class GeneratedTrace:
    """A trace that each run makes anew from a seed, as `generate` does."""

    name: str  # unique in a sweep
    num_jobs: int
    shape: tuple[tuple[str, float], ...]  # other fields of `GeneratorConfig`
    seed: int | None  # None = the grid's
    cluster: ClusterSource | None  # to which the load refers; None = the run's own

    @property
    def needs_seed(self) -> bool:
        """Whether the grid's seed decides what jobs there are."""
        return self.seed is None

    def config(self, num_gpu: int, seed: int) -> GeneratorConfig:
        """The generator's settings for a run on `num_gpu` GPUs. Raises InputError that names the field."""
        gpus = num_gpu if self.cluster is None else self.cluster.num_gpu
        shape: dict[str, Any] = dict(self.shape)
        return GeneratorConfig(self.num_jobs, seed if self.seed is None else self.seed, gpus, **shape)

    def largest(self, num_gpu: int) -> int:
        """GPUs of the largest job that it can have in a run on `num_gpu` GPUs. Raises InputError as `config`."""
        config = self.config(num_gpu, 0)
        return max(size for size, weight in config.gpu_weights.items() if weight and size <= config.cluster_gpus)

    def jobs(self, cluster: ClusterSpec, seed: int, *, drop_unfit: bool) -> tuple[JobSpec, ...]:
        """The jobs, by submit time. Raises InputError when none is left."""
        made = generate_trace(self.config(cluster.num_gpu, seed))
        jobs = tuple(job for job in made if job.num_gpu <= cluster.num_gpu) if drop_unfit else made
        if not jobs:
            raise InputError(f"all {len(made)} jobs are too large for the cluster", where=self.name)
        return jobs

    def words(self) -> str:
        """What it is, in words that do not depend on where the sweep's file lies."""
        settings = [f"jobs={self.num_jobs}", *(f"{name}={value:.15g}" for name, value in self.shape)]
        settings.append(f"seed={'the grid' if self.seed is None else self.seed}")
        settings.append(f"cluster={'own' if self.cluster is None else self.cluster.given}")
        return f"{self.name} = generate {' '.join(settings)}"

    def origin(self, seed: int) -> str:
        """What run.json says of it."""
        return self.words().replace("seed=the grid", f"seed={seed}")


TraceSource = FileTrace | GeneratedTrace
