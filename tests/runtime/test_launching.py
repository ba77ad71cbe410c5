"""A worker's table of trainers, over real processes that are not trainers."""

import asyncio
import os
import signal
import stat
import subprocess
import sys
import textwrap
import uuid
from pathlib import Path

import pytest

from cluster_exp.domain.allotment import NodeShare
from cluster_exp.protocol.messages import (
    LaunchOrder,
    PreemptOrder,
    ReportKind,
    TrainerReport,
    TrainerState,
)
from cluster_exp.protocol.refusal import Refused
from cluster_exp.runtime.commands import Command
from cluster_exp.runtime.launchers import SubprocessJobLauncher
from cluster_exp.runtime.leftovers import LIFE, OWNER, end_marked
from cluster_exp.runtime.trainers import Trainers
from tests.runtime.live_kit import DEADLINE_S, job, until

FOREVER = [sys.executable, "-S", "-c", "import signal; signal.pause()"]


def order(generation: int = 1, name: str = "a") -> LaunchOrder:
    return LaunchOrder(job(name), generation, (NodeShare(0, (0,)),), 0, 1, "127.0.0.1:1", turns_token="0" * 64)


def command(*argv: str) -> Command:
    return Command(argv)


MARKS = {OWNER: uuid.uuid4().hex, LIFE: "this one"}
# A grandchild that left its process group and its session, as daemons do.
DAEMON = """
import os, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"], start_new_session=True)
print(child.pid, flush=True)
"""


class Bench:
    def __init__(self, log_dir, grace_s: float = 30.0) -> None:
        self.reports: list[TrainerReport] = []
        self.launcher = SubprocessJobLauncher(log_dir, "n0", MARKS)
        self.trainers = Trainers(self.launcher, self.reports.append, grace_s)

    async def left(self) -> TrainerReport:
        await until(lambda: self.reports and not self.launcher.list(), "the trainer to leave")
        return self.reports[-1]


def alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def run(scenario) -> None:
    asyncio.run(asyncio.wait_for(scenario, 30))


def test_the_same_launch_twice_is_one_process_and_an_older_one_is_refused(tmp_path):
    async def scenario():
        bench = Bench(tmp_path)
        bench.trainers.launch(order(2), command(*FOREVER))
        bench.trainers.launch(order(2), command(*FOREVER))
        (status,) = bench.trainers.statuses()
        assert (status.job_id, status.generation, status.state) == ("a", 2, TrainerState.STARTING)
        assert os.getpgid(status.pid) == status.pid
        with pytest.raises(Refused, match="generation 2 of job a was launched already"):
            bench.trainers.launch(order(1), command(*FOREVER))
        bench.trainers.launch(order(3), command(*FOREVER))
        await until(lambda: set(bench.launcher.list()) == {("a", 3)}, "the older launch to end")
        assert not alive(status.pid)
        await bench.trainers.stop_all()
        assert not bench.launcher.list()
        assert not bench.reports

    run(scenario())


def test_a_crash_is_reported_with_its_code_and_last_words(tmp_path):
    async def scenario():
        bench = Bench(tmp_path)
        bench.trainers.launch(order(), command(sys.executable, "-c", "import sys; sys.exit('out of luck')"))
        report = await bench.left()
        assert report.kind is ReportKind.FAILED
        assert report.reason == "exit code 1 after 0 iterations: out of luck"
        bench.trainers.launch(order(1, "b"), command("/nowhere/trainer"))
        await until(lambda: len(bench.reports) == 2, "the second report")
        assert bench.reports[1].kind is ReportKind.FAILED

    run(scenario())


def test_a_killed_trainer_is_reported_with_its_signal_and_leaves_no_children(tmp_path):
    async def scenario():
        bench = Bench(tmp_path)
        script = textwrap.dedent("""
            import signal, subprocess, sys
            child = subprocess.Popen([sys.executable, "-S", "-c", "import signal; signal.pause()"])
            open("child", "w").write(str(child.pid) + " ")
            signal.pause()
        """)
        bench.trainers.launch(order(), command(sys.executable, "-c", script))
        child = tmp_path / "child"
        await until(lambda: child.exists() and child.read_text().endswith(" "), "its child")
        os.kill(bench.trainers.statuses()[0].pid, signal.SIGKILL)
        report = await bench.left()
        assert (report.kind, report.reason) == (ReportKind.FAILED, "signal SIGKILL after 0 iterations")
        await until(lambda: not alive(int(child.read_text())), "the child to end")
        assert not list(tmp_path.glob("trainer-*.log"))

    run(scenario())


def test_its_last_word_counts_when_the_process_is_gone(tmp_path):
    async def scenario():
        bench = Bench(tmp_path)
        bench.trainers.launch(order(), command(sys.executable, "-c", ""))
        bench.trainers.heard("a", 1, ReportKind.STARTED, 0)
        bench.trainers.heard("a", 1, ReportKind.PROGRESS, 40)
        bench.trainers.heard("a", 7, ReportKind.PROGRESS, 90)
        bench.trainers.heard("a", 1, ReportKind.FINISHED, 100)
        await until(lambda: len(bench.reports) == 3, "its end")
        report = bench.reports[-1]
        assert [entry.kind for entry in bench.reports] == [
            ReportKind.STARTED,
            ReportKind.PROGRESS,
            ReportKind.FINISHED,
        ]
        assert report.iterations_done == 100

    run(scenario())


