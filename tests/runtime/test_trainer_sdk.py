"""What a training loop can rely on, and what it is told when it does something else."""

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster_exp.domain.resources import Resource
from cluster_exp.protocol.turn_token import turn_token
from cluster_exp.protocol.turn_wire import _FREQUENT, GRANTED_LINE, parse_trainer_line
from cluster_exp.runtime.trainer import Trainer, WorkerLostError
from cluster_exp.runtime.trainer.connection import Connection
from cluster_exp.runtime.trainer.identity import STAGE_LOG_HEADER, Identity
from cluster_exp.runtime.turn_server import TrainerDone, TrainerEvent, TurnServer

DEADLINE_S = 20.0
JOBS = ("a", "b")


@pytest.fixture
def events() -> list[TrainerEvent]:
    return []


@pytest.fixture
def server(tmp_path: Path, events: list[TrainerEvent]) -> Iterator[TurnServer]:
    server = TurnServer(tmp_path / "turns", events.append)
    server.start()
    server.set_group(1, 1, [((job, 1), 2 * i) for i, job in enumerate(JOBS)], 1)
    for job in JOBS:
        server.expect(job, 1)
    yield server
    server.close()


def identity(server: TurnServer, job: str = "a", **others: object) -> Identity:
    values = {"iterations": 4, "iterations_done": 0, **others}
    return Identity(job, 1, 0, 1, server.address, server.address, **values)  # type: ignore[arg-type]


def wait_for_done(events: list[TrainerEvent]) -> TrainerEvent:
    """A trainer's own word that it is done."""
    deadline_s = time.monotonic() + DEADLINE_S
    while not (done := [event for event in events if isinstance(event, TrainerDone)]):
        assert time.monotonic() < deadline_s, events
        time.sleep(0.005)
    return done[-1]


def test_outside_a_cluster_every_call_does_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CLUSTER_EXP_JOB_ID", raising=False)
    trainer = Trainer.from_env()
    for _ in range(3):
        assert trainer.begin_iteration()
        with trainer.stage(Resource.GPU):
            pass
        with trainer.stage(Resource.STORAGE):
            pass
        trainer.end_iteration()
    trainer.close()
    assert (trainer.iterations_done, trainer.remaining_iterations, trainer.turns) == (3, 0, False)


def test_a_resumed_trainer_does_what_is_left(server: TurnServer, events: list[TrainerEvent], tmp_path: Path) -> None:
    log = tmp_path / "stages.csv"
    trainer = Trainer(identity(server, iterations=7, iterations_done=5, gpus="0/1,0/2", stage_log=str(log)))
    while trainer.begin_iteration():
        with trainer.stage(Resource.CPU):
            pass
        trainer.end_iteration()
    trainer.close()
    assert wait_for_done(events).iterations_done == 7
    header, *rows = log.read_text().splitlines()
    assert header + "\n" == STAGE_LOG_HEADER
    assert [row.rsplit(",", 3)[0] for row in rows] == ["a,1,0,0/1 0/2,5,cpu", "a,1,0,0/1 0/2,6,cpu"]


def test_a_trainer_without_anything_to_do_is_done_at_once(server: TurnServer, events: list[TrainerEvent]) -> None:
    trainer = Trainer(identity(server, iterations=0))
    assert not trainer.begin_iteration()
    trainer.close()
    wait_for_done(events)
    assert len(events) == 1


def loop(server: TurnServer, job: str, body: str, together: threading.Barrier, done: list[str]) -> None:
    """Iterations of one shape: some stages only, none at all, or broken off in the middle."""
    trainer = Trainer(identity(server, job, iterations=6))
    together.wait(DEADLINE_S)
    while trainer.begin_iteration():
        if body == "breaks off" and trainer.iterations_done % 2:
            with trainer.stage(Resource.STORAGE):
                pass
            trainer.iterations_done += 1
            continue
        if body != "no stage":
            with trainer.stage(Resource.GPU):
                pass
        trainer.end_iteration()
    trainer.close()
    done.append(job)


