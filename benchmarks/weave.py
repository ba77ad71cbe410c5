"""Weave against Muri on the published traces: average JCT, p99 and makespan as ratios, and the time of a decision.

With --ablation each idea of Weave is off in turn. The traces and the published numbers lie in the folder that
CLUSTER_EXP_DATA names.

    CLUSTER_EXP_DATA=DIR python benchmarks/weave.py                   # all four traces, about 15 minutes
    CLUSTER_EXP_DATA=DIR python benchmarks/weave.py --traces trace3 --ablation
    CLUSTER_EXP_DATA=DIR python benchmarks/weave.py --logs            # public Philly and ITP logs, about half an hour
    python benchmarks/weave.py --queued 10000                         # one decision with many jobs of 50 profiles
"""

import argparse
import csv
import math
import os
import random
import statistics
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

from cluster_exp.core.placement import PLACEMENTS
from cluster_exp.core.scheduler import Scheduler
from cluster_exp.domain.actions import RecordEnd
from cluster_exp.domain.cluster import ClusterSpec, NodeSpec
from cluster_exp.domain.events import JobArrived, PlanDue, WorkerJoined
from cluster_exp.domain.job import JobSpec
from cluster_exp.domain.policy import Policy
from cluster_exp.domain.profile import StageProfile
from cluster_exp.inputs.clusters import read_cluster
from cluster_exp.inputs.profiles import default_profiles
from cluster_exp.inputs.restart import default_restart_costs
from cluster_exp.inputs.traces import read_trace
from cluster_exp.interleave.speed import make_speed
from cluster_exp.policies.registry import make_policy
from cluster_exp.reproduce.published import PUBLISHED_FILE, read_published
from cluster_exp.results.tables import table
from cluster_exp.sim.simulate import SimulationOptions, simulate

FOUR = ("trace3", "trace3_pr", "trace4", "trace4_pr")
SOURCE = "Muri simulator/draw_fig9-10.py"
PAIRS = (("weave-s", "muri-s", "Muri_S"), ("weave-l", "muri-l", "Muri_L"))
OFF = ("search=0", "prices=off", "group=3", "group=2", "stay=0")
LOGS = (
    "elasticflow-philly/philly_103959.csv",
    *(f"microsoft-itp-elasticflow/raw/cluster{number}.csv" for number in ("01", "03", "05", "06", "10")),
)
SEEDS = (1, 2, 3)
MOST_OF_A_LOG = 1000  # jobs
MEASURES = ("avg_jct", "p99_jct", "makespan", "p99_slowdown")


@dataclass
class Timed:
    """A policy whose decisions are timed."""

    policy: Policy
    times_s: list[float]

    def __getattr__(self, name: str) -> object:
        return getattr(self.policy, name)

    def plan(self, snapshot, memory):
        """The policy's plan."""
        began_s = time.perf_counter()
        plan = self.policy.plan(snapshot, memory)
        self.times_s.append(time.perf_counter() - began_s)
        return plan


class Ends:
    """A recorder of what became of the jobs."""

    def __init__(self) -> None:
        self.records = []

    def record(self, event, actions) -> None:
        """Keeps the records."""
        self.records += [action.record for action in actions if isinstance(action, RecordEnd)]


def run(data: Path, trace: str, policy: str, options: SimulationOptions) -> tuple[dict[str, float], float]:
    """The measures of one simulation, in seconds, and the median time of a decision in milliseconds."""
    cluster = read_cluster(data / "traces" / "muri" / "n8g8.csv")
    jobs = read_trace(data / "traces" / "muri" / f"{trace}.csv", default_profiles(), cluster, drop_unfit=True).jobs
    costs, ends = default_restart_costs(), Ends()
    timed = Timed(make_policy(policy), [])
    simulate(timed, jobs, cluster, options, lambda job: costs.start_s(job.model, job.num_gpu), ends)
    alone_s = {job.job_id: job.iterations * job.profile.iteration_s for job in jobs}
    jct_s = sorted(record.end_s - record.submit_s for record in ends.records)
    slowdown = sorted((record.end_s - record.submit_s) / alone_s[record.job_id] for record in ends.records)
    late = int(0.99 * len(jct_s))
    makespan_s = max(record.end_s for record in ends.records)
    measures = dict(zip(MEASURES, (statistics.fmean(jct_s), jct_s[late], makespan_s, slowdown[late]), strict=True))
    return measures, 1000 * statistics.median(timed.times_s)


