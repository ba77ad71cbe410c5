"""The worker's command line: `python -m cluster_exp.runtime.worker_main` and the verb `worker`."""

import argparse
import asyncio
import ctypes
import logging
import os
import signal
import sys
import tempfile
from pathlib import Path

from cluster_exp.domain.errors import InputError
from cluster_exp.runtime.fields import FieldError, address
from cluster_exp.runtime.security.access import Role, check_address, load_access
from cluster_exp.runtime.worker import Worker, WorkerConfig, WorkerRefusedError

_PR_SET_PDEATHSIG = 1
_SWITCH_INTERVAL_S = 0.0005  # the thread of the turns must not wait long for that of gRPC
_log = logging.getLogger(__name__)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds a worker's options to a parser."""
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


def config_from(arguments: argparse.Namespace) -> WorkerConfig:
    """A worker's configuration from parsed options. Raises InputError for one that is unusable."""
    try:
        address("--master", arguments.master)
    except FieldError as error:
        raise InputError(str(error)) from None
    if arguments.gpus < 1:
        raise InputError(f"{arguments.gpus} given, at least 1 allowed", where="--gpus")
    access = load_access(arguments.tls, arguments.token_file)
    check_address("--master", arguments.master, access)
    check_address("--host", f"{arguments.host}:0", access)
    if access is not None:
        access.token(Role.WORKER)
    log_dir = arguments.log_dir or Path(tempfile.mkdtemp(prefix="cluster-exp-worker-"))
    log_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    return WorkerConfig(
        arguments.master,
        arguments.node,
        arguments.gpus,
        log_dir.resolve(),
        gpu_type=arguments.gpu_type,
        host=arguments.host,
        access=access,
        scratch=arguments.scratch,
        trust_network=arguments.trust_network,
    )


def worker_main(config: WorkerConfig, parent_pid: int | None = None) -> int:
    """Runs a worker until it is told to leave; returns the exit code.

    SIGTERM and SIGINT let its trainers finish their iteration first; a second one, or SIGHUP, ends them at once.

    With a parent's process id it leaves when that process dies.

    Raises:
        InputError: the master does not want this worker.
    """
    if parent_pid is not None:
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGHUP)
        if os.getppid() != parent_pid:
            return 1
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    try:
        asyncio.run(_serve(config))
    except WorkerRefusedError as error:
        raise InputError(f"the master refused this worker: {error}") from None
    return 0


async def _serve(config: WorkerConfig) -> None:
    worker = Worker(config)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, worker.drain)
    loop.add_signal_handler(signal.SIGHUP, worker.stop)  # its terminal, or the run that started it, is gone
    await worker.run()


def main(argv: list[str]) -> int:
    """Parses options and runs a worker."""
    parser = argparse.ArgumentParser(prog="cluster-exp worker", description="Serves one node.")
    add_arguments(parser)
    arguments = parser.parse_args(argv)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    try:
        return worker_main(config_from(arguments), arguments.parent)
    except InputError as error:
        _log.error("%s", error)
        return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
