"""Whole live runs: real workers, real trainers, loopback, time compressed."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
import uuid
from pathlib import Path

import grpc
import pytest

from cluster_exp.domain.actions import Launch, Preempt, RecordEnd
from cluster_exp.domain.errors import InputError
from cluster_exp.domain.events import JobFailed, JobPreempted, JobStarted, Progressed
from cluster_exp.domain.job import JobStatus
from cluster_exp.protocol.messages import TrainerState
from cluster_exp.runtime import codec
from cluster_exp.runtime.local import LiveConfig, LiveError, LiveResult, run_local, run_testbed
from cluster_exp.runtime.rpc import master_pb2, worker_pb2
from cluster_exp.runtime.rpc.master_pb2_grpc import MasterServiceStub
from cluster_exp.runtime.rpc.worker_pb2_grpc import WorkerServiceStub
from tests.runtime.live_kit import DEADLINE_S, Memory, cluster, job, scheduler

pytestmark = pytest.mark.live
SCALE = 200.0
MARK = "CLUSTER_EXP_TEST_MARK"


def wait_for(condition, what: str, within_s: float = 20.0):
    """Polls until a condition gives something; returns that."""
    deadline = time.monotonic() + within_s
    while not (found := condition()):
        assert time.monotonic() < deadline, f"waited {within_s:g} s for {what}"
        time.sleep(0.02)
    return found


def marked(mark: str) -> list[str]:
    """Command lines of the processes that have the mark in their environment."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if f"{MARK}={mark}".encode() in (entry / "environ").read_bytes():
                    found.append((entry / "cmdline").read_bytes().replace(b"\0", b" ").decode())
            except OSError:
                continue
    return found


@pytest.fixture
def mark(monkeypatch):
    value = uuid.uuid4().hex
    monkeypatch.setenv(MARK, value)
    return value


class Client(threading.Thread):
    """Talks to a run from outside while it goes on; what goes wrong is raised by `finish`."""

    def __init__(self, work) -> None:
        super().__init__(daemon=True)
        self._work = work
        self._error: BaseException | None = None
        self.address = ""

    def begin(self, address: str) -> None:
        self.address = address
        self.start()

    def run(self) -> None:
        try:
            with grpc.insecure_channel(self.address) as channel:
                self._work(MasterServiceStub(channel))
        except BaseException as error:
            self._error = error

    def finish(self) -> None:
        self.join(DEADLINE_S)
        if self._error is not None:
            raise self._error


def live(tmp_path, jobs, *, policy="srsf", nodes=2, client=None, extra=0) -> tuple[LiveResult, Memory]:
    memory = Memory()
    config = LiveConfig(cluster(nodes), tuple(jobs), SCALE, tmp_path / "logs", extra_jobs=extra)
    begin = client.begin if client else lambda address: None
    result = run_local(config, scheduler(policy), memory, on_address=begin)
    if client:
        client.finish()
    return result, memory


def ends(memory: Memory) -> dict[str, JobStatus]:
    return {action.record.job_id: action.record.status for action in memory.of(RecordEnd)}


def test_a_trace_with_a_spanning_job_and_preemptions_runs_to_its_end(tmp_path, mark):
    def work(stub: MasterServiceStub) -> None:
        def advanced():
            reply = stub.QueryJobs(master_pb2.QueryJobsRequest(job_ids=["long"]), timeout=DEADLINE_S)
            return [view for view in reply.jobs if view.remaining_iterations < 1000]

        wait_for(advanced, "progress of the long job")
        later = [job("short", 2, 60), job("tiny", 1, 40), job("nothing", 1, 0)]
        stub.SubmitJob(codec.submission_to("later", later), timeout=DEADLINE_S)

    result, memory = live(tmp_path, [job("long", 4, 1000)], client=Client(work), extra=3)
    assert result.complete
    assert dict(result.ended) == {"finished": 4}
    assert set(ends(memory).values()) == {JobStatus.FINISHED}
    assert any(action.job_id == "long" for action in memory.of(Preempt))
    (left,) = (event for event in memory.of(JobPreempted) if event.job_id == "long")
    again = next(action for action in memory.of(Launch) if action.generation == 2)
    assert 0 < left.remaining_iterations < 1000
    assert again.remaining_iterations == left.remaining_iterations
    assert result.starts == len(memory.of(JobStarted)) >= 4
    assert 0 < result.start_cost_median_s < 60 * SCALE
    assert memory.of(Progressed)
    assert not [line for line in marked(mark) if "cluster_exp.runtime" in line]