def test_one_that_fails_after_its_last_word_has_failed(tmp_path):
    async def scenario():
        bench = Bench(tmp_path)
        bench.trainers.launch(order(), command(sys.executable, "-c", "import sys; sys.exit('disk full')"))
        bench.trainers.heard("a", 1, ReportKind.FINISHED, 100)
        report = await bench.left()
        assert (report.kind, report.reason) == (ReportKind.FAILED, "exit code 1 after 100 iterations: disk full")

    run(scenario())


def test_one_that_hangs_is_ended_and_has_failed(tmp_path):
    async def scenario():
        bench = Bench(tmp_path)
        bench.trainers.hang_s = 0.3
        bench.trainers.launch(order(), command(*FOREVER))
        bench.trainers.heard("a", 1, ReportKind.STARTED, 0)
        bench.trainers.heard("a", 1, ReportKind.PROGRESS, 7)
        report = await bench.left()
        assert (report.kind, report.reason) == (ReportKind.FAILED, "no iteration for 0 s after 7 iterations")

    run(scenario())


def test_one_whose_iterations_are_long_does_not_count_as_hanging(tmp_path):
    async def scenario():
        bench = Bench(tmp_path)
        bench.trainers.hang_s = 0.05
        bench.trainers.launch(
            order(), command(sys.executable, "-S", "-c", "import sys, time; time.sleep(1.5); sys.exit(3)")
        )
        bench.trainers.heard("a", 1, ReportKind.STARTED, 0)
        trainer = bench.trainers._trainers["a"]
        trainer.longest_s = 60.0  # as if an iteration had taken a minute
        report = await bench.left()
        assert report.reason == "exit code 3 after 0 iterations"

    run(scenario())


def test_one_that_does_not_stop_is_ended_by_force(tmp_path):
    async def scenario():
        bench = Bench(tmp_path, grace_s=0.05)
        bench.trainers.launch(order(), command(*FOREVER))
        bench.trainers.heard("a", 1, ReportKind.PROGRESS, 12)
        assert bench.trainers.stop(PreemptOrder("a", 1))
        assert not bench.trainers.stop(PreemptOrder("b", 1))
        report = await bench.left()
        assert (report.kind, report.iterations_done) == (ReportKind.PREEMPTED, 12)

    run(scenario())


def test_what_left_its_process_group_is_ended_with_its_launch(tmp_path):
    async def scenario():
        bench = Bench(tmp_path)
        env = {"CLUSTER_EXP_JOB_ID": "a", "CLUSTER_EXP_GENERATION": "1"}
        bench.trainers.launch(order(), Command((sys.executable, "-c", DAEMON), env, cwd=tmp_path))
        await bench.left()
        pid = int((tmp_path / "trainer-a-n0.log").read_text())
        await until(lambda: not alive(pid), "the daemon to end")

    run(scenario())


def test_logs_are_readable_by_their_owner_only(tmp_path):
    async def scenario():
        bench = Bench(tmp_path)
        log = tmp_path / "trainer-a-n0.log"
        log.touch(mode=0o644)
        former = os.umask(0)
        try:
            bench.trainers.launch(order(), command("echo", "secret"))
        finally:
            os.umask(former)
        await bench.left()
        assert log.read_text() == "secret\n"
        assert stat.S_IMODE(log.stat().st_mode) == 0o600

    run(scenario())


def test_what_a_former_worker_left_is_ended_and_nothing_else():
    def start(**marks: str) -> subprocess.Popen:
        return subprocess.Popen(FOREVER, env={**os.environ, **marks})

    mark = uuid.uuid4().hex
    left = start(**{OWNER: mark, LIFE: "the former"})
    mine = start(**{OWNER: mark, LIFE: "this one"})
    others = start(**{OWNER: "another", LIFE: "the former"})
    try:
        asyncio.run(until(lambda: all(b"pause" in cmdline(one.pid) for one in (left, mine, others)), "the processes"))
        assert end_marked({OWNER: mark}, {LIFE: "this one"}) == 1
        assert left.wait(DEADLINE_S) == -signal.SIGKILL
        assert mine.poll() is None
        assert others.poll() is None
        assert end_marked({OWNER: mark}, {LIFE: "this one"}) == 0
    finally:
        for process in (left, mine, others):
            process.kill()
            process.wait()


def cmdline(pid: int) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes()


def test_trainers_die_with_a_killed_worker(tmp_path):
    script = textwrap.dedent(f"""
        import asyncio, sys
        from pathlib import Path
        from cluster_exp.runtime.commands import Command
        from cluster_exp.runtime.launchers import SubprocessJobLauncher

        async def main():
            process = SubprocessJobLauncher(Path({str(tmp_path)!r}), "n0", {{}}).start(("a", 1), Command({FOREVER!r}))
            print(process.pid, flush=True)
            await asyncio.Event().wait()

        asyncio.run(main())
    """)
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as worker:
        assert worker.stdout is not None
        pid = int(worker.stdout.readline())
        command = Path(f"/proc/{pid}/cmdline")
        asyncio.run(until(lambda: b"signal.pause" in command.read_bytes(), "the trainer's command line"))
        asyncio.run(until(lambda: b"pdeathsig" not in command.read_bytes(), "the kernel to know its parent"))
        worker.kill()
    asyncio.run(until(lambda: not alive(pid), "the trainer to end"))
