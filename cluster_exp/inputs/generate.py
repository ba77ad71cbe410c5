"""A seeded generator of traces that look like those of Microsoft's Philly cluster, and a writer of traces.

Only uniform random numbers are drawn and every transform is written out, so that a seed gives the same trace with
every version of numpy.
"""

import csv
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from statistics import NormalDist
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from cluster_exp.domain.errors import InputError
from cluster_exp.domain.job import JobSpec
from cluster_exp.domain.profile import ProfileKey
from cluster_exp.inputs.profiles import ProfileTable, default_profiles
from cluster_exp.inputs.stages import FOUR_COLUMNS, ITERATION_COLUMN, THREE_COLUMNS
from cluster_exp.inputs.traces import REQUIRED_COLUMNS, UNSTATED_COLUMNS

PHILLY_GPU_WEIGHTS: Mapping[int, float] = MappingProxyType({1: 0.70, 2: 0.09, 4: 0.11, 8: 0.07, 16: 0.025, 32: 0.005})

_DAY_S = 86_400.0
_DAY_STEPS = 288  # resolution of the day pattern: 5 minutes
_TIMES = ("median_duration_s", "min_duration_s", "max_duration_s", "burst_gap_s")


@dataclass(frozen=True, slots=True)
class GeneratorConfig:
    """What a generated trace is like.

    The offered load is work (duration times GPUs) over what the cluster could do between the first and the last
    arrival: above 1 a queue builds up.
    """

    num_jobs: int
    seed: int
    cluster_gpus: int  # GPUs of the cluster that the load refers to
    load: float = 0.9  # offered load
    gpu_weights: Mapping[int, float] = field(default_factory=lambda: PHILLY_GPU_WEIGHTS)  # by GPUs of a job
    median_duration_s: float = 1_800.0
    duration_sigma: float = 1.6  # standard deviation of the logarithm of the duration
    min_duration_s: float = 60.0
    max_duration_s: float = 30 * _DAY_S
    burst_size: float = 3.0  # mean jobs of a burst, at least 1
    burst_gap_s: float = 30.0  # mean time between the jobs of a burst
    day_swing: float = 0.6  # 0 = no day pattern; 0.6 = arrivals swing by 60 % around their mean over a day

    def __post_init__(self) -> None:
        """Raises InputError that names the field."""
        for name in ("num_jobs", "cluster_gpus"):
            _check(getattr(self, name) >= 1, name, getattr(self, name), "1 or more")
        _check(self.seed >= 0, "seed", self.seed, "0 or more")
        for name in (*_TIMES, "load"):
            value = getattr(self, name)
            _check(0 < value < math.inf, name, value, "a finite number above 0")
        _check(0 <= self.duration_sigma <= 10, "duration_sigma", self.duration_sigma, "from 0 to 10")
        _check(1 <= self.burst_size < math.inf, "burst_size", self.burst_size, "1 or more")
        _check(0 <= self.day_swing <= 1, "day_swing", self.day_swing, "from 0 to 1")
        shortest = self.min_duration_s
        _check(shortest <= self.max_duration_s, "min_duration_s", shortest, "at most max_duration_s")
        weights = self.gpu_weights
        good = all(size >= 1 and 0 <= weights[size] < math.inf for size in weights)
        usable = any(size <= self.cluster_gpus and weights[size] > 0 for size in weights)
        allowed = "sizes from 1 GPU on with weights from 0 on; one that fits the cluster weighs more than 0"
        _check(good and usable, "gpu_weights", dict(weights), allowed)


def _check(good: bool, name: str, given: object, allowed: str) -> None:
    if not good:
        raise InputError(f"is {given}; allowed: {allowed}", where=name)


def generate_trace(
    config: GeneratorConfig,
    profiles: ProfileTable | None = None,
    rng: np.random.Generator | None = None,
) -> tuple[JobSpec, ...]:
    """Jobs by submit time, from 0 s on; times are whole seconds.

    Models are uniform over those in `profiles` (default: the shipped table), GPU counts follow the weights,
    durations are log-normal within their limits, arrivals come in bursts with a day pattern and are stretched so
    that the load is the one asked for. A job does floor(duration / iteration time) iterations. Random numbers
    come from `rng` (default: PCG64 with the seed).

    Raises:
        InputError: a model of the table has no profile for a GPU count that was drawn.
    """
    profiles = default_profiles() if profiles is None else profiles
    rng = np.random.Generator(np.random.PCG64(config.seed)) if rng is None else rng
    sizes = _gpu_counts(config, rng.random(config.num_jobs))
    durations = _durations_s(config, rng.random(config.num_jobs))
    models = profiles.models
    chosen = np.floor(rng.random(config.num_jobs) * len(models)).astype(int)
    priorities = np.floor(rng.random(config.num_jobs) * 2).astype(int)
    window_s = float(np.dot(sizes, durations)) / (config.load * config.cluster_gpus)
    arrivals = _arrivals_s(config, rng, window_s)
    return tuple(
        _job(str(index), profiles, models[chosen[index]], int(sizes[index]), submit_s, duration_s, priority)
        for index, (submit_s, duration_s, priority) in enumerate(
            zip(arrivals.tolist(), durations.tolist(), priorities.tolist(), strict=True)
        )
    )