def test_a_job_may_be_submitted_while_others_run(tmp_path):
    def work(stub: MasterServiceStub) -> None:
        def running():
            reply = stub.QueryJobs(master_pb2.QueryJobsRequest(), timeout=DEADLINE_S)
            return [view for view in reply.jobs if view.state == master_pb2.JOB_STATE_RUNNING]

        wait_for(running, "a running job")
        stub.SubmitJob(codec.submission_to("late-1", [job("late", 1, 50)]), timeout=DEADLINE_S)

    result, memory = live(tmp_path, [job("a", 1, 400)], client=Client(work), extra=1)
    assert dict(result.ended) == {"finished": 2}
    record = next(action.record for action in memory.of(RecordEnd) if action.record.job_id == "late")
    assert record.submit_s > 0


def test_a_killed_trainer_fails_its_job_and_no_other(tmp_path):
    victims = []

    def work(stub: MasterServiceStub) -> None:
        def trainer():
            reply = stub.QueryCluster(master_pb2.QueryClusterRequest(), timeout=DEADLINE_S)
            for node in reply.nodes:
                if "victim" in node.job_ids:
                    with grpc.insecure_channel(node.worker_address) as channel:
                        reply = WorkerServiceStub(channel).QueryTrainers(
                            worker_pb2.QueryTrainersRequest(), timeout=DEADLINE_S
                        )
                    for status in codec.statuses_from(reply):
                        if status.job_id == "victim" and status.state is TrainerState.RUNNING:
                            return status
            return None

        status = wait_for(trainer, "the victim to run")
        victims.append(status)
        os.kill(status.pid, signal.SIGKILL)

    jobs = [job("victim", 2, 50_000), job("same group", 2, 400), job("other", 1, 400), job("fourth", 1, 300)]
    result, memory = live(tmp_path, jobs, policy="muri-s", nodes=1, client=Client(work))
    assert dict(result.ended) == {"finished": 3, "failed": 1}
    (failed,) = memory.of(JobFailed)
    assert failed.job_id == "victim"
    assert failed.reason.startswith("signal SIGKILL")
    assert victims[0].generation >= 1


RUN = textwrap.dedent("""
    import sys
    from pathlib import Path
    from cluster_exp.runtime.local import LiveConfig, run_local
    from tests.runtime.live_kit import Memory, cluster, job, scheduler

    jobs = tuple(job(f"j{i}", 1 + i % 2, 100_000) for i in range(6))
    config = LiveConfig(cluster(), jobs, 200.0, Path(sys.argv[1]))
    running = lambda progress: print("running", progress.running, flush=True)
    result = run_local(config, scheduler("muri-s"), Memory(), running)
    print(result.complete, result.reason, flush=True)
""")


