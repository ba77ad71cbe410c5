"""demo: one shipped trace, two policies, each live and simulated, and whether they agree."""

import argparse
import sys
from dataclasses import replace
from pathlib import Path

from cluster_exp.cli.run import directory

HELP = "replays a shipped trace under srsf and muri-s, live and simulated, and compares"
EXAMPLE = "python run.py demo"
POLICIES = "srsf,muri-s"
ROOT = Path(__file__).parents[2]
TIME_SCALE = 500.0
INTERVAL_S = 600.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the verb's options."""
    parser.add_argument("--out", type=directory, metavar="DIR", help="new directory (default: out/demo-TIME)")
    parser.add_argument("--trace", default=str(ROOT / "trace_data" / "demo.csv"), metavar="FILE", help="jobs")
    parser.add_argument("--cluster", default=str(ROOT / "cluster_spec" / "n2g4.csv"), metavar="FILE", help="nodes")
    parser.add_argument("--policy", default=POLICIES, metavar="NAME[,NAME...]", help=f"default: {POLICIES}")
    parser.add_argument(
        "--time-scale",
        type=float,
        default=TIME_SCALE,
        metavar="X",
        help=f"simulated seconds per second (default {TIME_SCALE:g})",
    )
    parser.add_argument(
        "--interval",
        type=float,
        default=INTERVAL_S,
        metavar="SECONDS",
        help=f"simulated seconds between plans (default {INTERVAL_S:g})",
    )


def run(arguments: argparse.Namespace) -> int:
    """Prints the table and the gate's verdict; returns 1 when live and simulated differ too much."""
    import time

    from cluster_exp.cli import execute
    from cluster_exp.cli.options import run_spec
    from cluster_exp.cli.run import add_arguments as add_run_arguments
    from cluster_exp.results.gate import TOLERANCE, judge
    from cluster_exp.results.summary import summarise, summary_table
    from cluster_exp.runtime.local import LiveError

    parser = argparse.ArgumentParser()
    add_run_arguments(parser)
    settings = parser.parse_args([])
    vars(settings).update(vars(arguments))
    settings.mode = "local"
    settings.out = arguments.out or Path("out") / time.strftime("demo-%Y%m%d-%H%M%S")
    live = run_spec(settings)
    print(
        f"{len(live.jobs)} jobs of {live.trace_path} on {len(live.cluster.nodes)} workers with "
        f"{live.cluster.num_gpu} emulated GPUs; {live.time_scale:g} simulated seconds pass in one"
    )
    print(f"a plan every {live.rules.interval_s:g} simulated seconds; results in {live.out}", flush=True)
    summaries = []
    averages_s = []
    for policy in live.policies:
        name = policy.name
        try:
            result = execute.live(live, policy, settings.out / f"{name}-live")
        except LiveError as error:
            sys.stderr.write(f"error: {error}; the partial result lies in {settings.out}\n")
            return 1
        if not result.complete:
            sys.stderr.write(f"stopped ({result.reason}); the partial result lies in {settings.out}\n")
            return 130
        start_s = result.start_cost_mean_s
        print(
            f"{name}: a start took {start_s / live.time_scale * 1000:.0f} ms here, which is {start_s:.1f} simulated "
            f"seconds (mean of {result.starts}); the simulation is told this and nothing else",
            flush=True,
        )
        simulated = replace(live, mode="sim", start_cost_s=start_s)
        execute.simulated(simulated, policy, settings.out / f"{name}-sim")
        pair = [summarise(settings.out / f"{name}-{mode}") for mode in ("live", "sim")]
        summaries += pair
        averages_s.append((name, pair[0].metrics.average_jct_s, pair[1].metrics.average_jct_s))
    print(summary_table(summaries))
    verdicts = judge(averages_s)
    for verdict in verdicts:
        word = "ok" if verdict.passed else "FAILED"
        print(
            f"{verdict.policy}: live average JCT is {verdict.difference:+.1%} off the simulated "
            f"(allowed: {TOLERANCE:.0%}): {word}"
        )
    return 0 if all(verdict.passed for verdict in verdicts) else 1