def _job(
    job_id: str,
    profiles: ProfileTable,
    model: str,
    num_gpu: int,
    submit_s: float,
    duration_s: float,
    priority: int,
) -> JobSpec:
    batch_size = profiles.keys_of(model)[0].batch_size
    key = ProfileKey(model, batch_size, num_gpu)
    profile = profiles.find(key)
    if profile is None:
        column, known = profiles.what_is_known(key)
        raise InputError(f"{column}: {num_gpu}: {known}", where="gpu_weights")
    return JobSpec(
        job_id=job_id,
        num_gpu=num_gpu,
        submit_s=submit_s,
        iterations=math.floor(duration_s / profile.iteration_s),
        duration_s=duration_s,
        model=model,
        batch_size=batch_size,
        profile=profile,
        priority=priority,
    )


def _gpu_counts(config: GeneratorConfig, uniform: NDArray[np.float64]) -> NDArray[np.int64]:
    sizes = sorted(size for size in config.gpu_weights if size <= config.cluster_gpus)
    weights = np.array([config.gpu_weights[size] for size in sizes])
    edges = np.cumsum(weights / weights.sum())[:-1]
    return np.array(sizes, dtype=np.int64)[np.searchsorted(edges, uniform, side="right")]


def _durations_s(config: GeneratorConfig, uniform: NDArray[np.float64]) -> NDArray[np.float64]:
    normal = NormalDist()
    centre = np.clip(uniform, 1e-12, 1 - 1e-12)
    scores = np.array([normal.inv_cdf(share) for share in centre.tolist()])
    durations = config.median_duration_s * np.exp(config.duration_sigma * scores)
    clipped: NDArray[np.float64] = np.clip(durations, config.min_duration_s, config.max_duration_s)
    return np.maximum(np.round(clipped), 1.0)


def _arrivals_s(config: GeneratorConfig, rng: np.random.Generator, window_s: float) -> NDArray[np.float64]:
    """Submit times, sorted, the first 0 and the last `window_s`: bursts of Poisson arrivals with a day pattern."""
    opens_burst = rng.random(config.num_jobs) < 1 / config.burst_size
    opens_burst[0] = True
    burst = np.cumsum(opens_burst) - 1
    starts = _by_time_of_day(config, rng.random(int(burst[-1]) + 1), window_s)
    gaps = -config.burst_gap_s * np.log1p(-rng.random(config.num_jobs))
    gaps[opens_burst] = 0.0
    elapsed = np.cumsum(gaps)
    since_start = elapsed - elapsed[np.flatnonzero(opens_burst)][burst]
    times = np.sort(starts[burst] + since_start)
    times -= times[0]
    if times[-1] > 0:
        times *= window_s / times[-1]
    return np.round(times)


def _by_time_of_day(config: GeneratorConfig, uniform: NDArray[np.float64], window_s: float) -> NDArray[np.float64]:
    """Instants in the window whose density swings with the time of day, lowest at its start."""
    steps = np.linspace(0.0, window_s, max(2, math.ceil(window_s / _DAY_S * _DAY_STEPS)) + 1)
    middles = (steps[1:] + steps[:-1]) / 2
    density = 1 - config.day_swing * np.cos(2 * math.pi * middles / _DAY_S)
    cumulated = np.concatenate(([0.0], np.cumsum(density)))
    times: NDArray[np.float64] = np.interp(uniform * cumulated[-1], cumulated, steps)
    return times


_PLAIN: Mapping[str, object] = MappingProxyType(
    {
        item.name: item.default
        for item in fields(JobSpec)
        if item.name in {"user", "queue", "gpu_type", "gpu_fraction"}
    }
)


def write_trace(path: str | Path, jobs: Sequence[JobSpec]) -> None:
    """Writes a trace CSV (milliseconds) that `read_trace` reads back; an existing file is replaced.

    Columns that no job needs are left out. Times keep 15 digits. Raises OSError.
    """
    four = any(job.profile.storage_s for job in jobs)
    optional = [name for name, plain in _PLAIN.items() if any(getattr(job, name) != plain for job in jobs)]
    optional += [name for name in UNSTATED_COLUMNS if any(not math.isnan(getattr(job, name)) for job in jobs)]
    stages = FOUR_COLUMNS if four else THREE_COLUMNS
    with Path(path).open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow((*REQUIRED_COLUMNS, ITERATION_COLUMN, *stages, "priority", *optional))
        for job in jobs:
            writer.writerow(_fields(job, four, optional))


def _fields(job: JobSpec, four: bool, optional: Sequence[str]) -> list[str]:
    times_s = (job.profile.iteration_s, *(job.profile.stages if four else job.profile.stages[1:]))
    extra = [getattr(job, name) for name in optional]
    return [
        job.job_id,
        str(job.num_gpu),
        _ms(job.submit_s),
        str(job.iterations),
        job.model,
        str(job.batch_size),
        _ms(job.duration_s),
        *map(_ms, times_s),
        str(job.priority),
        *("" if isinstance(value, float) and math.isnan(value) else str(value) for value in extra),
    ]


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.15g}"
