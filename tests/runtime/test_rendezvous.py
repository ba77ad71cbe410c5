"""The worker's side of a rendezvous, and what a rank is told when it cannot join; needs neither torch nor Horovod."""

import os
import socket
import subprocess
import sys
import threading

import pytest

from cluster_exp.domain.errors import InputError
from cluster_exp.runtime.rendezvous import (
    Endpoint,
    interface_of,
    open_rendezvous,
    places_of,
    rank_environment,
    rank_places,
)
from cluster_exp.runtime.trainer.comm import BackendMissingError, connect

PLACES = rank_places([("n1", 2), ("n0", 1)])
TOLD = ("CLUSTER_EXP_", "HOROVOD_", "MASTER_", "RANK", "WORLD_SIZE", "LOCAL_RANK")


@pytest.fixture(autouse=True)
def told_nothing(monkeypatch):
    for name in list(os.environ):
        if name.startswith(TOLD):
            monkeypatch.delenv(name)


def hide(monkeypatch, package):
    """Makes imports of a package, and of the backends, fail as if it were not installed."""
    for name in list(sys.modules):
        if name.split(".")[0] in {"horovod", package} or name.endswith(("_backend", "comm.fused")):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)


def test_ranks_are_numbered_node_by_node():
    assert [(place.node, place.rank, place.local_rank, place.cross_rank) for place in PLACES] == [
        ("n1", 0, 0, 0),
        ("n1", 1, 1, 0),
        ("n0", 2, 0, 1),
    ]
    assert [(place.size, place.local_size, place.cross_size) for place in PLACES] == [(3, 2, 2), (3, 2, 1), (3, 1, 2)]
    assert places_of("n0", PLACES) == (PLACES[2],)


@pytest.mark.parametrize("wrong", [[("n0", 1), ("n0", 1)], [("n0", 0)]])
def test_a_node_comes_once_and_has_ranks(wrong):
    with pytest.raises(ValueError, match="each node once, with at least one rank"):
        rank_places(wrong)


def test_what_a_rank_of_horovod_is_told():
    env = rank_environment(Endpoint("horovod", "10.0.0.7", 4711), PLACES[2], interface="eth1", timeout_s=12.3)
    assert env == {
        "CLUSTER_EXP_COMM": "horovod",
        "CLUSTER_EXP_COMM_TIMEOUT_S": "12.3",
        "NCCL_SOCKET_IFNAME": "eth1",
        "HOROVOD_HOSTNAME": "n0",
        "HOROVOD_RANK": "2",
        "HOROVOD_SIZE": "3",
        "HOROVOD_LOCAL_RANK": "0",
        "HOROVOD_LOCAL_SIZE": "1",
        "HOROVOD_CROSS_RANK": "1",
        "HOROVOD_CROSS_SIZE": "2",
        "HOROVOD_CONTROLLER": "gloo",
        "HOROVOD_CPU_OPERATIONS": "gloo",
        "HOROVOD_GLOO_RENDEZVOUS_ADDR": "10.0.0.7",
        "HOROVOD_GLOO_RENDEZVOUS_PORT": "4711",
        "HOROVOD_GLOO_IFACE": "eth1",
        "HOROVOD_GLOO_TIMEOUT_SECONDS": "13",
        "HOROVOD_FUSION_THRESHOLD": "0",
    }


def test_what_a_rank_of_torch_is_told():
    env = rank_environment(Endpoint("torch", "10.0.0.7", 4711), PLACES[1])
    assert env == {
        "CLUSTER_EXP_COMM": "torch",
        "CLUSTER_EXP_COMM_TIMEOUT_S": "60.0",
        "NCCL_SOCKET_IFNAME": "lo",
        "GLOO_SOCKET_IFNAME": "lo",
        "MASTER_ADDR": "10.0.0.7",
        "MASTER_PORT": "4711",
        "RANK": "1",
        "WORLD_SIZE": "3",
        "LOCAL_RANK": "1",
        "LOCAL_WORLD_SIZE": "2",
    }


def test_a_reserved_port_is_for_whoever_knows_it_and_free_afterwards():
    with open_rendezvous("torch", PLACES) as meeting:
        address = (meeting.endpoint.address, meeting.endpoint.port)
        with socket.socket() as stranger, pytest.raises(OSError, match="in use"):
            stranger.bind(address)  # without SO_REUSEADDR, as the system's own choice of a port
        with socket.create_server(address) as rank0:
            assert rank0.getsockname() == address
    with socket.socket() as anyone:
        anyone.bind(address)
    meeting.stop()


