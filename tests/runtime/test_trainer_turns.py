"""Emulated trainers, as real processes, taking turns through a real turn server."""

import csv
import itertools
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from cluster_exp.domain.profile import StageProfile
from cluster_exp.interleave.cycle import lockstep_cycle_s
from cluster_exp.protocol.turn_token import turn_token
from cluster_exp.runtime.turn_server import TrainerDone, TrainerEvent, TrainerStarted, TrainerStopped, TurnServer

pytestmark = pytest.mark.live
DEADLINE_S = 20.0
ATTEMPTS = 3  # for what takes as long as it should only while nothing else wants the machine


@dataclass
class Interval:
    job: str
    resource: str
    iteration: int
    start_s: float
    end_s: float
    turn: bool


class Bench:
    """A turn server, the trainers started on it, and what they said."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.events: list[TrainerEvent] = []
        self.changed = threading.Condition()
        self.server = TurnServer(directory / "turns.sock", self._take)
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.versions = 0
        self.server.start()

    def _take(self, event: TrainerEvent) -> None:
        with self.changed:
            self.events.append(event)
            self.changed.notify_all()

    def until(self, condition: Callable[[list[TrainerEvent]], bool]) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: condition(self.events), DEADLINE_S), self.events

    def group(self, members: dict[str, int], batch: int = 1, generation: int = 1) -> None:
        self.versions += 1
        self.server.set_group(7, self.versions, [((job, generation), o) for job, o in members.items()], batch)

    def start(
        self,
        job: str,
        profile: StageProfile,
        iterations: int,
        *,
        done: int = 0,
        generation: int = 1,
        rank: int = 0,
        world: int = 1,
        tcp: bool = False,
    ) -> None:
        self.server.expect(job, generation)
        env = os.environ | {
            "CLUSTER_EXP_JOB_ID": job,
            "CLUSTER_EXP_GENERATION": str(generation),
            "CLUSTER_EXP_RANK": str(rank),
            "CLUSTER_EXP_WORLD": str(world),
            "CLUSTER_EXP_WORKER": self.server.address,
            "CLUSTER_EXP_ARBITER": f"tcp:{self.server.tcp_address}" if tcp else self.server.address,
            "CLUSTER_EXP_TURNS_TOKEN": turn_token(self.server.key, job, generation),
            "CLUSTER_EXP_ITERATIONS": str(iterations),
            "CLUSTER_EXP_ITERATIONS_DONE": str(done),
            "CLUSTER_EXP_STAGE_LOG": str(self.directory / f"{job}-{generation}-{rank}.csv"),
        }
        stages = ("iteration", "storage", "cpu", "gpu", "network")
        times = [f"--{stage}-s={getattr(profile, stage + '_s')}" for stage in stages]
        argv = [sys.executable, "-m", "cluster_exp.runtime.emulated", *times, "--time-scale=1", "--min-cycle-s=0.05"]
        self.processes[f"{job}-{generation}-{rank}"] = subprocess.Popen(argv, env=env)

    def wait(self, name: str) -> int:
        return self.processes[name].wait(DEADLINE_S)

    def intervals(self, name: str) -> list[Interval]:
        with open(self.directory / f"{name}.csv", newline="") as file:
            return [
                Interval(
                    row["job_id"],
                    row["resource"],
                    int(row["iteration"]),
                    int(row["start_ns"]) / 1e9,
                    int(row["end_ns"]) / 1e9,
                    row["turn"] == "1",
                )
                for row in csv.DictReader(file)
            ]

    def close(self) -> None:
        for process in self.processes.values():
            process.kill()
            process.wait(DEADLINE_S)
        self.server.close()


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path)
    yield bench
    bench.close()


def assert_nobody_shares(intervals: list[Interval]) -> None:
    """No two jobs hold one resource at once (the members of one group)."""
    for resource in ("storage", "cpu", "gpu", "network"):
        held = sorted((i.start_s, i.end_s, i.job) for i in intervals if i.resource == resource)
        for (_, end_s, job), (start_s, _, other) in itertools.pairwise(held):
            assert job == other or start_s >= end_s, (resource, job, other, end_s - start_s)


def cycle_s(intervals: list[Interval]) -> float:
    """Median distance of the starts of one job's gpu stages taken in turns, without the first and last."""
    starts = [i.start_s for i in intervals if i.resource == "gpu" and i.turn][1:-1]
    gaps = sorted(b - a for a, b in itertools.pairwise(starts))
    return gaps[len(gaps) // 2]


@pytest.mark.parametrize("size", [2, 4])
def test_a_lockstep_cycle_lasts_as_long_as_the_formula_says(bench: Bench, size: int) -> None:
    profiles = [
        StageProfile(0.12, 0.01, 0.05, 0.04, 0.02),
        StageProfile(0.10, 0.03, 0.01, 0.05, 0.01),
        StageProfile(0.09, 0.02, 0.02, 0.03, 0.02),
        StageProfile(0.08, 0.01, 0.03, 0.02, 0.02),
    ][:size]
    offsets = (0, 2, 1, 3)[:size]
    expected_s = lockstep_cycle_s(profiles, offsets)
    for generation in range(1, ATTEMPTS + 1):
        logs = run_together(bench, profiles, offsets, generation)
        assert_nobody_shares([interval for log in logs for interval in log])
        assert [len(log) for log in logs] == [14 * 4] * size
        measured = [cycle_s(log) for log in logs]
        if measured == pytest.approx([expected_s] * size, rel=0.05):
            break
    assert measured == pytest.approx([expected_s] * size, rel=0.05)


def run_together(
    bench: Bench, profiles: list[StageProfile], offsets: tuple[int, ...], generation: int
) -> list[list[Interval]]:
    """Runs 14 iterations of each job; returns what their stage logs say."""
    jobs = [f"j{i}" for i in range(len(profiles))]
    bench.group(dict(zip(jobs, offsets, strict=True)), generation=generation)
    for job, profile in zip(jobs, profiles, strict=True):
        bench.start(job, profile, 14, generation=generation)
    names = [f"{job}-{generation}-0" for job in jobs]
    assert [bench.wait(name) for name in names] == [0] * len(jobs)
    bench.until(lambda events: sum(isinstance(event, TrainerDone) for event in events) == generation * len(jobs))
    assert all(event.iterations_done == 14 for event in bench.events if isinstance(event, TrainerDone))
    for job in jobs:
        bench.server.forget_job(job, generation)
    return [bench.intervals(name) for name in names]


def test_a_job_alone_runs_at_its_own_speed_and_asks_for_nothing(bench: Bench) -> None:
    overlapping = StageProfile(0.06, 0.0, 0.05, 0.05, 0.0)
    for generation in range(1, ATTEMPTS + 1):
        (log,) = run_together(bench, [overlapping], (0,), generation)
        assert not any(interval.turn for interval in log)
        lasted_s = log[-1].end_s - log[0].start_s
        if lasted_s == pytest.approx(14 * 0.06, rel=0.05):
            break
    assert lasted_s == pytest.approx(14 * 0.06, rel=0.05)


def test_company_that_comes_and_goes_never_overlaps(bench: Bench) -> None:
    busy = StageProfile(0.06, 0.01, 0.02, 0.02, 0.01)
    bench.group({"a": 0})
    bench.start("a", busy, 30)
    bench.until(lambda events: any(isinstance(event, TrainerStarted) for event in events))
    bench.group({"a": 3, "b": 1})
    bench.start("b", busy, 5)
    assert bench.wait("b-1-0") == 0
    bench.group({"a": 0})
    assert bench.wait("a-1-0") == 0
    first, second = bench.intervals("a-1-0"), bench.intervals("b-1-0")
    assert_nobody_shares(first + second)
    turns = [interval.turn for interval in first]
    assert not turns[0]
    assert not turns[-1]
    assert any(turns)
    assert all(interval.turn for interval in second)


def test_a_killed_member_frees_what_it_held(bench: Bench) -> None:
    busy = StageProfile(0.06, 0.01, 0.02, 0.02, 0.01)
    bench.group({"a": 0, "b": 2})
    bench.start("a", busy, 20)
    bench.start("b", busy, 1000)
    bench.until(lambda events: len([event for event in events if isinstance(event, TrainerStarted)]) == 2)
    bench.processes["b-1-0"].send_signal(signal.SIGKILL)
    assert bench.wait("a-1-0") == 0
    assert len([i for i in bench.intervals("a-1-0") if i.resource == "gpu"]) == 20


def test_a_stopped_job_leaves_at_a_boundary_and_goes_on_where_it_was(bench: Bench) -> None:
    busy = StageProfile(0.05, 0.01, 0.02, 0.01, 0.01)
    bench.group({"a": 0})
    bench.start("a", busy, 20)
    bench.until(lambda events: any(event.iterations_done >= 4 for event in events))
    bench.server.stop_job("a", 1)
    assert bench.wait("a-1-0") == 0
    stopped = next(event for event in bench.events if isinstance(event, TrainerStopped))
    assert 4 <= stopped.iterations_done < 20
    bench.server.forget_job("a", 1)
    bench.group({"a": 0}, generation=2)
    bench.start("a", busy, 20, done=stopped.iterations_done, generation=2)
    assert bench.wait("a-2-0") == 0
    iterations = [i.iteration for name in ("a-1-0", "a-2-0") for i in bench.intervals(name) if i.resource == "gpu"]
    assert iterations == list(range(20))


def test_processes_of_one_job_stop_at_the_same_iteration(bench: Bench, tmp_path: Path) -> None:
    """Two processes, one of them through TCP, beside another job: they hold stages together and leave together."""
    busy = StageProfile(0.06, 0.01, 0.02, 0.02, 0.01)
    bench.group({"wide": 0, "b": 2})
    bench.start("wide", busy, 1000, rank=0, world=2)
    bench.start("wide", busy, 1000, rank=1, world=2, tcp=True)
    bench.start("b", busy, 8)
    assert bench.wait("b-1-0") == 0
    bench.server.stop_job("wide", 1)
    assert bench.wait("wide-1-0") == 0
    assert bench.wait("wide-1-1") == 0
    stopped = {event.iterations_done for event in bench.events if isinstance(event, TrainerStopped)}
    assert len(stopped) == 1
    logs = [bench.intervals(name) for name in ("wide-1-0", "wide-1-1", "b-1-0")]
    assert_nobody_shares([interval for log in logs for interval in log])
    assert len(logs[0]) == len(logs[1])


@pytest.mark.parametrize(("signum", "codes"), [(signal.SIGTERM, {0}), (signal.SIGKILL, {0, -signal.SIGKILL})])
def test_one_process_that_leaves_or_dies_takes_its_whole_job_out(bench: Bench, signum: int, codes: set[int]) -> None:
    busy = StageProfile(0.06, 0.01, 0.02, 0.02, 0.01)
    bench.group({"wide": 0, "b": 2})
    for rank in range(2):
        bench.start("wide", busy, 1000, rank=rank, world=2)
    bench.start("b", busy, 12)
    bench.until(lambda events: len([event for event in events if isinstance(event, TrainerStarted)]) == 3)
    bench.processes["wide-1-1"].send_signal(signum)
    assert {bench.wait("wide-1-0"), bench.wait("wide-1-1")} == codes
    assert bench.wait("b-1-0") == 0
    stopped = [event.iterations_done for event in bench.events if isinstance(event, TrainerStopped)]
    assert len(stopped) == (2 if signum == signal.SIGTERM else 1)
    assert len(set(stopped)) == 1
    assert_nobody_shares(bench.intervals("wide-1-0") + bench.intervals("b-1-0"))


def test_a_server_that_breaks_down_lets_its_trainers_go(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    def break_down(event: TrainerEvent) -> None:
        raise RuntimeError("nobody can listen")

    bench.server._on_event = break_down
    bench.group({"a": 0})
    bench.start("a", StageProfile(0.05, 0.01, 0.02, 0.01, 0.01), 1000)
    assert bench.wait("a-1-0") == 1
    assert "the turn server broke down" in caplog.text


def test_a_job_that_is_stopped_before_it_came_leaves_at_once(bench: Bench) -> None:
    bench.group({"a": 0})
    bench.server.stop_job("a", 1)
    bench.start("a", StageProfile(0.05, 0.01, 0.02, 0.01, 0.01), 20)
    assert bench.wait("a-1-0") == 0
    bench.until(lambda events: [type(event) for event in events] == [TrainerStopped])
    assert bench.events[0].iterations_done == 0


def test_strangers_and_nonsense_are_cut_off_alone(bench: Bench) -> None:
    bench.group({"a": 0})
    bench.start("a", StageProfile(0.05, 0.01, 0.02, 0.01, 0.01), 10)
    bench.until(lambda events: bool(events))
    hello = '{"t":"hello","v":2,"job":"a","generation":9,"rank":0,"world":1,"done":0,"turns":true}'
    for data, why in (
        (b"\xff\n", b"not a line of JSON"),
        (b"[" * 5000, b"longer than"),
        (b'{"t":"take","r":[7]}\n', b"allowed: a list of whole numbers in 0..3"),
        (b'{"t":"give"}\n', b"hello comes first"),
        (hello.encode() + b"\n", b"generation 9 is not expected here, generation 1 is"),
        (hello.replace('"a"', r'"\ud800"').encode() + b"\n", b"1 to 512 printable characters"),
        (hello.replace('"world":1', '"world":1,"helper":-1').encode() + b"\n", b"helper is -1, allowed"),
        (hello.replace('"a"', '"z"').encode() + b"\n", b"job z generation 9 is not expected here, no launch"),
        (hello.replace('"v":2', '"v":1').encode() + b"\n", b"protocol version 1"),
    ):
        with socket.socket(socket.AF_UNIX) as sock:
            sock.settimeout(DEADLINE_S)
            sock.connect(str(bench.directory / "turns.sock"))
            sock.sendall(data)
            assert why in sock.recv(4096)
    assert bench.wait("a-1-0") == 0


def test_closing_removes_the_socket_and_ends_the_trainers(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.group({"a": 0})
    bench.start("a", StageProfile(0.05, 0.01, 0.02, 0.01, 0.01), 1000)
    bench.until(lambda events: bool(events))
    bench.server.close()
    assert bench.wait("a-1-0") == 1
    assert not (tmp_path / "turns.sock").exists()
    bench.close()
