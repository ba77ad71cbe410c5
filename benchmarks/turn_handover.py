"""How long a turn takes to change hands, against a bare ping-pong over a Unix socket on the same machine.

Two trainers want the same GPU all the time. A hand-over lasts from the instant at which one ends its stage to that
at which the other's begins: release, decision, grant. A ping-pong is one small message there and one back.

Prints microseconds and the ratio of the medians.
"""

import argparse
import csv
import itertools
import multiprocessing
import socket
import statistics
import tempfile
import time
from multiprocessing.connection import wait
from pathlib import Path

from cluster_exp.domain.resources import Resource
from cluster_exp.protocol.turns import Discipline
from cluster_exp.runtime.trainer import Trainer
from cluster_exp.runtime.trainer.sdk import Identity
from cluster_exp.runtime.turn_server import TurnServer

HOLD_S = 0.0005
GAP_S = 0.0005
MESSAGE = b'{"t":"give"}\n'
JOBS = ("a", "b")


def echo(address: str) -> None:
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(address)
        while data := sock.recv(4096):
            sock.sendall(data)


def ping_pong_us(folder: Path, rounds: int, gap_s: float) -> list[float]:
    """Round trips to another process, in microseconds, `gap_s` apart."""
    address = str(folder / "echo")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen()
        child = multiprocessing.get_context("spawn").Process(target=echo, args=(address,))
        child.start()
        peer, _ = listener.accept()
    trips = []
    with peer:
        for _ in range(rounds):
            if gap_s:
                time.sleep(gap_s)
            start_ns = time.perf_counter_ns()
            peer.sendall(MESSAGE)
            peer.recv(4096)
            trips.append((time.perf_counter_ns() - start_ns) / 1e3)
    child.join()
    return trips[rounds // 10 :]


def train(address: str, job: str, iterations: int, log: str) -> None:
    trainer = Trainer(Identity(job, 1, 0, 1, address, address, iterations, 0, stage_log=log))
    while trainer.begin_iteration():
        with trainer.stage(Resource.GPU):
            time.sleep(HOLD_S)
        trainer.end_iteration()
    trainer.close()


def handovers_us(folder: Path, rounds: int) -> list[float]:
    """From the end of one job's gpu stage to the begin of the other's, in microseconds."""
    server = TurnServer(folder / "turns", lambda event: None, discipline=Discipline.WORK_CONSERVING)
    server.start()
    server.set_group(1, 1, [((job, 1), 2 * i) for i, job in enumerate(JOBS)], 1)
    logs = [folder / f"{job}.csv" for job in JOBS]
    spawn = multiprocessing.get_context("spawn")
    children = []
    for job, log in zip(JOBS, logs, strict=True):
        server.expect(job, 1)
        children.append(spawn.Process(target=train, args=(server.address, job, rounds, str(log))))
        children[-1].start()
    wait([child.sentinel for child in children])
    for child in children:
        child.join()
    server.close()
    held = []
    for log in logs:
        with open(log, newline="") as file:
            held += [
                (int(row["start_ns"]), int(row["end_ns"]), row["job_id"])
                for row in csv.DictReader(file)
                if row["turn"] == "1"
            ]
    held.sort()
    times = [(b[0] - a[1]) / 1e3 for a, b in itertools.pairwise(held) if a[2] != b[2]]
    return times[len(times) // 10 :]


def describe(name: str, times_us: list[float]) -> float:
    """Prints one row; returns the median in microseconds."""
    cuts = statistics.quantiles(times_us, n=100)
    median = statistics.median(times_us)
    print(f"{name:<36}{median:>10.1f}{cuts[89]:>10.1f}{cuts[98]:>10.1f}{len(times_us):>8}")
    return median


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=2000, help="hand-overs to measure")
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        tight = ping_pong_us(folder, rounds, 0.0)
        (folder / "echo").unlink()
        spaced = ping_pong_us(folder, rounds, GAP_S)
        handed = handovers_us(folder, rounds // 2)
    print(f"{'microseconds':<36}{'median':>10}{'p90':>10}{'p99':>10}{'n':>8}")
    ping_us = describe("ping-pong", tight)
    spaced_us = describe(f"ping-pong, {GAP_S * 1e3:g} ms apart", spaced)
    handed_us = describe(f"hand-over, stages of {HOLD_S * 1e3:g} ms", handed)
    print(f"hand-over / ping-pong = {handed_us / ping_us:.2f}; apart = {handed_us / spaced_us:.2f}")


if __name__ == "__main__":
    main()
