"""How fast the simulator and the grouping are, in loops: the time of a fixed Python loop measured in the same run.

A loop is `for i in range(6_000_000): x += i * i % 7` as the code of a module (in a function, where Python reaches its
variables faster, it takes little more than half as long). Times are processor time after imports, with job table and
journal written (of the million jobs: the summary journal); what uses both cores is wall time. Every row names its
target. The rows of the published traces need the folder that CLUSTER_EXP_DATA names; without it they are left out.

    python benchmarks/simulator.py                      # all rows, about half an hour
    python benchmarks/simulator.py --rows trace3,pairing
"""

import argparse
import gc
import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

import numpy as np

from cluster_exp.core.pool import compiled
from cluster_exp.domain.cluster import ClusterSpec, NodeSpec
from cluster_exp.domain.job import JobSpec
from cluster_exp.domain.models import Order
from cluster_exp.domain.profile import StageProfile
from cluster_exp.inputs.generate import GeneratorConfig, generate_trace
from cluster_exp.inputs.profiles import default_profiles
from cluster_exp.inputs.restart import default_restart_costs
from cluster_exp.inputs.traces import read_trace
from cluster_exp.interleave.large_matching import bounded_matching
from cluster_exp.interleave.speed import make_speed
from cluster_exp.policies.muri_groups import Groups, GroupTable, paired
from cluster_exp.policies.registry import make_policy
from cluster_exp.results.journal import Detail
from cluster_exp.results.run_directory import RunDirectory
from cluster_exp.results.tables import table
from cluster_exp.sim.simulate import SimulationOptions, make_cost, simulate

DATA = Path(os.environ["CLUSTER_EXP_DATA"]) if os.environ.get("CLUSTER_EXP_DATA") else None
FOUR = ("trace3", "trace3_pr", "trace4", "trace4_pr")
FIGURES = ("srtf", "srsf", "muri-s", "tiresias", "antman", "themis", "muri-l")
NODES, GPUS_PER_NODE = 1250, 8
MEAN_GPU_HOURS = 12.0
ROUND_S = 60.0
MOST_MIB = 4096.0

Rows = Iterator[tuple[str, str, str, bool]]  # what, target, measured, met


LOOP = compile("for i in range(6_000_000): x += i * i % 7", "loop", "exec")


def loop_s(clock: Callable[[], float] = time.process_time) -> float:
    """Seconds of one loop."""
    began_s = clock()
    exec(LOOP, {"x": 0})
    return clock() - began_s


@dataclass
class Timed:
    """Seconds and loops of a piece of work; the loop is measured before and after it."""

    seconds: float = 0.0
    loops: float = 0.0


def timed(work: Callable[[], object], clock: Callable[[], float] = time.process_time) -> Timed:
    """Does the work once."""
    gc.collect()
    before_s, began_s = loop_s(clock), clock()
    work()
    seconds = clock() - began_s
    return Timed(seconds, seconds / ((before_s + loop_s(clock)) / 2))


def run(policy_name: str, jobs: Sequence[JobSpec], cluster: ClusterSpec, rules: SimulationOptions, detail: Detail):
    """A simulation into a directory, as the command line makes it; returns what the engine says."""
    costs = default_restart_costs()
    policy = make_policy(policy_name)

    def start_cost(job: JobSpec) -> float:
        return costs.start_s(job.model, job.num_gpu)

    with tempfile.TemporaryDirectory() as folder:
        speed = make_cost(policy, rules, start_cost).speed
        with RunDirectory(Path(folder, "run"), {}, cluster.num_gpu, speed, detail) as out:
            return simulate(policy, jobs, cluster, rules, start_cost, out)


def published(trace: str) -> tuple[Sequence[JobSpec], ClusterSpec]:
    """Jobs and cluster of one of the traces of Muri's figures."""
    assert DATA is not None
    cluster = ClusterSpec(tuple(NodeSpec(f"n{i}", GPUS_PER_NODE) for i in range(8)))
    return read_trace(DATA / "traces" / "muri" / f"{trace}.csv", default_profiles(), cluster).jobs, cluster


