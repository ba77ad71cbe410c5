"""Masters that are killed at every step of a run: nothing acknowledged is lost, and what runs goes on."""

import os
import random
import re
import signal
import socket
import subprocess
import sys
import uuid
from contextlib import contextmanager
from pathlib import Path

import pytest

from cluster_exp.domain.actions import Launch, Preempt, RecordEnd
from cluster_exp.domain.events import JobPreempted
from cluster_exp.domain.job import JobStatus
from cluster_exp.results.journal import read_journal
from tests.runtime.mortal_master import JOBS
from tests.runtime.test_local import MARK, marked, wait_for

pytestmark = pytest.mark.live
ROOT = Path(__file__).parents[2]
SOAK_KILLS = int(os.environ.get("CLUSTER_EXP_KILLS", "100"))


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


@contextmanager
def workers(folder: Path, port: int, environment: dict[str, str]):
    """A worker process a node, which ends with the block."""
    found = []
    for node in ("n0", "n1"):
        argv = [sys.executable, "-m", "cluster_exp.runtime.worker_main", "--master", f"127.0.0.1:{port}"]
        argv += ["--node", node, "--gpus", "2", "--log-dir", str(folder / "logs")]
        with (folder / f"worker-{node}.log").open("wb") as log:
            found.append(subprocess.Popen(argv, stderr=log, env=environment, cwd=ROOT))
    try:
        yield found
    finally:
        for worker in found:
            worker.kill()
            worker.wait()


def life(folder: Path, port: int, deadly: int, when: str, environment: dict[str, str]) -> subprocess.CompletedProcess:
    """One life of the master."""
    argv = [sys.executable, "-m", "tests.runtime.mortal_master", str(folder), str(port), str(deadly), when]
    return subprocess.run(argv, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)


def check_nothing_was_lost(folder: Path) -> None:
    entries = read_journal(folder / "journal.jsonl").entries
    actions = [action for entry in entries for action in entry.actions]
    ends = {action.record.job_id: action.record.status for action in actions if isinstance(action, RecordEnd)}
    assert ends == {job.job_id: JobStatus.FINISHED for job in JOBS}
    assert sum(isinstance(action, RecordEnd) for action in actions) == len(JOBS)
    launches = [(action.job.job_id, action.generation) for action in actions if isinstance(action, Launch)]
    asked = {(action.job_id, action.generation) for action in actions if isinstance(action, Preempt)}
    left = [(one.job_id, one.generation) for one in (e.event for e in entries) if isinstance(one, JobPreempted)]
    # Trainers were adopted: none left but those that the policy moved, and none was started beside.
    assert set(left) <= asked
    assert sorted(launches) == sorted([(job.job_id, 1) for job in JOBS] + [(job, at + 1) for job, at in left])


def die_at_every_write(tmp_path: Path, draws) -> int:
    """Runs with a master that dies again and again; returns how often it was killed."""
    environment = {**os.environ, MARK: uuid.uuid4().hex}
    port, kills = free_port(), 0
    with workers(tmp_path, port, environment) as found:
        for deadly, when in draws:
            done = life(tmp_path, port, deadly, when, environment)
            if done.returncode == 0:
                break
            assert done.returncode == -signal.SIGKILL, done.stderr
            kills += 1
        else:
            done = life(tmp_path, port, 0, "never", environment)
        assert done.stdout == "complete\n", done.stderr
        assert re.search(r"resumed: \d+ events, \d jobs live, 2 workers known", done.stderr)
        for worker in found:
            assert worker.wait(20) == 0
    check_nothing_was_lost(tmp_path)
    wait_for(lambda: not marked(environment[MARK]), "every process of the run to be gone")
    return kills


def test_a_master_killed_again_and_again_loses_nothing_and_adopts_what_runs(tmp_path):
    steps = [(1 + i % 3, ("before", "after")[i % 2]) for i in range(8)]
    assert die_at_every_write(tmp_path, steps) >= 6


@pytest.mark.soak
def test_a_master_killed_at_random_loses_nothing(tmp_path):
    draw = random.Random(5)
    kills = 0
    for run in range(SOAK_KILLS):
        folder = tmp_path / str(run)
        folder.mkdir()
        steps = [(draw.randrange(1, 12), draw.choice(("before", "after"))) for _ in range(6)]
        kills += die_at_every_write(folder, steps)
        if kills >= SOAK_KILLS:
            return
