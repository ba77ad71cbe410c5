"""Who gets in: loopback, TLS on both sides, tokens and their roles."""

import asyncio
import datetime
import subprocess
import sys
from dataclasses import replace

import grpc
import grpc.aio
import pytest

from cluster_exp.cli import main
from cluster_exp.domain.errors import InputError
from cluster_exp.protocol.messages import LaunchOrder, NodeShare
from cluster_exp.protocol.refusal import RefusalKind, Refused
from cluster_exp.runtime import codec
from cluster_exp.runtime.fields import FieldError
from cluster_exp.runtime.local import LiveConfig, run_testbed, worker_command
from cluster_exp.runtime.master import Master
from cluster_exp.runtime.rpc import master_pb2, master_pb2_grpc, worker_pb2, worker_pb2_grpc
from cluster_exp.runtime.security.access import Role, check_address, is_loopback, load_access
from cluster_exp.runtime.security.certificates import write_certificates
from cluster_exp.runtime.security.channels import listen, make_server, open_channel
from cluster_exp.runtime.security.roles import ALLOWED
from cluster_exp.runtime.services import MasterServicer
from cluster_exp.runtime.settings import MasterConfig
from cluster_exp.runtime.worker import WorkerServicer
from tests.runtime.live_kit import DEADLINE_S, Memory, PaperWorker, cluster, job, scheduler

HOST = "127.0.0.1"
pytestmark = pytest.mark.live


@pytest.fixture(scope="module")
def testbed(tmp_path_factory):
    out = tmp_path_factory.mktemp("testbed") / "certs"
    write_certificates(out, [HOST, "n1.example"], datetime.datetime.now(datetime.UTC))
    return out


def access(testbed, tokens="master", host=HOST):
    return load_access(testbed / host, testbed / "tokens" / tokens)


def test_every_method_of_both_services_has_its_roles():
    services = (
        master_pb2.DESCRIPTOR.services_by_name["MasterService"],
        worker_pb2.DESCRIPTOR.services_by_name["WorkerService"],
    )
    methods = {f"/{service.full_name}/{method.name}" for service in services for method in service.methods}
    assert set(ALLOWED) == methods


async def _answer(call) -> tuple[grpc.StatusCode, str]:
    try:
        await call
    except grpc.aio.AioRpcError as error:
        return error.code(), error.details() or ""
    return grpc.StatusCode.OK, ""


async def _code(call) -> grpc.StatusCode:
    return (await _answer(call))[0]


def _calls(stub):
    """One call of each unary method of the master, by its name."""
    return {
        "Register": stub.Register(master_pb2.RegisterRequest(), timeout=DEADLINE_S),
        "SubmitJob": stub.SubmitJob(master_pb2.SubmitJobRequest(), timeout=DEADLINE_S),
        "CancelJob": stub.CancelJob(master_pb2.CancelJobRequest(), timeout=DEADLINE_S),
        "QueryJobs": stub.QueryJobs(master_pb2.QueryJobsRequest(), timeout=DEADLINE_S),
        "QueryCluster": stub.QueryCluster(master_pb2.QueryClusterRequest(), timeout=DEADLINE_S),
    }


def _with_master(own, scenario):
    async def whole():
        master = Master(MasterConfig(cluster(1), 1.0, access=own), scheduler(), Memory())
        address = await master.start()
        running = asyncio.create_task(master.run(()))
        try:
            await scenario(address)
        finally:
            master.stop("test over")
            await running
            await master.close("test over")

    asyncio.run(whole())


@pytest.mark.parametrize("role", list(Role))
def test_a_role_reaches_its_methods_and_no_others(testbed, role):
    async def scenario(address):
        own = access(testbed, role.value)
        async with open_channel(address, own, role) as channel:
            stub = master_pb2_grpc.MasterServiceStub(channel)
            for name, call in _calls(stub).items():
                allowed = role in ALLOWED[f"/cluster_exp.runtime.rpc.MasterService/{name}"]
                denied = await _code(call) is grpc.StatusCode.PERMISSION_DENIED
                assert denied is not allowed, name
            report = stub.Report(iter([master_pb2.ReportRequest()]), timeout=DEADLINE_S)
            denied = await _code(report.read()) is grpc.StatusCode.PERMISSION_DENIED
            assert denied is (role is not Role.WORKER)

    _with_master(access(testbed), scenario)


