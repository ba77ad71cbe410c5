"""calc: JCT and makespan of runs."""

import argparse
import json
from pathlib import Path

HELP = "prints JCT, makespan and more of runs"
EXAMPLE = "python calc.py out/srsf out/muri-s"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the verb's options."""
    parser.add_argument("directories", nargs="+", type=Path, metavar="DIR", help="a run, or a directory of runs")
    parser.add_argument("--json", action="store_true", help="a list of objects instead of a table")


def run(arguments: argparse.Namespace) -> int:
    """Prints a row a run, and for a single run the line that scripts parse."""
    from cluster_exp.results.summary import find_runs, summarise, summary_table

    summaries = [summarise(path) for directory in arguments.directories for path in find_runs(directory)]
    if arguments.json:
        print(json.dumps([summary.as_json() for summary in summaries], indent=2))
        return 0
    print(summary_table(summaries))
    for summary in summaries:
        if summary.metrics.others:
            others = ", ".join(f"{count} {status.lower()}" for status, count in summary.metrics.others.items())
            print(f"Other jobs of {summary.run}: {others}")
        if summary.status not in ("", "finished"):
            print(f"Partial result: {summary.run} is {summary.status}")
    if len(summaries) == 1:
        metrics = summaries[0].metrics
        print(
            f"Total jobs: {metrics.jobs}, avg JCT: {metrics.average_jct_s:.6f}, "
            f"makespan: {metrics.makespan_s:.6f}, 99th JCT: {metrics.p99_jct_s:.6f}"
        )
    return 0
