"""The time limit of a stage: who keeps one too long is passed over, and goes on when it gives back after all."""

import json
import queue
import socket
from contextlib import closing
from pathlib import Path

import pytest

from cluster_exp.protocol.turns import Arbiter, Discipline, Go, Granted, JobKey, Process, Stuck
from cluster_exp.runtime.turn_server import TrainerStuck, TurnServer

STORAGE, CPU, GPU, NETWORK = range(4)
A, B = Process(("a", 1), 0), Process(("b", 1), 0)


def pair(discipline: Discipline) -> Arbiter:
    arbiter = Arbiter()
    members: list[tuple[JobKey, int]] = [(A.job, 0), (B.job, 3)]
    arbiter.set_group(1, 1, members, 1, discipline)
    arbiter.join(A, 1)
    arbiter.join(B, 1)
    assert [*arbiter.ask(A), *arbiter.ask(B)] == [Go(A, True, 1), Go(B, True, 1)]
    return arbiter


@pytest.mark.parametrize("discipline", list(Discipline))
def test_a_stuck_holder_is_named_once_and_the_other_goes_on(discipline: Discipline):
    arbiter = pair(discipline)
    assert arbiter.take(A, STORAGE) == [Granted(A)]
    assert arbiter.take(B, STORAGE) == []
    assert arbiter.check_limit(100.0, 30.0) == ([], [])  # seen for the first time
    assert arbiter.check_limit(129.9, 30.0) == ([], [])
    assert arbiter.check_limit(130.0, 30.0) == ([Stuck(A.job, (0,), 1 << STORAGE, 30.0)], [Granted(B)])
    assert arbiter.check_limit(131.0, 30.0) == ([], [])
    arbiter.give(B)
    assert arbiter.take(B, CPU) == [Granted(B)]


@pytest.mark.parametrize("discipline", list(Discipline))
def test_a_late_give_leaves_turns_as_they_should_be(discipline: Discipline):
    arbiter = pair(discipline)
    arbiter.take(A, STORAGE)
    arbiter.take(B, STORAGE)
    arbiter.check_limit(0.0, 1.0)
    arbiter.check_limit(1.0, 1.0)  # b holds storage now, beside a
    assert arbiter.give(A) == []
    arbiter.take(A, CPU)
    holders: dict[Process, int] = {B: STORAGE}
    wanted = {A: CPU}
    if discipline is Discipline.WORK_CONSERVING:
        holders[A] = wanted.pop(A)  # cpu was free
    turns = {A: 1, B: 0}
    while min(turns.values()) < 12:  # ends: somebody always holds a turn
        assert len(set(holders.values())) == len(holders) > 0
        process = next(iter(holders))
        wanted[process] = (holders.pop(process) + 1) % 4
        turns[process] += 1
        messages = arbiter.give(process)
        if wanted[process] == STORAGE:
            messages += arbiter.ask(process)
        messages += arbiter.take(process, wanted[process])
        holders |= {m.to: wanted.pop(m.to) for m in messages if isinstance(m, Granted)}


def test_a_turn_given_back_in_time_begins_a_new_count():
    arbiter = pair(Discipline.LOCKSTEP)
    arbiter.take(A, STORAGE)
    arbiter.check_limit(0.0, 10.0)
    arbiter.give(A)
    arbiter.take(A, CPU)
    assert arbiter.check_limit(11.0, 10.0) == ([], [])


class Client:
    """A trainer's socket, line by line."""

    def __init__(self, server: TurnServer, path: Path, process: Process) -> None:
        server.expect(*process.job)
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(10.0)
        self.sock.connect(str(path))
        self.file = self.sock.makefile("rb")
        job_id, generation = process.job
        self.say(t="hello", v=2, job=job_id, generation=generation, rank=0, world=1, done=0, turns=True)

    def say(self, **fields: object) -> None:
        self.sock.sendall(json.dumps(fields).encode() + b"\n")

    def hear(self) -> str:
        return str(json.loads(self.file.readline())["t"])

    def close(self) -> None:
        self.file.close()
        self.sock.close()


@pytest.mark.live
def test_the_server_names_the_stuck_process(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    stuck: queue.Queue[TrainerStuck] = queue.Queue()
    path = tmp_path / "turns"
    server = TurnServer(path, lambda event: None, stage_limit_s=0.2, on_stuck=stuck.put)
    server.start()
    server.set_group(1, 1, [(A.job, 0), (B.job, 3)], 1)
    with closing(server), closing(Client(server, path, A)) as a:
        a.say(t="ask", done=0)
        assert a.hear() == "go"  # free: nobody else is there
        with closing(Client(server, path, B)) as b:
            b.say(t="ask", done=0)
            assert a.hear() == "look"
            a.say(t="ask", done=1)
            assert (a.hear(), b.hear()) == ("go", "go")
            a.say(t="take", r=[STORAGE])
            assert a.hear() == "granted"
            b.say(t="take", r=[STORAGE])
            assert b.hear() == "granted"  # though a has not given it back
            event = stuck.get(timeout=10.0)
            assert (event.job_id, event.rank, event.resource) == ("a", 0, "storage")
            assert event.held_s >= 0.2
            assert "job a (rank 0) has kept storage for" in caplog.text
            a.say(t="give")
            a.say(t="take", r=[CPU])
            b.close()
            assert a.hear() == "granted"
