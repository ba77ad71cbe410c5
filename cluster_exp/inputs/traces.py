"""Traces: the jobs of a run, from a CSV file."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path
from typing import Any

from cluster_exp.domain.cluster import ClusterSpec
from cluster_exp.domain.errors import InputError
from cluster_exp.domain.job import JobSpec
from cluster_exp.domain.profile import ProfileKey, StageProfile
from cluster_exp.inputs.profiles import ProfileTable
from cluster_exp.inputs.stages import (
    BATCH,
    GPUS,
    ITERATION_COLUMN,
    POSITIVE_MS,
    STAGE_COLUMNS,
    TIME_MS,
    read_stages,
    stage_columns,
)
from cluster_exp.inputs.table import Row, Table
from cluster_exp.inputs.text import Span, nearest, shown

REQUIRED_COLUMNS = (
    "job_id",
    "num_gpu",
    "submit_time",
    "iterations",
    "model_name",
    "batch_size",
    "duration",
)
UNSTATED_COLUMNS = ("gpu_memory_mib", "num_cpu", "memory_gib")  # numbers above 0; empty = not stated
OPTIONAL_COLUMNS = ("user", "queue", "gpu_type", "gpu_fraction", "priority", *UNSTATED_COLUMNS)
IGNORED_COLUMNS = ("interval",)

_ITERATIONS = Span(0, 1e12)
_PRIORITY = Span(0, 1000)
_FRACTION = Span(0, 1, above=True)
_AMOUNT = {
    "gpu_memory_mib": Span(0, 1e9, above=True, unit="MiB"),
    "num_cpu": Span(0, 1e9, above=True),
    "memory_gib": Span(0, 1e9, above=True, unit="GiB"),
}
_JOB_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:@+=-]{0,199}")


@dataclass(frozen=True, slots=True)
class Trace:
    """The jobs of a run."""

    path: Path  # where they come from
    jobs: tuple[JobSpec, ...]  # by submit time; equal times in the order of the file
    warnings: tuple[str, ...] = ()  # one line each
    dropped: int = 0  # jobs left out because the cluster is too small


def read_trace(
    path: str | Path,
    profiles: ProfileTable,
    cluster: ClusterSpec | None = None,
    *,
    drop_unfit: bool = False,
    admit_unprofiled: bool = False,
) -> Trace:
    """The trace in a CSV file; columns and units (milliseconds) are described in docs/inputs.md.

    A job without an iteration time or stage times takes them from `profiles`. With a cluster, every job must
    fit into it; `drop_unfit` leaves out those that do not, and counts them. With `admit_unprofiled`, a
    job of which `profiles` know nothing gets a guess (`JobSpec.profiled` is False) instead of an error.

    Raises:
        InputError: at the first unusable field, as file:line:field; also when no job is left.
    """
    table = Table(Path(path))
    known = {*REQUIRED_COLUMNS, *OPTIONAL_COLUMNS, *IGNORED_COLUMNS, *STAGE_COLUMNS}
    strangers = table.check_columns(REQUIRED_COLUMNS, known)
    reader = _JobReader(stage_columns(table), profiles, _capacity(cluster), drop_unfit, admit_unprofiled)
    jobs: list[JobSpec] = []
    dropped = 0
    first_line: dict[str, int] = {}
    for row in table:
        job = reader.read(row)
        if (line := first_line.setdefault(job.job_id, row.line)) != row.line:
            raise row.error("job_id", f"job_id: {shown(job.job_id)} is the id of line {line} too; ids are unique")
        if reader.fits(row, job.num_gpu, job.gpu_type):
            jobs.append(job)
        else:
            dropped += 1
    if not jobs:
        reason = f"all {dropped} jobs are too large for the cluster" if dropped else "has no jobs"
        raise InputError(f"the trace {reason}", where=f"{table.path}:{table.header_line + 1}:1")
    jobs.sort(key=attrgetter("submit_s"))
    return Trace(table.path, tuple(jobs), _warnings(table, strangers, dropped), dropped)


def _warnings(table: Table, strangers: tuple[str, ...], dropped: int) -> tuple[str, ...]:
    warnings = []
    if strangers:
        names = ", ".join(shown(name)[1:-1] or "(unnamed)" for name in strangers)
        warnings.append(f"{table.path}:{table.header_line}: columns that are not known are ignored: {names}")
    if dropped:
        warnings.append(f"{table.path}: {dropped} jobs left out that are too large for the cluster")
    return tuple(warnings)


def _capacity(cluster: ClusterSpec | None) -> dict[str, int] | None:
    """GPUs by type of GPU, "" for all; only "" where the cluster states no types. None without a cluster."""
    if cluster is None:
        return None
    capacity = {"": cluster.num_gpu}
    for node in cluster.nodes:
        if node.gpu_type:
            capacity[node.gpu_type] = capacity.get(node.gpu_type, 0) + node.num_gpu
    return capacity


@dataclass(slots=True)
class _JobReader:
    columns: tuple[str, ...]  # of stage times
    profiles: ProfileTable
    capacity: Mapping[str, int] | None
    drop_unfit: bool
    admit_unprofiled: bool
    shared: dict[StageProfile, StageProfile] = field(default_factory=dict)  # equal profiles are one object

    def read(self, row: Row) -> JobSpec:
        """The job of a row. Raises InputError."""
        job_id = row.text("job_id")
        if not _JOB_ID.fullmatch(job_id):
            allowed = "letters, digits and any of _ . : @ + = - (at most 200, the first a letter, digit or _)"
            raise row.error("job_id", f"job_id: {shown(job_id)}; allowed: {allowed}")
        num_gpu = row.integer("num_gpu", GPUS)
        submit_s = row.number("submit_time", TIME_MS) / 1000
        iterations = row.integer("iterations", _ITERATIONS)
        model = row.name("model_name")
        if not model:
            raise row.error("model_name", "model_name: is empty; a name is needed")
        batch_size = row.integer("batch_size", BATCH)
        duration_s = row.number("duration", POSITIVE_MS) / 1000
        gpu_type = row.name("gpu_type")
        profile = self.profile(row, ProfileKey(model, batch_size, num_gpu, gpu_type))
        guess = StageProfile(duration_s / max(1, iterations), 0.0, 0.0, duration_s / max(1, iterations), 0.0)
        stated: dict[str, Any] = {
            name: row.number(name, _AMOUNT[name]) for name in UNSTATED_COLUMNS if row.text(name)
        }
        return JobSpec(
            job_id=job_id,
            num_gpu=num_gpu,
            submit_s=submit_s,
            iterations=iterations,
            duration_s=duration_s,
            model=model,
            batch_size=batch_size,
            profile=guess if profile is None else profile,
            profiled=profile is not None,
            user=row.name("user"),
            queue=row.name("queue") or "default",
            priority=row.integer("priority", _PRIORITY) if row.text("priority") else 0,
            gpu_type=gpu_type,
            gpu_fraction=row.number("gpu_fraction", _FRACTION) if row.text("gpu_fraction") else 1.0,
            **stated,
        )

    def profile(self, row: Row, key: ProfileKey) -> StageProfile | None:
        """The row's own iteration and stage times, or the table's where they are not given; None = unprofiled."""
        iteration_s = row.number(ITERATION_COLUMN, POSITIVE_MS) / 1000 if row.text(ITERATION_COLUMN) else None
        stages = read_stages(row, self.columns)
        if iteration_s is None or stages is None:
            found = self.profiles.find(key)
            if found is None and self.admit_unprofiled:
                return None
            if found is None:
                self.fits(row, key.num_gpu, key.gpu_type)  # says that first
                column, known = self.profiles.what_is_known(key)
                raise row.error(column, f"{column}: {shown(row.text(column))}: {known}")
            iteration_s = found.iteration_s if iteration_s is None else iteration_s
            stages = found.stages if stages is None else stages
        profile = StageProfile(iteration_s, *stages)
        return self.shared.setdefault(profile, profile)

    def fits(self, row: Row, num_gpu: int, gpu_type: str) -> bool:
        """Whether such a job goes into the cluster; type "" = any. Raises InputError when it does not and must."""
        if self.capacity is None:
            return True
        typed = gpu_type and len(self.capacity) > 1
        gpus = self.capacity.get(gpu_type, 0) if typed else self.capacity[""]
        if num_gpu <= gpus or self.drop_unfit:
            return num_gpu <= gpus
        if not gpus:
            kinds = nearest(gpu_type, [kind for kind in self.capacity if kind])
            raise row.error("gpu_type", f"gpu_type: the cluster has no {shown(gpu_type)}; {kinds}")
        kind = f" of type {gpu_type}" if typed else ""
        message = f"num_gpu: {num_gpu} GPUs where the cluster has {gpus}{kind}; allowed: 1 to {gpus}"
        raise row.error("num_gpu", message)
