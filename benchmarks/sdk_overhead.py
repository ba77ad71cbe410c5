"""What the trainer SDK adds to an iteration of 50 ms: its stages, turns, times, and reports.

A loop computes for 12.5 ms in each of its four stages; what an iteration lasts beyond that is the SDK's. Measured
outside a cluster, in a cluster without company, and with turns (another member of the group is there and asks for
none, so that waiting for it does not count). The turn server has a process of its own. Beside it stands what the
machine takes for the same number of bare messages there and back, as far apart.

Prints microseconds an iteration, and the share of 50 ms.
"""

import argparse
import multiprocessing
import statistics
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path

from cluster_exp.domain.resources import Resource
from cluster_exp.protocol.turns import Discipline
from cluster_exp.runtime.trainer import Trainer
from cluster_exp.runtime.trainer.sdk import Identity
from cluster_exp.runtime.turn_server import TurnServer

ITERATION_S = 0.05
TARGET = 0.01
ROUND_TRIPS = 5  # with turns: one that asks whether to go on, four for turns
JOBS = ("measured", "silent")


def serve(folder: str, ends: Connection) -> None:
    """A turn server of one group, until the other end of the pipe says something."""
    server = TurnServer(Path(folder) / "turns", lambda event: None, discipline=Discipline.WORK_CONSERVING)
    server.start()
    server.set_group(1, 1, [((job, 1), 2 * i) for i, job in enumerate(JOBS)], 1)
    server.set_group(2, 1, [(("alone", 1), 0)], 1)
    for job in (*JOBS, "alone"):
        server.expect(job, 1)
    ends.send(server.address)
    ends.recv()
    server.close()


def work(length_s: float) -> float:
    """Computes for a while; returns how long it was."""
    start_s = now_s = time.perf_counter()
    until_s = start_s + length_s
    while now_s < until_s:
        sum(range(200))
        now_s = time.perf_counter()
    return now_s - start_s


def overheads_us(trainer: Trainer, iterations: int, warm_up: int = 5) -> list[float]:
    """What the iterations last beyond their work, in microseconds."""
    found = []
    for _ in range(iterations + warm_up):
        start_s = time.perf_counter()
        trainer.begin_iteration()
        worked_s = 0.0
        for resource in Resource:
            with trainer.stage(resource):
                worked_s += work(ITERATION_S / len(Resource))
        trainer.end_iteration()
        found.append((time.perf_counter() - start_s - worked_s) * 1e6)
    return found[warm_up:]


def echo(ends: Connection) -> None:
    """Sends back what it gets, until that is empty."""
    while data := ends.recv_bytes():
        ends.send_bytes(data)


def round_trips_us(iterations: int) -> list[float]:
    """`ROUND_TRIPS` bare messages there and back, spread over an iteration, in microseconds together."""
    here, there = multiprocessing.get_context("spawn").Pipe()
    child = multiprocessing.get_context("spawn").Process(target=echo, args=(there,))
    child.start()
    here.send_bytes(b"up")
    here.recv_bytes()
    found = []
    for _ in range(iterations):
        trips_s = 0.0
        for _ in range(ROUND_TRIPS):
            work(ITERATION_S / ROUND_TRIPS)
            start_s = time.perf_counter()
            here.send_bytes(b"take")
            here.recv_bytes()
            trips_s += time.perf_counter() - start_s
        found.append(trips_s * 1e6)
    here.send_bytes(b"")
    child.join()
    return found


def told(name: str, found: list[float]) -> float:
    """Prints a row; returns the median's share of an iteration."""
    median_us = statistics.median(found)
    share = median_us / (ITERATION_S * 1e6)
    print(f"{name:24} median {median_us:7.1f} us  mean {statistics.fmean(found):7.1f} us  {share:.2%} of 50 ms")
    return share


def identity(job: str, address: str) -> Identity:
    """A trainer of one process that never ends."""
    return Identity(job, 1, 0, 1, address, address, 10**9, 0)


def main() -> int:
    """Prints the table; returns 1 when the share of an iteration is above the target."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--iterations", type=int, default=100, help="of each kind (default 100: 15 s in all)")
    iterations = parser.parse_args().iterations
    here, there = multiprocessing.get_context("spawn").Pipe()
    with tempfile.TemporaryDirectory() as folder:
        child = multiprocessing.get_context("spawn").Process(target=serve, args=(folder, there))
        child.start()
        address = here.recv()
        silent = Trainer(identity("silent", address))
        trainers = {
            "outside a cluster": Trainer(None),
            "without company": Trainer(identity("alone", address)),
            "with turns": Trainer(identity("measured", address)),
        }
        passed = True
        for name, trainer in trainers.items():
            found = overheads_us(trainer, iterations)
            if trainer.turns != (name == "with turns"):
                raise RuntimeError(f"{name}: turns are {trainer.turns}")
            passed &= told(name, found) <= TARGET
        told(f"({ROUND_TRIPS} bare round trips)", round_trips_us(iterations))
        print(f"at most {TARGET:.0%} in each: {'yes' if passed else 'NO'}")
        for trainer in (*trainers.values(), silent):
            trainer.close()
        here.send("over")
        child.join()
    return 0 if passed else 1


if __name__ == "__main__":
    raise SystemExit(main())
