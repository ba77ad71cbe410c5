"""How long a turn takes to change hands, against a bare ping-pong over a Unix socket on the same machine.

Two trainers want the same GPU all the time. A hand-over lasts from the instant at which one ends its stage to that
at which the other's begins: release, decision, grant. A ping-pong is one small message there and one back. A relay is
a process that only passes each message on: what a hand-over through a third process lasts at least.

The ends of a ping-pong that are left to the system may lie on one core, where a message is a change of context, or on
two, where a sleeping core has to be woken; two runs may differ by a factor of ten. A trainer that ends its stage goes
on computing, so a hand-over always goes to another core: its measure is the ping-pong between two cores.

Prints microseconds and the ratios of the medians.
"""

import argparse
import contextlib
import csv
import itertools
import multiprocessing
import os
import selectors
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


def keep_to(core: int | None) -> None:
    """Binds this process to a core, by number among those that it may use; None = to none."""
    cores = sorted(os.sched_getaffinity(0))
    if core is not None:
        os.sched_setaffinity(0, {cores[core % len(cores)]})


def echo(address: str, core: int | None) -> None:
    keep_to(core)
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(address)
        while data := sock.recv(4096):
            sock.sendall(data)


def ping_pong_us(folder: Path, rounds: int, gap_s: float = 0.0, two_cores: bool = False) -> list[float]:
    """Round trips to another process, in microseconds, `gap_s` apart."""
    address = str(folder / "echo")
    (folder / "echo").unlink(missing_ok=True)
    here = os.sched_getaffinity(0)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen()
        child = multiprocessing.get_context("spawn").Process(target=echo, args=(address, 1 if two_cores else None))
        child.start()
        keep_to(0 if two_cores else None)
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
    os.sched_setaffinity(0, here)
    return trips[rounds // 10 :]


def pass_on(address: str) -> None:
    """The relay: what one of its two clients says goes to the other."""
    with socket.socket(socket.AF_UNIX) as listener, selectors.DefaultSelector() as selector:
        listener.bind(address)
        listener.listen()
        one, other = listener.accept()[0], listener.accept()[0]
        for here, there in ((one, other), (other, one)):
            selector.register(here, selectors.EVENT_READ, there)
        one.sendall(MESSAGE)
        while True:
            for key, _ in selector.select():
                data = key.fileobj.recv(4096)
                if not data:
                    return
                with contextlib.suppress(BrokenPipeError):  # the other has had all its turns
                    key.data.sendall(data)


def take_relayed(address: str, rounds: int, ends) -> None:
    """Holds each turn that the relay brings; tells when turns began and ended."""
    held = []
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(address)
        for _ in range(rounds):
            if not sock.recv(4096):
                break
            start_ns = time.monotonic_ns()
            time.sleep(HOLD_S)
            end_ns = time.monotonic_ns()
            held.append((start_ns, end_ns))
            with contextlib.suppress(BrokenPipeError):  # the other has had all its turns
                sock.sendall(MESSAGE)
    ends.send(held)


def relayed_us(folder: Path, rounds: int) -> list[float]:
    """As `handovers_us`, with a relay where the turn server is."""
    spawn = multiprocessing.get_context("spawn")
    address = str(folder / "relay")
    relay = spawn.Process(target=pass_on, args=(address,))
    relay.start()
    while not (folder / "relay").exists():
        time.sleep(0.01)
    pipes = [spawn.Pipe() for _ in JOBS]
    children = [spawn.Process(target=take_relayed, args=(address, rounds, there)) for _, there in pipes]
    for child in children:
        child.start()
    held = sorted(turn for here, _ in pipes for turn in here.recv())
    for child in (*children, relay):
        child.join()
    times = [(after[0] - before[1]) / 1e3 for before, after in itertools.pairwise(held)]
    return times[len(times) // 10 :]


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
    print(f"{name:<44}{median:>10.1f}{cuts[89]:>10.1f}{cuts[98]:>10.1f}{len(times_us):>8}")
    return median


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=2000, help="hand-overs to measure")
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        apart = f", {GAP_S * 1e3:g} ms apart"
        measured = {
            "ping-pong": ping_pong_us(folder, rounds),
            f"ping-pong{apart}": ping_pong_us(folder, rounds, GAP_S),
            "ping-pong between cores": ping_pong_us(folder, rounds, two_cores=True),
            f"ping-pong between cores{apart}": ping_pong_us(folder, rounds, GAP_S, two_cores=True),
            "relay": relayed_us(folder, rounds // 2),
        }
        handed = handovers_us(folder, rounds // 2)
    print(f"{'microseconds':<44}{'median':>10}{'p90':>10}{'p99':>10}{'n':>8}")
    medians = {name: describe(name, times) for name, times in measured.items()}
    handed_us = describe(f"hand-over, stages of {HOLD_S * 1e3:g} ms", handed)
    for name, median in medians.items():
        print(f"hand-over / {name} = {handed_us / median:.2f}")


if __name__ == "__main__":
    main()