@pytest.mark.parametrize("body", ["one stage", "no stage", "breaks off"])
def test_a_loop_that_leaves_stages_out_holds_nobody_up(server: TurnServer, body: str) -> None:
    together, done = threading.Barrier(2), []
    threads = [
        threading.Thread(target=loop, args=(server, job, shape, together, done), daemon=True)
        for job, shape in zip(JOBS, (body, "one stage"), strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE_S)
    assert sorted(done) == list(JOBS)


def test_stages_out_of_order_are_refused(server: TurnServer) -> None:
    trainer = Trainer(identity(server))
    trainer.begin_iteration()
    with trainer.stage(Resource.GPU):
        pass
    with pytest.raises(ValueError, match="stage CPU comes after stage gpu"), trainer.stage(Resource.CPU):
        pass
    trainer.close()


def test_a_stage_of_several_resources_counts_as_its_first_one(server: TurnServer, tmp_path: Path) -> None:
    log = tmp_path / "log"
    trainer = Trainer(Identity("a", 1, 0, 1, server.address, server.address, 1, 0, stage_log=str(log)))
    trainer.begin_iteration()
    with trainer.stage(Resource.CPU, Resource.STORAGE):
        pass
    with pytest.raises(ValueError, match="stage CPU comes after stage cpu"), trainer.stage(Resource.CPU):
        pass
    trainer.close()
    assert log.read_text().splitlines()[1].split(",")[5] == "storage+cpu"
    assert trainer._meter._stage_ns[Resource.CPU] > 0
    assert trainer._meter._stage_ns[Resource.STORAGE] == 0


def test_a_stage_that_fails_gives_its_turn_back(server: TurnServer) -> None:
    def fail(trainer: Trainer) -> None:
        with trainer.stage(Resource.STORAGE):
            raise ZeroDivisionError

    first, second = (Trainer(identity(server, job)) for job in JOBS)
    first.begin_iteration()  # runs free, or with turns when the other's greeting came before
    begun = threading.Thread(target=second.begin_iteration, daemon=True)
    begun.start()
    while not first.turns:
        first.end_iteration(0)
        first.begin_iteration()
    begun.join(DEADLINE_S)
    with pytest.raises(ZeroDivisionError):
        fail(first)
    first.close()
    with second.stage(Resource.STORAGE):
        pass
    second.close()


def test_a_trainer_that_nobody_expects_is_told_so(server: TurnServer) -> None:
    trainer = Trainer(identity(server, "z"))
    with pytest.raises(WorkerLostError, match="job z generation 1 is not expected here, no launch of it is"):
        trainer.begin_iteration()
    trainer.close()


def test_a_member_of_a_group_may_come_from_another_node(server: TurnServer) -> None:
    server.set_group(2, 1, [(("far", 1), 0)], 6)  # never expected here: another worker launched it
    token = turn_token(server.key, "far", 1)
    connection = Connection(f"tcp:{server.tcp_address}")
    connection.send("hello", v=2, job="far", generation=1, rank=0, world=1, done=0, turns=True, token=token)
    connection.send("ask", done=0)
    assert connection.receive() == {"t": "go", "turns": False, "batch": 6}
    connection.close()


def test_addresses_say_what_is_wrong_with_them(tmp_path: Path) -> None:
    with pytest.raises(WorkerLostError, match="no worker at unix:"):
        Connection(f"unix:{tmp_path}/nobody")
    with pytest.raises(ValueError, match="none of unix:PATH, tcp:HOST:PORT and tls:HOST:PORT"):
        Connection("http://somewhere")


def test_the_environment_says_who_a_trainer_is() -> None:
    env = {"CLUSTER_EXP_JOB_ID": "a", "CLUSTER_EXP_GENERATION": "2"}
    env |= {"CLUSTER_EXP_RANK": "1", "CLUSTER_EXP_WORLD": "3"}
    assert Identity.from_env({}) is None
    with pytest.raises(KeyError):
        Identity.from_env(env)
    env |= {"CLUSTER_EXP_WORKER": "unix:w", "CLUSTER_EXP_ARBITER": "tcp:h:1"}
    env |= {"CLUSTER_EXP_ITERATIONS": "9", "CLUSTER_EXP_ITERATIONS_DONE": "4"}
    assert Identity.from_env(env) == Identity("a", 2, 1, 3, "unix:w", "tcp:h:1", 9, 4)


def test_the_lines_of_every_stage_are_known_to_the_server_without_parsing(tmp_path) -> None:
    path = str(tmp_path / "s")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        connection = Connection(f"unix:{path}")
        peer, _ = listener.accept()
        with peer, peer.makefile("rb") as lines:
            peer.sendall(GRANTED_LINE * 2)
            connection.take_turn((Resource.GPU,))
            connection.give_turn()
            connection.take_turn((Resource.CPU, Resource.STORAGE))
            connection.close()
            heard = [line.strip() for line in lines]
    assert set(heard) <= set(_FREQUENT)
    assert [parse_trainer_line(line).resources for line in heard] == [(2,), (), (0, 1)]


def test_importing_the_sdk_loads_nothing_heavy() -> None:
    code = "import sys, cluster_exp.runtime.emulated; print(*sys.modules)"
    env = {name: value for name, value in os.environ.items() if not name.startswith("COV")}  # measuring imports more
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env)
    heavy = {"numpy", "grpc", "asyncio", "google", "networkx", "multiprocessing"}
    assert heavy.isdisjoint(done.stdout.split())