@pytest.mark.parametrize(("number", "name"), [(signal.SIGINT, "SIGINT"), (signal.SIGTERM, "SIGTERM")])
def test_a_signal_in_the_middle_leaves_no_process(tmp_path, number, name):
    mark = uuid.uuid4().hex
    environment = {**os.environ, MARK: mark}
    with subprocess.Popen(
        [sys.executable, "-c", RUN, str(tmp_path)],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("running") and int(line.split()[1]) > 0:
                break
        wait_for(lambda: any("emulated" in line for line in marked(mark)), "a trainer")
        os.killpg(process.pid, number)
        rest = process.stdout.read()
        assert process.wait(DEADLINE_S) == 0
        assert rest.splitlines()[-1] == f"False stopped by {name}"
    assert marked(mark) == []


def test_a_killed_run_takes_its_workers_and_trainers_with_it(tmp_path):
    mark = uuid.uuid4().hex
    with subprocess.Popen(
        [sys.executable, "-c", RUN, str(tmp_path)],
        env={**os.environ, MARK: mark},
        stdout=subprocess.DEVNULL,
        cwd=Path(__file__).parents[2],
    ) as process:
        wait_for(lambda: any("emulated" in line for line in marked(mark)), "a trainer")
        worker = next(line for line in marked(mark) if "worker_main" in line).split()
        scratch = Path(worker[worker.index("--scratch") + 1])
        assert scratch.exists()
        process.kill()
    wait_for(lambda: not marked(mark), "every process of the run to be gone")
    wait_for(lambda: not scratch.exists(), "its temporary folder to be gone")


def test_a_worker_that_dies_ends_the_run_with_a_reason(tmp_path, mark):
    def work(stub: MasterServiceStub) -> None:
        def worker():
            found = [pid for pid in Path("/proc").iterdir() if pid.name.isdigit() and is_worker(pid)]
            reply = stub.QueryCluster(master_pb2.QueryClusterRequest(), timeout=DEADLINE_S)
            return found if all(node.registered for node in reply.nodes) else None

        os.kill(int(wait_for(worker, "a worker")[0].name), signal.SIGKILL)

    def is_worker(entry: Path) -> bool:
        try:
            words = (entry / "cmdline").read_bytes()
            return b"worker_main" in words and f"{MARK}={mark}".encode() in (entry / "environ").read_bytes()
        except OSError:
            return False

    with pytest.raises(LiveError, match="the worker of node n0 ended with code -9"):
        live(tmp_path, [job("a", 1, 100_000)], nodes=1, client=Client(work))
    wait_for(lambda: not [line for line in marked(mark) if "cluster_exp.runtime" in line], "all to be gone")


def test_a_testbed_waits_for_the_workers_that_it_names(tmp_path):
    started = []

    def announce(commands) -> None:
        for command in commands:
            verb, arguments = command.split()[:2], command.split()[2:]
            assert verb == ["cluster-exp", "worker"]
            argv = [sys.executable, "-m", "cluster_exp.runtime.worker_main", *arguments]
            started.append(subprocess.Popen([*argv, "--log-dir", str(tmp_path)], stderr=subprocess.DEVNULL))

    config = LiveConfig(cluster(), (job("wide", 4, 40),), SCALE, tmp_path / "logs")
    result = run_testbed(config, scheduler(), Memory(), announce)
    assert dict(result.ended) == {"finished": 1}
    assert [process.wait(DEADLINE_S) for process in started] == [0, 0]


def test_other_addresses_than_loopback_are_refused(tmp_path):
    config = LiveConfig(cluster(), (), SCALE, tmp_path, bind="0.0.0.0:0")
    with pytest.raises(InputError, match="can be reached from outside"):
        run_testbed(config, scheduler(), Memory(), lambda commands: None)


def test_a_worker_that_the_master_does_not_want_says_so(tmp_path):
    def announce(commands) -> None:
        master = commands[0].split()[3]
        argv = [sys.executable, "-m", "cluster_exp.runtime.worker_main", "--master", master]
        argv += ["--node", "stranger", "--gpus", "1", "--log-dir", str(tmp_path)]
        strangers.append(subprocess.Popen(argv, stderr=subprocess.PIPE, text=True))
        threading.Thread(target=stop_when_it_left, args=(strangers[0],), daemon=True).start()

    def stop_when_it_left(process) -> None:
        said.append(process.communicate()[1])
        os.kill(os.getpid(), signal.SIGTERM)

    strangers: list = []
    said: list[str] = []
    result = run_testbed(LiveConfig(cluster(), (), SCALE, tmp_path), scheduler(), Memory(), announce)
    assert not result.complete
    assert strangers[0].returncode == 2
    assert "node stranger is not in the cluster; it has n0, n1" in said[0]
