"""worker: serves one node."""

import argparse
from pathlib import Path

HELP = "serves one node of a testbed"
EXAMPLE = "cluster-exp worker --master 127.0.0.1:4000 --node n0 --gpus 4"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the verb's options: those of `runtime.worker_main`, named here so that --help needs no gRPC."""
    parser.add_argument("--master", required=True, metavar="HOST:PORT", help="where the master listens")
    parser.add_argument("--node", required=True, help="this node's name in the cluster's description")
    parser.add_argument("--gpus", required=True, type=int, metavar="N", help="GPUs of this node")
    parser.add_argument("--gpu-type", default="", help="their type, if the cluster's description names one")
    parser.add_argument("--host", default="127.0.0.1", help="where it listens; beyond loopback: with --tls")
    parser.add_argument("--tls", type=Path, metavar="DIR", help="ca.pem, cert.pem and key.pem of this host")
    parser.add_argument("--token-file", type=Path, metavar="FILE", help="tokens of a worker (docs/security.md)")
    parser.add_argument(
        "--trust-network", action="store_true", help="let gradients cross the network between nodes, in clear"
    )
    parser.add_argument("--log-dir", type=Path, help="where logs go; default: a new temporary folder")
    parser.add_argument("--scratch", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--parent", type=int, help=argparse.SUPPRESS)


def run(arguments: argparse.Namespace) -> int:
    """Serves until the master says that the run is over."""
    import logging

    from cluster_exp.runtime.worker_main import config_from, worker_main

    logging.getLogger().setLevel(logging.INFO)
    return worker_main(config_from(arguments), arguments.parent)
