"""A live run from the command line that is stopped, or killed, and goes on."""

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cluster_exp.cli import main
from cluster_exp.results.journal import read_journal
from cluster_exp.results.run_directory import JOURNAL_FILE, STATE_FILE
from tests.runtime.test_local import MARK, marked, wait_for

pytestmark = pytest.mark.live
ROOT = Path(__file__).parents[2]
NUM_JOBS = 12


@pytest.fixture
def stopped(tmp_path, request):
    """A local run of the small trace that got a signal when a few jobs had ended."""
    out, trace = tmp_path / "out", tmp_path / "trace.csv"
    trace.write_bytes((ROOT / "trace_data" / "small.csv").read_bytes())
    with subprocess.Popen(command(trace.name), cwd=tmp_path, stderr=subprocess.PIPE, text=True) as process:
        wait_for(lambda: (out / STATE_FILE).exists() and events(out) > 15, "some events")
        process.send_signal(request.param)
        _, errors = process.communicate(timeout=60)
    return out, process.returncode, errors


def command(trace: str) -> list[str]:
    """Runs the small trace into the folder out of the working directory."""
    argv = [sys.executable, str(ROOT / "run.py"), "--policy", "srsf", "--trace", trace]
    argv += ["--cluster", str(ROOT / "cluster_spec" / "n2g4.csv")]
    return [*argv, "--mode", "local", "--time-scale", "800", "--out", "out"]


def events(out: Path) -> int:
    """A lower bound of what the state file holds: its size grows with each commit."""
    return sum(path.stat().st_size for path in out.glob(f"{STATE_FILE}*")) // 4_096


@pytest.mark.parametrize("stopped", [signal.SIGINT, signal.SIGKILL], indirect=True)
def test_a_run_goes_on_where_it_was(stopped, capsys):
    out, code, errors = stopped
    assert code in (130, -signal.SIGKILL), errors
    if code == 130:
        assert "and `resume` goes on with it" in errors
    goes_on(out, capsys)


@pytest.mark.parametrize("room_kib", [40, 120])
def test_a_run_whose_disk_is_full_stops_with_a_line_and_goes_on_when_there_is_room(
    tmp_path, monkeypatch, room_kib, capsys
):
    """No file may grow above `room_kib`: the state file is the first that does."""
    monkeypatch.setenv(MARK, str(tmp_path))
    shutil.copy(ROOT / "trace_data" / "small.csv", tmp_path / "trace.csv")
    room = (room_kib * 1024,) * 2
    env = {name: value for name, value in os.environ.items() if not name.startswith("COV")}  # it writes files, too
    run = subprocess.run(
        command("trace.csv"),
        cwd=tmp_path,
        env=env,
        stderr=subprocess.PIPE,
        text=True,
        timeout=120,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, room),
    )
    assert run.returncode == 1
    (error,) = [line for line in run.stderr.splitlines() if line.startswith("error: ")]
    assert "state.sqlite: " in error
    assert error.endswith("and `resume` goes on with it")
    assert "Traceback" not in run.stderr
    assert not marked(str(tmp_path))
    goes_on(tmp_path / "out", capsys)


def goes_on(out: Path, capsys) -> None:
    """`resume` ends each job once, and `replay` finds the same actions."""
    where = os.getcwd()
    try:
        assert main(["resume", str(out)]) == 0
    finally:
        os.chdir(where)
    assert "srsf" in capsys.readouterr().out
    run = json.loads((out / "run.json").read_text())
    assert run["status"] == "finished"
    journal = read_journal(out / JOURNAL_FILE)
    ends = [
        action.record.job_id
        for entry in journal.entries
        for action in entry.actions
        if type(action).__name__ == "RecordEnd"
    ]
    assert sorted(ends) == sorted(map(str, range(NUM_JOBS)))
    assert main(["replay", str(out)]) == 0


@pytest.mark.parametrize("stopped", [signal.SIGTERM], indirect=True)
def test_a_run_whose_inputs_changed_is_refused(stopped, capsys):
    out, code, errors = stopped
    assert code == 130, errors
    trace = out.parent / "trace.csv"
    trace.write_text(trace.read_text() + "\n")
    where = os.getcwd()
    try:
        assert main(["resume", str(out)]) == 2
    finally:
        os.chdir(where)
    assert "--trace: 'trace.csv' has changed since the run began" in capsys.readouterr().err


def test_what_is_no_run_is_refused(tmp_path, capsys):
    assert main(["resume", str(tmp_path)]) == 2
    assert "there is no state file" in capsys.readouterr().err
