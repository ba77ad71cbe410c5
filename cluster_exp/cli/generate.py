"""generate: a trace of one's own."""

import argparse
from pathlib import Path

HELP = "writes a seeded, Philly-like trace"
EXAMPLE = "python run.py generate --jobs 200 --seed 7 --cluster cluster_spec/n8g8.csv --load 0.9 --out my.csv"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the verb's options."""
    parser.add_argument("--jobs", type=int, required=True, metavar="N", help="how many jobs")
    parser.add_argument("--seed", type=int, required=True, metavar="N", help="the same seed gives the same trace")
    parser.add_argument("--cluster", required=True, metavar="FILE", help="the cluster that the load refers to")
    parser.add_argument("--load", type=float, default=0.9, metavar="X", help="offered load (default 0.9)")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="CSV file to write; must not exist")


def run(arguments: argparse.Namespace) -> int:
    """Writes the trace and says what it is like."""
    from cluster_exp.domain.errors import InputError
    from cluster_exp.inputs.clusters import read_cluster
    from cluster_exp.inputs.generate import GeneratorConfig, generate_trace, write_trace

    cluster = read_cluster(arguments.cluster)
    config = GeneratorConfig(arguments.jobs, arguments.seed, cluster.num_gpu, arguments.load)
    if arguments.out.exists():
        raise InputError(f"{str(arguments.out)!r} exists already", where="--out")
    jobs = generate_trace(config)
    write_trace(arguments.out, jobs)
    print(f"{len(jobs)} jobs over {jobs[-1].submit_s:.0f} s written to {arguments.out}")
    return 0