def simulate_published(policy: str, trace: str) -> None:
    """One run of Figures 9 and 10."""
    jobs, cluster = published(trace)
    run(policy, jobs, cluster, SimulationOptions(cost_model="muri22"), Detail.FULL)


def one_trace(trace: str, targets: dict[str, float]) -> Rows:
    jobs, cluster = published(trace)
    for policy, target in targets.items():
        took = timed(lambda: run(policy, jobs, cluster, SimulationOptions(cost_model="muri22"), Detail.FULL))  # noqa: B023
        yield f"{trace} {policy}", f"{target:g} loops", f"{took.loops:.2f} loops", took.loops <= target


def figures() -> Rows:
    """All runs of Figures 9 and 10 whose traces there are, on both cores, the long ones first."""
    uses = sorted(((policy, trace) for policy in FIGURES for trace in FOUR), key=_length, reverse=True)

    def work() -> None:
        with ProcessPoolExecutor(2, mp_context=get_context("forkserver")) as pool:
            for future in [pool.submit(simulate_published, *use) for use in uses]:
                future.result()

    took = timed(work, time.perf_counter)
    what = f"Figures 9 and 10, {len(uses)} runs, 2 cores, wall"
    yield what, "240 loops", f"{took.loops:.1f} loops", took.loops <= 240


def _length(use: tuple[str, str]) -> tuple[bool, bool]:
    return use[0].startswith("muri") or use[0] == "antman", use[1].startswith("trace4")


def profiles(count: int) -> tuple[StageProfile, ...]:
    """Random stage profiles."""
    random = np.random.default_rng(0)
    stages = random.dirichlet([1.0] * 4, count) * random.uniform(0.1, 2.0, (count, 1))
    return tuple(StageProfile(sum(times), *times) for times in stages.tolist())


def pairing() -> Rows:
    """One round of pairing: efficiencies of all pairs, the matching, and who joins whom."""
    classes = np.random.default_rng(1).integers(0, 50, 10_000)

    def many_alike() -> None:
        kinds = GroupTable(make_speed("lockstep", "none"), Order.BEST, profiles(50))
        members = np.full((classes.size, 4), -1)
        members[:, 0] = np.arange(classes.size)
        groups = Groups(kinds.singles(classes), members, np.full(classes.size, -1))
        paired(kinds, classes, groups, 4, classes.size)

    took = timed(many_alike)
    yield "pair 10,000 jobs of 50 profiles, exact", "0.2 loops", f"{took.loops:.3f} loops", took.loops <= 0.2

    found = []
    bounded_matching(np.ones((2, 2)))  # imports

    def all_different() -> None:
        kinds = GroupTable(make_speed("lockstep", "none"), Order.BEST, profiles(1000))
        numbers = kinds.singles(np.arange(1000)).tolist()
        found.append(bounded_matching(kinds.efficiencies(numbers, 4)))

    took = timed(all_different)
    gap = found[0].gap
    yield "pair 1,000 different jobs", "2 loops", f"{took.loops:.2f} loops", took.loops <= 2
    yield "  how far it may be from the largest weight", "1 %", f"{gap:.2%}", gap <= 0.01


def million(policy: str, sizes: Sequence[int]) -> Rows:
    """Philly-like jobs on 10,000 GPUs at 90 % load, in rounds of a minute; the last size has targets."""
    per_job_s = {}
    for count in sizes:
        context = get_context("forkserver")
        with ProcessPoolExecutor(1, mp_context=context) as pool:  # a process of its own, for its peak memory
            took, text, peak_mib = pool.submit(_large, policy, count).result()
        per_job_s[count] = took.seconds / count
        yield (
            f"{count:,} jobs {policy}",
            "1200 loops",
            f"{took.loops:.0f} loops ({took.seconds:.0f} s)",
            took.loops <= 1200,
        )
        yield f"  {text}", f"{MOST_MIB:.0f} MiB", f"{peak_mib:.0f} MiB", peak_mib <= MOST_MIB
    growth = per_job_s[sizes[-1]] / per_job_s[sizes[0]]
    yield f"  time per job, {sizes[-1]:,} against {sizes[0]:,}", "2 times", f"{growth:.2f} times", growth <= 2