def test_without_a_known_token_nobody_gets_in(testbed, tmp_path):
    async def scenario(address):
        own = access(testbed)
        ssl = grpc.ssl_channel_credentials(own.ca, own.key, own.cert)
        for given in ((), (("authorization", "Bearer "),), (("authorization", "x" * 5000),)):
            async with grpc.aio.secure_channel(address, ssl) as channel:
                stub = master_pb2_grpc.MasterServiceStub(channel)
                call = stub.QueryCluster(master_pb2.QueryClusterRequest(), timeout=DEADLINE_S, metadata=given)
                assert await _code(call) is grpc.StatusCode.UNAUTHENTICATED

    _with_master(access(testbed), scenario)


def test_without_a_certificate_of_the_testbed_nobody_connects(testbed, tmp_path):
    write_certificates(tmp_path / "other", [HOST], datetime.datetime.now(datetime.UTC))
    other = access(tmp_path / "other")

    async def scenario(address):
        ca = access(testbed).ca
        for credentials in (
            grpc.ssl_channel_credentials(ca),
            grpc.ssl_channel_credentials(ca, other.key, other.cert),
            grpc.ssl_channel_credentials(other.ca, other.key, other.cert),
        ):
            async with grpc.aio.secure_channel(address, credentials) as channel:
                stub = master_pb2_grpc.MasterServiceStub(channel)
                call = stub.QueryCluster(master_pb2.QueryClusterRequest(), timeout=DEADLINE_S)
                assert await _code(call) is grpc.StatusCode.UNAVAILABLE
        async with grpc.aio.insecure_channel(address) as channel:
            stub = master_pb2_grpc.MasterServiceStub(channel)
            call = stub.QueryCluster(master_pb2.QueryClusterRequest(), timeout=DEADLINE_S)
            assert await _code(call) is grpc.StatusCode.UNAVAILABLE

    _with_master(access(testbed), scenario)


def test_a_worker_takes_orders_from_the_master_and_not_from_another_worker(testbed):
    class Paper(worker_pb2_grpc.WorkerServiceServicer):
        async def Carry(self, request, context):
            return worker_pb2.OrdersReply()

    async def scenario():
        server = make_server(access(testbed, "worker"))
        worker_pb2_grpc.add_WorkerServiceServicer_to_server(Paper(), server)
        address = f"{HOST}:{listen(server, f'{HOST}:0', access(testbed, 'worker'))}"
        await server.start()
        codes = []
        for tokens, role in (("master", Role.ADMIN), ("worker", Role.WORKER)):
            async with open_channel(address, access(testbed, tokens), role) as channel:
                stub = worker_pb2_grpc.WorkerServiceStub(channel)
                codes.append(await _code(stub.Carry(worker_pb2.OrdersRequest(), timeout=DEADLINE_S)))
        await server.stop(None)
        assert codes == [grpc.StatusCode.OK, grpc.StatusCode.PERMISSION_DENIED]
        with pytest.raises(InputError, match="no token of the role admin"):
            open_channel(address, access(testbed, "worker"), Role.ADMIN)

    asyncio.run(scenario())


def test_a_run_over_tls_reaches_its_end(testbed, tmp_path):
    started: list[subprocess.Popen] = []

    def announce(commands) -> None:
        for command in commands:
            words = command.replace("DIR", str(testbed / HOST)).replace("FILE", str(testbed / "tokens" / "worker"))
            argv = [sys.executable, "-m", "cluster_exp.runtime.worker_main", *words.split()[2:]]
            with (tmp_path / f"worker{len(started)}").open("wb") as log:
                started.append(subprocess.Popen([*argv, "--log-dir", str(tmp_path / "w")], stderr=log))

    own = access(testbed)
    config = LiveConfig(cluster(1), (job("a", 1, 40),), 500.0, tmp_path / "logs", access=own)
    try:
        result = run_testbed(config, scheduler(), Memory(), announce)
        assert [process.wait(DEADLINE_S) for process in started] == [0]
    finally:
        for process in started:
            process.kill()
    assert dict(result.ended) == {"finished": 1}
    assert (tmp_path / "logs").stat().st_mode & 0o077 == 0
    assert (tmp_path / "w").stat().st_mode & 0o077 == 0
    written = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert not any(token.encode() in written for token in own.secrets.values())