def test_a_trainer_that_is_cut_off_hears_why_even_while_it_talks(server: TurnServer) -> None:
    connection = Connection(server.address)

    def talk() -> None:
        connection.send("nonsense")
        while True:
            connection.send("progress", done=1)

    with pytest.raises(WorkerLostError, match="unknown message 'nonsense'"):
        talk()
    connection.close()


def example(tmp_path: Path) -> Path:
    """The program that docs/adding-a-workload.md shows."""
    text = Path(__file__).parents[2].joinpath("docs", "adding-a-workload.md").read_text(encoding="utf-8")
    program = tmp_path / "example.py"
    program.write_text(text.split("```python\n")[1].split("```")[0], encoding="utf-8")
    return program


def test_the_documented_program_trains_the_same_alone_and_in_two_launches(
    server: TurnServer, events: list[TrainerEvent], tmp_path: Path
) -> None:
    program, weights = example(tmp_path), []
    root = str(Path(__file__).parents[2])
    alone = {key: value for key, value in os.environ.items() if not key.startswith("CLUSTER_EXP_")}
    alone |= {"PYTHONPATH": root}
    launch = {
        "JOB_ID": "a",
        "GENERATION": 1,
        "RANK": 0,
        "WORLD": 1,
        "WORKER": server.address,
        "ARBITER": server.address,
    }
    for name, runs in (("alone", [None]), ("twice", [(0, 40), (40, 100)])):
        folder = tmp_path / name
        for run in runs:
            env = alone
            if run is not None:
                done = {"ITERATIONS_DONE": run[0], "ITERATIONS": run[1], "CHECKPOINT_DIR": folder}
                places = launch | done
                env = alone | {f"CLUSTER_EXP_{key}": str(value) for key, value in places.items()}
            folder.mkdir(exist_ok=True)
            argv = [sys.executable, str(program), "--iterations", "100"]
            subprocess.run(argv, env=env, check=True, timeout=DEADLINE_S, cwd=folder)
        weights.append((folder / "weight-100.json").read_text())
    assert weights[0] == weights[1]
    assert float(weights[0]) == pytest.approx(3.0, abs=0.2)
    assert wait_for_done(events).iterations_done == 100