def _large(policy: str, count: int) -> tuple[Timed, str, float]:
    cluster = ClusterSpec(tuple(NodeSpec(f"n{i}", GPUS_PER_NODE) for i in range(NODES)))
    jobs = philly_like(count, cluster.num_gpu)
    results = []
    rules = SimulationOptions(interval_s=ROUND_S)
    took = timed(lambda: results.append(run(policy, jobs, cluster, rules, Detail.SUMMARY)))
    result = results[0]
    hours = sum(job.duration_s * job.num_gpu for job in jobs) / 3600 / len(jobs)
    text = f"{hours:.1f} GPU-hours a job, {result.plans:,} plans, {result.rounds_skipped:,} rounds skipped"
    return took, text, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def philly_like(count: int, gpus: int) -> Sequence[JobSpec]:
    """Jobs of 12 GPU-hours in the mean; the median duration is what makes it so."""
    config = GeneratorConfig(count, seed=1, cluster_gpus=gpus, load=0.9)
    trial = generate_trace(GeneratorConfig(20_000, seed=1, cluster_gpus=gpus, load=0.9))
    mean = sum(job.duration_s * job.num_gpu for job in trial) / 3600 / len(trial)
    median_s = config.median_duration_s * MEAN_GPU_HOURS / mean
    return generate_trace(GeneratorConfig(count, seed=1, cluster_gpus=gpus, load=0.9, median_duration_s=median_s))


ROWS: dict[str, Callable[[], Rows]] = {
    "trace3": lambda: one_trace("trace3", {"srsf": 0.1, "muri-s": 1.0, "themis": 6.0}),
    "trace4": lambda: one_trace("trace4", {"srsf": 0.6, "muri-s": 30.0}),
    "trace4_pr": lambda: one_trace("trace4_pr", {"muri-s": 30.0}),
    "figures": figures,
    "pairing": pairing,
}
LARGE = {"million-srsf": "srsf", "million-muri-s": "muri-s"}
NEED_DATA = ("trace3", "trace4", "trace4_pr", "figures")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    allowed = [*ROWS, *LARGE]
    parser.add_argument(
        "--rows", default=",".join(allowed), metavar="NAME[,NAME...]", help=f"of: {', '.join(allowed)}"
    )
    parser.add_argument(
        "--jobs", default="10000,1000000", metavar="N,N", help="sizes of the large runs (%(default)s)"
    )
    arguments = parser.parse_args()
    names = arguments.rows.split(",")
    sizes = [int(words) for words in arguments.jobs.split(",")]
    unknown = [name for name in names if name not in allowed]
    if unknown:
        parser.error(f"--rows: {unknown[0]!r} given; allowed: {', '.join(allowed)}")
    print(f"compiled: {compiled()}; a loop: {loop_s():.3f} s; Python {sys.version.split()[0]}", flush=True)
    rows = []
    for name in names:
        if name in NEED_DATA and DATA is None:
            print(f"left out: {name} (CLUSTER_EXP_DATA names no folder)")
            continue
        found = ROWS[name]() if name in ROWS else million(LARGE[name], sizes)
        for what, target, measured, met in found:
            rows.append([what, target, measured, "yes" if met else "NO"])
            print(f"  {what}: {measured} (target {target})", file=sys.stderr, flush=True)
    print(table(["what", "at most", "measured", "met"], rows))


if __name__ == "__main__":
    main()