def test_a_worker_with_a_wrong_token_leaves_and_says_why(testbed, tmp_path):
    tokens = tmp_path / "tokens"
    tokens.write_text("worker " + "x" * 40 + "\n")
    tokens.chmod(0o600)

    async def scenario(address):
        argv = [sys.executable, "-m", "cluster_exp.runtime.worker_main", "--master", address, "--node", "n0"]
        argv += ["--gpus", "4", "--tls", str(testbed / HOST), "--token-file", str(tokens)]
        argv += ["--log-dir", str(tmp_path)]
        process = await asyncio.create_subprocess_exec(*argv, stderr=asyncio.subprocess.PIPE)
        _, said = await asyncio.wait_for(process.communicate(), DEADLINE_S)
        assert process.returncode == 2
        assert b"asks for a token" in said
        assert b"xxxx" not in said

    _with_master(access(testbed), scenario)


@pytest.mark.parametrize(
    ("address", "loopback"),
    [
        ("127.0.0.1:0", True),
        ("127.9.9.9:1", True),
        ("localhost:1", True),
        ("[::1]:1", True),
        ("0.0.0.0:1", False),
        ("10.0.0.1:1", False),
        ("[::]:1", False),
        (":1", False),
        ("localhost.evil.example:1", False),
    ],
)
def test_loopback(address, loopback):
    assert is_loopback(address) is loopback


def test_addresses_beyond_this_machine_need_tls(testbed):
    with pytest.raises(InputError, match="without --tls and --token-file"):
        check_address("--bind", "10.0.0.1:1", None)
    with pytest.raises(InputError, match="without --tls"):
        open_channel("10.0.0.1:1", None, Role.WORKER)
    check_address("--bind", "10.0.0.1:1", access(testbed))
    with pytest.raises(InputError, match="that the certificate names"):
        check_address("--bind", "0.0.0.0:1", access(testbed))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "empty"),
        ("# nothing\n", "holds no token"),
        ("root " + "s" * 40, "allowed: a role"),
        ("submit short", "too short"),
        ("submit sha256:12", "64 hexadecimal"),
        ("submit " + "s" * 40 + "\nadmin " + "s" * 40, "another role"),
        ("submit " + "s" * 70_000, "longer than"),
    ],
)
def test_unusable_token_files_are_named_and_not_shown(testbed, tmp_path, content, said):
    path = tmp_path / "tokens"
    path.write_text(content)
    path.chmod(0o600)
    with pytest.raises(InputError, match=said) as caught:
        load_access(testbed / HOST, path)
    assert "ssss" not in str(caught.value)


def test_secrets_that_others_can_read_are_refused_and_no_repr_shows_one(testbed, tmp_path):
    path = tmp_path / "tokens"
    path.write_bytes((testbed / "tokens" / "worker").read_bytes())
    path.chmod(0o640)
    with pytest.raises(InputError, match="mode 0640; allowed: 0600"):
        load_access(testbed / HOST, path)
    with pytest.raises(InputError, match="go together"):
        load_access(testbed / HOST, None)
    own = access(testbed)
    assert not any(token in repr(own) for token in own.secrets.values())
    assert "PRIVATE" not in repr(own)


def test_the_certs_verb_writes_private_files_once(tmp_path, capsys):
    out = tmp_path / "certs"
    assert main(["certs", "--out", str(out), "--hosts", "10.0.0.1,n0"]) == 0
    assert all(path.stat().st_mode & 0o077 == 0 for path in (out, *out.rglob("*")))
    assert main(["certs", "--out", str(out), "--hosts", "n0"]) == 2
    assert "exists" in capsys.readouterr().err
    for hosts in ("../x", "", "a,a", "tokens"):
        assert main(["certs", "--out", str(tmp_path / "bad"), "--hosts", hosts]) == 2
    assert not (tmp_path / "bad").exists()


