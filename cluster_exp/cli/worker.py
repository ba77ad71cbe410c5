"""worker: serves one node."""

import argparse

HELP = "serves one node of a testbed"
EXAMPLE = "cluster-exp worker --master 127.0.0.1:4000 --node n0 --gpus 4"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the verb's options."""
    from cluster_exp.runtime.worker_main import add_arguments as add_worker_arguments

    add_worker_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Serves until the master says that the run is over."""
    import logging

    from cluster_exp.runtime.worker_main import config_from, worker_main

    logging.getLogger().setLevel(logging.INFO)
    return worker_main(config_from(arguments), arguments.parent)