@pytest.mark.horovod
def test_horovods_server_leaves_no_thread_and_no_port():
    before = set(threading.enumerate())
    with open_rendezvous("horovod", PLACES) as meeting:
        address = (meeting.endpoint.address, meeting.endpoint.port)
        socket.create_connection(address).close()
        assert set(threading.enumerate()) > before
    assert set(threading.enumerate()) == before
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address)
    meeting.stop()


def test_the_interface_of_an_address():
    assert interface_of("127.0.0.1") == interface_of("localhost") == interface_of("127.1.2.3") == "lo"
    with pytest.raises(InputError, match=r"192\.0\.2\.1: no network interface has it; there are .*lo"):
        interface_of("192.0.2.1")


@pytest.mark.parametrize(("backend", "message"), [("mpi", "unknown backend 'mpi'"), ("none", "a job of 3 ranks")])
def test_a_rendezvous_needs_a_backend_with_one(backend, message):
    with pytest.raises(InputError, match=f"--comm: .*{message}; allowed: .*horovod, torch"):
        open_rendezvous(backend, PLACES)


def test_a_worker_without_horovod_is_told_what_to_do(monkeypatch):
    hide(monkeypatch, "horovod")
    with pytest.raises(BackendMissingError, match="needs horovod, which is not installed: `make horovod` builds"):
        open_rendezvous("horovod", PLACES)


@pytest.mark.parametrize(
    ("backend", "package", "message"),
    [
        ("torch", "torch", "backend 'torch' needs torch, which is not installed: `pip install torch` installs it"),
        ("horovod", "horovod", "backend 'horovod' needs horovod, which is not installed: `make horovod` builds"),
    ],
)
def test_a_rank_without_the_package_is_told_what_to_do(monkeypatch, backend, package, message):
    hide(monkeypatch, package)
    monkeypatch.setenv("CLUSTER_EXP_COMM", backend)
    with pytest.raises(BackendMissingError, match=message):
        connect()


def test_a_horovod_that_was_built_for_another_torch_is_told_apart(monkeypatch, tmp_path):
    (tmp_path / "horovod").mkdir()
    (tmp_path / "horovod" / "__init__.py").touch()
    (tmp_path / "horovod" / "torch.py").write_text("raise ImportError('mpi_lib_v2.so: undefined symbol: _ZN3c10')\n")
    hide(monkeypatch, "unheard_of")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(BackendMissingError, match=r"cannot be imported \(mpi_lib.*_ZN3c10\): `make horovod`.* anew"):
        connect("horovod")
    for name in [name for name in sys.modules if name.split(".")[0] == "horovod"]:
        monkeypatch.delitem(sys.modules, name)


def test_alone_a_rank_waits_for_nobody():
    comm = connect()
    assert (comm.rank, comm.size, comm.local_rank) == (0, 1, 0)
    comm.allreduce([])
    comm.broadcast([])
    comm.barrier()
    comm.shutdown()
    with pytest.raises(ValueError, match="no rank 1 to broadcast from; this job has 1"):
        comm.broadcast([], root=1)


@pytest.mark.parametrize(
    ("told", "message"),
    [
        ({"CLUSTER_EXP_COMM": "mpi"}, "CLUSTER_EXP_COMM: unknown backend 'mpi'; allowed: none, horovod, torch"),
        (
            {"CLUSTER_EXP_WORLD": "2"},
            "CLUSTER_EXP_COMM: backend 'none' for a job of 2 ranks; allowed: horovod, torch",
        ),
        (
            {"CLUSTER_EXP_COMM": "torch", "CLUSTER_EXP_COMM_TIMEOUT_S": "soon"},
            "CLUSTER_EXP_COMM_TIMEOUT_S: 'soon' is no time limit; allowed: a number of seconds above 0",
        ),
    ],
)
def test_a_rank_that_was_told_nonsense_says_which_variable(monkeypatch, told, message):
    for name, value in told.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(InputError, match=message):
        connect()


@pytest.mark.horovod
@pytest.mark.parametrize(
    ("told", "message"),
    [({}, "RANK: not set; the launcher"), ({"RANK": "first"}, "RANK: 'first' is no whole number")],
)
def test_a_rank_of_torch_needs_its_variables(monkeypatch, told, message):
    for name, value in told.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(InputError, match=message):
        connect("torch")


def test_neither_torch_nor_horovod_is_imported_before_a_backend_is_named():
    code = "import sys, cluster_exp.runtime.rendezvous as r, cluster_exp.runtime.trainer.comm as c; c.connect()\n"
    code += "sys.exit(bool({'torch', 'horovod', 'numpy', 'grpc'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0
