"""How well one master keeps up with a large cluster: real master, real workers over gRPC, trainers that are timers.

Jobs of one GPU are submitted one by one at a fixed rate. They fill the cluster, then all run together and report an
iteration each in every second; as they end, the other jobs take their places. No job is submitted while all GPUs are
taken, so the time from its submission to its launch is the control plane's alone.

Exit codes: 0 every job is accounted for, 1 one is not or the run broke down, 2 the options or the limit of open files
do not allow it, 130 stopped by Ctrl-C.
"""

import argparse
import asyncio
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from control_plane_kit.driver import Driver, Log, RunError, Size
from control_plane_kit.hosts import files_needed as host_files
from control_plane_kit.master import files_needed as master_files
from control_plane_kit.process import LimitError, raise_open_files
from control_plane_kit.verdict import accounted, table
from tqdm import tqdm

EXAMPLE = "example: python benchmarks/control_plane.py --workers 40 --jobs 400 --seconds 5 --rate 100"


def main(argv: Sequence[str] | None = None) -> int:
    size, profile = parse(argv)
    try:
        raise_open_files(max(host_files(-(-size.workers // size.hosts)), master_files(size.workers)))
    except LimitError as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    with tempfile.TemporaryDirectory(prefix="cluster-exp-bench-") as folder:
        try:
            return asyncio.run(bench(size, Path(folder), profile))
        except RunError as error:
            sys.stderr.write(f"error: {error}\n")
            return 1
        except (asyncio.CancelledError, KeyboardInterrupt):
            sys.stderr.write("stopped\n")
            return 130


async def bench(size: Size, folder: Path, profile: Path | None) -> int:
    """Runs it and prints the table; returns the exit code."""
    this = asyncio.current_task()
    assert this is not None
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, this.cancel)
    terminal = sys.stderr.isatty()
    with tqdm(
        total=size.jobs,
        desc=f"{size.workers} workers, {size.workers * size.gpus} GPUs",
        unit="job",
        mininterval=0.2 if terminal else 5.0,
        ascii=not terminal,
        ncols=None if terminal else 110,
    ) as bar:
        driver = Driver(size, folder, profile, lambda log: show(bar, log))
        await driver.run()
        show(bar, driver.log)
    print("\n".join(table(size, driver.log)))
    lost = accounted(size, driver.log, folder / "run")
    for line in lost:
        sys.stderr.write(f"error: {line}\n")
    return 1 if lost else 0


def show(bar: "tqdm[None]", log: Log) -> None:
    if not log.samples or not log.samples[-1].running:
        bar.set_postfix_str("waiting for the workers", refresh=False)
    else:
        bar.set_postfix_str(f"running {len(log.launched_s) - len(log.ended)}", refresh=False)
    bar.update(len(log.ended) - bar.n)


def parse(argv: Sequence[str] | None) -> tuple[Size, Path | None]:
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=EXAMPLE, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--workers", type=positive, default=1000, metavar="N", help="nodes, each with its worker (1000)")
    add("--gpus-per-worker", type=positive, default=8, metavar="N", help="emulated GPUs of each (8)")
    add("--jobs", type=positive, default=10_000, metavar="N", help="jobs of one GPU (10000)")
    add("--seconds", type=positive, default=20, metavar="S", help="how long all GPUs are to be busy (20)")
    add("--rate", type=positive, default=200, metavar="N", help="jobs submitted in a second (200)")
    add("--hosts", type=positive, default=2, metavar="N", help="processes that hold the workers (2)")
    add("--policy", default="fifo", metavar="NAME", help="what decides (fifo)")
    add("--profile", type=Path, metavar="FILE", help="write a profile (pstats) of the master's loop, which slows it")
    given = parser.parse_args(argv)
    size = Size(
        given.workers,
        given.gpus_per_worker,
        given.jobs,
        given.seconds,
        given.rate,
        min(given.hosts, given.workers),
        given.policy,
    )
    return size, given.profile


def positive(text: str) -> int:
    """A whole number of at least 1."""
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text!r} given; allowed: a whole number from 1 on")
    return value


if __name__ == "__main__":
    sys.exit(main())