def compared(data: Path, traces: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Rows: accounting, policy, trace, each measure against Muri's, and the time of a decision."""
    published = read_published(data / PUBLISHED_FILE)
    for accounting, options in (
        ("muri22, published", SimulationOptions(cost_model="muri22")),
        ("physical, contention muri22", SimulationOptions(contention="muri22")),
    ):
        for policy, muri, name in PAIRS:
            ratios = []
            for trace in traces:
                ours, plan_ms = run(data, trace, policy, options)
                theirs, _ = run(data, trace, muri, options)
                if options.cost_model == "muri22":
                    theirs |= {measure: published.value(SOURCE, trace, name, measure) for measure in MEASURES[:3]}
                ratio = {measure: ours[measure] / theirs[measure] for measure in MEASURES}
                ratios.append(ratio["avg_jct"])
                yield (
                    accounting,
                    policy,
                    trace,
                    *(f"{ratio[measure]:.3f}" for measure in MEASURES),
                    f"{plan_ms:.1f}",
                )
            mean = math.exp(statistics.fmean(map(math.log, ratios)))
            yield (accounting, policy, "geometric mean", f"{mean:.3f}", "", "", "", "")


def ablated(data: Path, traces: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Rows: what is off, trace, average JCT against the whole policy's, under both accountings."""
    for trace in traces:
        for label, options in (
            ("muri22", SimulationOptions(cost_model="muri22")),
            ("physical", SimulationOptions(contention="muri22")),
        ):
            whole, _ = run(data, trace, "weave-s", options)
            for off in OFF:
                part, _ = run(data, trace, f"weave-s:{off}", options)
                yield label, trace, off, f"{part['avg_jct'] / whole['avg_jct']:.3f}"


def log_rows(path: Path) -> list[tuple[float, float, int]]:
    """(submitted, duration, GPUs) of a public log, in seconds, by submission."""
    with open(path, encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    submitted = "submit_time" if "submit_time" in rows[0] else "submission_time"
    return sorted((float(row[submitted]), float(row["duration"]), int(row["num_gpu"])) for row in rows)


def log_jobs(path: Path, seed: int) -> tuple[tuple[JobSpec, ...], ClusterSpec]:
    """The first jobs of a log with models drawn from a seed, and a cluster of which they are 95 % of the work.

    A job of a GPU count without a profile has the stage times of the next smaller one.
    """
    draw, table_ = random.Random(seed), default_profiles()
    keys = sorted({(key.num_gpu, key.model, key.batch_size): key for key in table_}.items())
    widths = sorted({width for (width, *_), _ in keys})
    rows = log_rows(path)[:MOST_OF_A_LOG]
    jobs = []
    for number, (submit_s, duration_s, num_gpu) in enumerate(rows):
        width = max(one for one in widths if one <= num_gpu)
        key = draw.choice([key for (known, *_), key in keys if known == width])
        profile = table_.find(key)
        iterations = max(1, round(duration_s / profile.iteration_s))
        start_s = submit_s - rows[0][0]
        job = JobSpec(str(number), num_gpu, start_s, iterations, duration_s, key.model, key.batch_size, profile)
        jobs.append(job)
    work = sum(job.num_gpu * job.iterations * job.profile.iteration_s for job in jobs)
    gpus = max(work / max(jobs[-1].submit_s, 1.0) / 0.95, *(job.num_gpu for job in jobs))
    return tuple(jobs), ClusterSpec(tuple(NodeSpec(f"n{i}", 8) for i in range(math.ceil(gpus / 8))))


def log_average_s(path: Path, seed: int, policy: str) -> float:
    """Average JCT on a log, in seconds, under `physical` with --contention muri22."""
    jobs, cluster = log_jobs(path, seed)
    costs, ends = default_restart_costs(), Ends()
    options = SimulationOptions(contention="muri22")
    simulate(make_policy(policy), jobs, cluster, options, lambda job: costs.start_s(job.model, job.num_gpu), ends)
    return statistics.fmean(record.end_s - record.submit_s for record in ends.records)


def on_logs(data: Path) -> Iterator[tuple[str, ...]]:
    """Rows: log, jobs, GPUs, seed, average JCT of weave-s and weave-l against Muri's."""
    ratios: dict[str, list[float]] = {"muri-s": [], "muri-l": []}
    with ProcessPoolExecutor(mp_context=get_context("forkserver")) as pool:
        cells = [(data / "traces" / name, seed) for name in LOGS for seed in SEEDS]
        asked = {
            (cell, policy): pool.submit(log_average_s, *cell, policy)
            for cell in cells
            for weave, muri, _ in PAIRS
            for policy in (weave, muri)
        }
        for cell in cells:
            jobs, cluster = log_jobs(*cell)
            found = []
            for weave, muri, _ in PAIRS:
                ratio = asked[cell, weave].result() / asked[cell, muri].result()
                ratios[muri].append(ratio)
                found.append(f"{ratio:.3f}")
            yield (cell[0].stem, str(len(jobs)), str(cluster.num_gpu), str(cell[1]), *found)
    means = [f"{math.exp(statistics.fmean(map(math.log, found))):.3f}" for found in ratios.values()]
    worst = [f"{max(found):.3f}" for found in ratios.values()]
    yield ("geometric mean", "", "", "", *means)
    yield ("worst", "", "", "", *worst)


def decision_s(queued: int, policy: str, seed: int = 1) -> float:
    """Seconds of the first decision with so many jobs of 50 random profiles on 64 GPUs."""
    draw = random.Random(seed)
    kinds = [StageProfile(draw.uniform(0.1, 2.0), *(draw.uniform(0.01, 0.5) for _ in range(4))) for _ in range(50)]
    scheduler = Scheduler(make_policy(policy), make_speed("rates", "muri22"), PLACEMENTS["consolidated"])
    for node in range(8):
        scheduler.handle(WorkerJoined(0.0, node, NodeSpec(f"n{node}", 8)))
    for number in range(queued):
        kind, num_gpu = draw.choice(kinds), draw.choice([1, 1, 1, 2, 4, 8])
        length = draw.randint(10, 100_000)
        job = JobSpec(f"j{number}", num_gpu, 0.0, length, length * kind.iteration_s, "m", 1, kind)
        scheduler.handle(JobArrived(0.0, job))
    began_s = time.perf_counter()
    scheduler.handle(PlanDue(0.0))
    first_s = time.perf_counter() - began_s
    began_s = time.perf_counter()
    scheduler.handle(PlanDue(1.0))
    print(
        f"{policy}: {queued} jobs of 50 profiles: first {first_s:.2f} s, then {time.perf_counter() - began_s:.2f} s"
    )
    return first_s


def main(argv: Sequence[str] | None = None, environ: Mapping[str, str] = os.environ) -> int:
    """Prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--traces", default=",".join(FOUR), metavar="NAME[,NAME...]")
    parser.add_argument("--ablation", action="store_true", help="each idea off in turn, instead of the comparison")
    parser.add_argument("--logs", action="store_true", help="the public logs, instead of the comparison")
    parser.add_argument("--queued", type=int, metavar="N", help="only time one decision with N queued jobs")
    args = parser.parse_args(argv)
    if args.queued:
        for policy in ("weave-s", "weave-l"):
            decision_s(args.queued, policy)
        return 0
    folder = environ.get("CLUSTER_EXP_DATA")
    if not folder:
        print("left out: CLUSTER_EXP_DATA does not name the folder of the published traces", file=sys.stderr)
        return 0
    traces = args.traces.split(",")
    if args.logs:
        print(table(("log", "jobs", "GPUs", "seed", "weave-s/muri-s", "weave-l/muri-l"), list(on_logs(Path(folder)))))
    elif args.ablation:
        print(table(("accounting", "trace", "off", "avg JCT"), list(ablated(Path(folder), traces))))
    else:
        head = ("accounting", "policy", "trace", "avg JCT", "p99", "makespan", "p99 JCT/alone", "plan ms")
        print(table(head, list(compared(Path(folder), traces))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
