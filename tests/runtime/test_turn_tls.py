"""Turns between nodes: TLS on both sides, and the token of the launch."""

import datetime
import os
import secrets
import shutil
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from cluster_exp.protocol.turn_token import DIGITS, opens, turn_token
from cluster_exp.runtime.security.access import load_access
from cluster_exp.runtime.security.certificates import write_certificates
from cluster_exp.runtime.security.channels import turns_context
from cluster_exp.runtime.trainer.connection import Connection, WorkerLostError
from cluster_exp.runtime.turn_server import _MOST_STRANGERS, TrainerDone, TrainerEvent, TurnServer

pytestmark = pytest.mark.live
HOST = "127.0.0.1"
DEADLINE_S = 20.0


@pytest.fixture(scope="module")
def testbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("testbed") / "certs"
    write_certificates(out, [HOST, "n1.example"], datetime.datetime.now(datetime.UTC))
    return out


class Server(TurnServer):
    """One that notes what it hears."""

    def __init__(self, folder: Path, testbed: Path) -> None:
        access = load_access(testbed / HOST, testbed / "tokens" / "worker")
        assert access is not None
        self.heard: list[TrainerEvent] = []
        self.changed = threading.Condition()
        super().__init__(folder / "turns", self._note, tls=turns_context(access))

    def _note(self, event: TrainerEvent) -> None:
        with self.changed:
            self.heard.append(event)
            self.changed.notify_all()

    def until(self, condition: Callable[[list[TrainerEvent]], bool]) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: condition(self.heard), DEADLINE_S), self.heard


@pytest.fixture
def server(tmp_path: Path, testbed: Path) -> Iterator[Server]:
    server = Server(tmp_path, testbed)
    server.start()
    yield server
    server.close()


def hello(connection: Connection, token: str, job: str = "far", generation: int = 1) -> None:
    connection.send("hello", v=2, job=job, generation=generation, rank=0, world=1, done=0, turns=True, token=token)


def first_answer(address: str, tls_dir: Path, token: str) -> dict[str, object]:
    """What a trainer of job `far` hears."""
    connection = Connection(address, str(tls_dir))
    try:
        hello(connection, token)
        connection.send("ask", done=0)
        return connection.receive()
    finally:
        connection.close()


def test_a_token_opens_one_launch_of_one_key() -> None:
    key = secrets.token_hex()
    token = turn_token(key, "a", 2)
    assert len(key) == len(token) == DIGITS
    assert opens(key, "a", 2, token)
    for other in (("b", 2, token), ("a", 3, token), ("a", 2, ""), ("a", 2, token[:-1]), ("a", 2, "\u00e4" * DIGITS)):
        assert not opens(key, *other)
    assert not opens(secrets.token_hex(), "a", 2, token)
    assert turn_token(key, "2:a", 1) != turn_token(key, "a", 12)


def test_a_trainer_of_another_node_takes_turns_over_tls(server: Server, testbed: Path) -> None:
    server.set_group(1, 1, [(("far", 1), 0)], 6)
    token = turn_token(server.key, "far", 1)
    answer = first_answer(f"tls:{server.tcp_address}", testbed / "n1.example", token)
    assert answer == {"t": "go", "turns": False, "batch": 6}


@pytest.mark.parametrize("given", ["", "0" * DIGITS, "other launch", "other key"])
def test_without_the_token_of_its_launch_nobody_takes_turns(server: Server, testbed: Path, given: str) -> None:
    server.set_group(1, 1, [(("far", 1), 0)], 6)
    tokens = {
        "other launch": turn_token(server.key, "far", 2),
        "other key": turn_token(secrets.token_hex(), "far", 1),
    }
    with pytest.raises(WorkerLostError, match="its token is missing or wrong"):
        first_answer(f"tls:{server.tcp_address}", testbed / HOST, tokens.get(given, given))


