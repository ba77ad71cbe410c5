"""The published numbers, and simulations by the accounting of the simulator that gave them."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from cluster_exp.domain.actions import JobRecord, RecordEnd
from cluster_exp.inputs.clusters import read_cluster
from cluster_exp.inputs.profiles import default_profiles
from cluster_exp.inputs.restart import default_restart_costs
from cluster_exp.inputs.traces import read_trace
from cluster_exp.policies.registry import make_policy
from cluster_exp.reproduce.published import PUBLISHED_FILE, read_published
from cluster_exp.sim.simulate import SimulationOptions, simulate

Numbers = dict[str, float]  # avg_jct, makespan, p99_jct in seconds


@dataclass(frozen=True)
class Simulated:
    """Numbers of a simulation, by the published metrics' names."""

    records: tuple[JobRecord, ...]

    @property
    def numbers(self) -> Numbers:
        jct_s = sorted(record.end_s - record.submit_s for record in self.records)
        return {
            "avg_jct": sum(jct_s) / len(jct_s),
            "makespan": max(record.end_s for record in self.records),
            "p99_jct": jct_s[int(0.99 * len(jct_s))],
        }


class _Ends:
    def __init__(self) -> None:
        self.records: list[JobRecord] = []

    def record(self, event, actions) -> None:
        self.records += [action.record for action in actions if isinstance(action, RecordEnd)]


@pytest.fixture
def data() -> Path:
    """The folder of traces and published results; without it the test is skipped."""
    folder = os.environ.get("CLUSTER_EXP_DATA")
    if not folder:
        pytest.skip("CLUSTER_EXP_DATA does not name the folder of the published results")
    return Path(folder)


@pytest.fixture
def published(data: Path) -> Callable[..., Numbers]:
    """(source, trace, policy) -> the published numbers; at least one."""
    table = read_published(data / PUBLISHED_FILE)

    def numbers(source: str, trace: str, policy: str) -> Numbers:
        found = {
            metric: value
            for (its_source, its_trace, its_policy, metric), value in table.values.items()
            if (its_source, its_trace, its_policy) == (source, trace, policy)
        }
        assert found, f"{policy} on {trace} is not in {source}"
        return found

    return numbers


@pytest.fixture
def simulated(data: Path) -> Callable[..., Numbers]:
    """(trace, policy) -> the numbers that `muri22` gives on eight nodes of eight GPUs."""

    def numbers(trace: str, policy: str) -> Numbers:
        cluster = read_cluster(data / "traces" / "muri" / "n8g8.csv")
        jobs = read_trace(data / "traces" / "muri" / f"{trace}.csv", default_profiles(), cluster).jobs
        costs, ends = default_restart_costs(), _Ends()
        options = SimulationOptions(cost_model="muri22")
        simulate(make_policy(policy), jobs, cluster, options, lambda job: costs.start_s(job.model, job.num_gpu), ends)
        assert len(ends.records) == len(jobs)
        return Simulated(tuple(ends.records)).numbers

    return numbers