def test_the_command_for_a_protected_worker_names_what_it_needs():
    command = worker_command("10.0.0.1:4000", cluster(1).nodes[0], secured=True)
    assert command.endswith("--host 127.0.0.1 --tls DIR --token-file FILE")


@pytest.mark.parametrize("secured", [False, True])
@pytest.mark.parametrize(
    ("field", "address"),
    [("worker_address", "0.0.0.0:1"), ("worker_address", "10.0.0.1:1"), ("turns_address", "10.0.0.1:1")],
)
def test_a_worker_that_names_an_address_beyond_its_protection_is_refused(testbed, field, address, secured):
    own = access(testbed) if secured else None

    async def scenario(master):
        node = cluster(1).nodes[0]
        offer = PaperWorker(node.name, node.num_gpu).offer()
        setattr(offer, field, address)
        async with open_channel(master, access(testbed, "worker") if secured else None, Role.WORKER) as channel:
            stub = master_pb2_grpc.MasterServiceStub(channel)
            code, why = await _answer(stub.Register(offer, timeout=DEADLINE_S))
            if secured and address == "10.0.0.1:1":
                assert code is grpc.StatusCode.OK, why
            else:
                assert code is grpc.StatusCode.FAILED_PRECONDITION
                assert f"{field}: {address!r}" in why
            again = await _code(stub.Register(master_pb2.RegisterRequest(), timeout=DEADLINE_S))
            assert again is grpc.StatusCode.INVALID_ARGUMENT  # the master lives

    _with_master(own, scenario)


def test_a_full_queue_says_when_to_come_again():
    def full(call) -> None:
        raise Refused(RefusalKind.BUSY, "full")

    async def scenario():
        server = make_server(None)
        master_pb2_grpc.add_MasterServiceServicer_to_server(MasterServicer(full), server)
        address = f"{HOST}:{listen(server, f'{HOST}:0', None)}"
        await server.start()
        async with open_channel(address, None, Role.OBSERVE) as channel:
            stub = master_pb2_grpc.MasterServiceStub(channel)
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await stub.QueryCluster(master_pb2.QueryClusterRequest(), timeout=DEADLINE_S)
        await server.stop(None)
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert ("retry-after", "1") in list(caught.value.trailing_metadata())

    asyncio.run(scenario())


class _Agent:
    """Takes every order."""

    def __init__(self) -> None:
        self.carried: list[str] = []

    def carry_out(self, order) -> None:
        self.carried.append(order.job.job_id)


def _orders():
    def order(name, nodes, command=()):
        shares = tuple(NodeShare(node, (0,)) for node in range(nodes))
        spec = replace(job(name, nodes, 40), command=command)
        return LaunchOrder(spec, 1, shares, 0, 1, "127.0.0.1:1", turns_token="0" * 64)

    return [order("one", 1, ("train",)), order("emulated", 2), order("wide", 2, ("train",))]


def test_gradients_cross_a_network_only_where_it_is_trusted():
    agent = _Agent()
    servicer = WorkerServicer(agent, lambda: None, lambda: "me", distrusts=True)
    reply = asyncio.run(servicer.Carry(codec.orders_to(_orders(), "me"), None))
    assert agent.carried == ["one", "emulated"]
    (refused,) = reply.refused
    assert refused.order == 2
    assert "job wide spans nodes" in refused.reason
    assert "--trust-network" in refused.reason
    servicer = WorkerServicer(agent, lambda: None, lambda: "me")
    assert not asyncio.run(servicer.Carry(codec.orders_to(_orders(), "me"), None)).refused
    assert agent.carried[2:] == ["one", "emulated", "wide"]


def test_the_key_of_the_turns_is_in_no_repr_and_no_error():
    offer = codec.registration_from(PaperWorker("n0").offer(turns_key="ab" * 32))
    assert offer.turns_key not in repr(offer)
    (order, *_) = _orders()
    assert order.turns_token not in repr(order)
    with pytest.raises(FieldError) as caught:
        codec.registration_from(PaperWorker("n0").offer(turns_key="ab" * 31 + "XY"))
    assert caught.value.field == "turns_key"
    assert "abab" not in str(caught.value)