def test_without_a_certificate_of_the_testbed_nobody_is_heard(server: Server, testbed: Path, tmp_path: Path) -> None:
    write_certificates(tmp_path / "others", [HOST], datetime.datetime.now(datetime.UTC))
    stranger = tmp_path / "stranger"  # trusts the testbed's authority, and has a certificate of another
    shutil.copytree(tmp_path / "others" / HOST, stranger)
    shutil.copy(testbed / HOST / "ca.pem", stranger / "ca.pem")
    server.set_group(1, 1, [(("far", 1), 0)], 6)
    token = turn_token(server.key, "far", 1)
    for tls_dir in (stranger, tmp_path / "others" / HOST, tmp_path / "nothing"):
        with pytest.raises(WorkerLostError):
            first_answer(f"tls:{server.tcp_address}", tls_dir, token)
    with pytest.raises(WorkerLostError):  # in clear
        first_answer(f"tcp:{server.tcp_address}", testbed / HOST, token)
    answer = first_answer(f"tls:{server.tcp_address}", testbed / HOST, token)
    assert answer["t"] == "go"


def test_a_server_with_the_certificate_of_another_host_is_not_believed(testbed: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(testbed / "n1.example" / "cert.pem", testbed / "n1.example" / "key.pem")
    with socket.create_server((HOST, 0)) as listener:

        def serve() -> None:
            sock, _ = listener.accept()
            with sock, pytest.raises(OSError):  # noqa: PT011 - the client hangs up, however that looks from here
                context.wrap_socket(sock, server_side=True)

        thread = threading.Thread(target=serve)
        thread.start()
        with pytest.raises(WorkerLostError, match="certificate"):
            Connection(f"tls:{HOST}:{listener.getsockname()[1]}", str(testbed / HOST))
        thread.join(DEADLINE_S)


def test_many_lines_in_one_record_are_all_read(server: Server, testbed: Path) -> None:
    server.expect("far", 1)
    connection = Connection(f"tls:{server.tcp_address}", str(testbed / HOST))
    hello(connection, turn_token(server.key, "far", 1))
    lines = [b'{"t":"progress","done":%d}\n' % done for done in range(2_000)]  # more than one record holds
    connection.send_line(b"".join(lines) + b'{"t":"done","done":2000}\n')
    server.until(lambda heard: isinstance(heard[-1], TrainerDone) if heard else False)
    assert [event.iterations_done for event in server.heard] == list(range(2_001))  # type: ignore[union-attr]
    connection.close()


def test_those_who_connect_and_say_nothing_keep_nobody_out(server: Server, testbed: Path) -> None:
    server.set_group(1, 1, [(("far", 1), 0)], 6)
    host, port = server.tcp_address.split(":")
    token = turn_token(server.key, "far", 1)
    with ExitStack() as open_sockets:
        idle = [
            open_sockets.enter_context(socket.create_connection((host, int(port))))
            for _ in range(_MOST_STRANGERS + 9)
        ]
        answer = first_answer(f"tls:{server.tcp_address}", testbed / HOST, token)
        assert answer["t"] == "go"
        for sock in idle:
            sock.settimeout(DEADLINE_S)
        assert [sock.recv(1) for sock in idle[:9]] == [b""] * 9  # the first ones are hung up on


def test_an_emulated_trainer_finds_its_keys_in_the_environment(server: Server, testbed: Path, tmp_path: Path) -> None:
    server.expect("far", 1)
    env = os.environ | {
        "CLUSTER_EXP_JOB_ID": "far",
        "CLUSTER_EXP_GENERATION": "1",
        "CLUSTER_EXP_RANK": "0",
        "CLUSTER_EXP_WORLD": "1",
        "CLUSTER_EXP_WORKER": server.address,
        "CLUSTER_EXP_ARBITER": f"tls:{server.tcp_address}",
        "CLUSTER_EXP_TURNS_TOKEN": turn_token(server.key, "far", 1),
        "CLUSTER_EXP_TLS": str(testbed / "n1.example"),
        "CLUSTER_EXP_ITERATIONS": "3",
        "CLUSTER_EXP_ITERATIONS_DONE": "0",
    }
    times = [f"--{stage}-s=0.01" for stage in ("iteration", "storage", "cpu", "gpu", "network")]
    argv = [sys.executable, "-m", "cluster_exp.runtime.emulated", *times, "--time-scale=1"]
    assert subprocess.run(argv, env=env, timeout=DEADLINE_S, check=False).returncode == 0
    server.until(lambda heard: bool(heard) and isinstance(heard[-1], TrainerDone))
