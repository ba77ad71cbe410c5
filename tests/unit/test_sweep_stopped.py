"""Sweeps that are stopped or killed: no process stays, what is done is kept, and the same command goes on."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.unit.test_reproduce import members
from tests.unit.test_sweep import CLUSTER, rows, same, sweep

ROOT = Path(__file__).parents[2]
GRID = f"""
policies: [srsf, muri-s]
traces: {{generate: {{jobs: 40, load: 2, min_duration_s: 300, max_duration_s: 6000}}}}
clusters: {CLUSTER}
seeds: [1, 2, 3, 4]
journal: summary
"""


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    path = tmp_path / "grid.yaml"
    path.write_text(GRID)
    return path


def statuses(out: Path) -> list[str]:
    """Of the runs that have begun."""
    return [json.loads(path.read_text())["status"] for path in out.glob("*/run.json")]


def half_way(process: "subprocess.Popen[str]", out: Path) -> bool:
    """Whether some runs are done and others at work; if so, all processes are held."""
    if not {"finished", "running"} <= set(statuses(out)):
        return False
    os.killpg(process.pid, signal.SIGSTOP)
    if {"finished", "running"} <= set(statuses(out)):
        return True
    os.killpg(process.pid, signal.SIGCONT)
    return False


@contextmanager
def started(spec: Path, out: Path) -> Iterator["subprocess.Popen[str]"]:
    """A sweep of two workers, all its processes held when some of its runs are done and others at work."""
    command = [sys.executable, "run.py", "sweep", str(spec), "--out", str(out), "--workers", "2"]
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, cwd=ROOT, stdout=pipe, stderr=pipe, text=True, start_new_session=True)
    try:
        deadline_s = time.monotonic() + 60
        while not half_way(process, out):
            assert process.poll() is None
            assert time.monotonic() < deadline_s
            time.sleep(0.002)
        yield process
        while members(process.pid) and time.monotonic() < deadline_s:
            time.sleep(0.01)
        assert members(process.pid) == []
    finally:
        if members(process.pid):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def done(out: Path) -> dict[str, int]:
    return {
        path.parent.name: path.stat().st_ino
        for path in out.glob("*/run.json")
        if json.loads(path.read_text())["status"] == "finished"
    }


def test_a_killed_sweep_goes_on(spec, tmp_path):
    out = tmp_path / "out"
    with started(spec, out) as process:
        process.kill()
        process.wait(timeout=30)
        os.killpg(process.pid, signal.SIGCONT)
    kept = done(out)
    assert 0 < len(kept) < 8
    assert "running" in statuses(out)
    assert sweep(spec, out, "--checkpoint") == 0
    assert done(out).items() >= kept.items()
    assert sweep(spec, tmp_path / "whole") == 0
    assert same(out) == same(tmp_path / "whole")
    assert sorted(path.name for path in out.iterdir()) == sorted(path.name for path in (tmp_path / "whole").iterdir())
    for row in rows(out):
        files = [run / row["run"] for run in (out, tmp_path / "whole")]
        for name in ("job.csv", "journal.jsonl"):
            assert (files[0] / name).read_bytes() == (files[1] / name).read_bytes()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_sweep_keeps_its_table_and_goes_on(spec, tmp_path, number):
    out = tmp_path / "out"
    with started(spec, out) as process:
        os.killpg(process.pid, number)  # as a terminal or a batch system does
        os.killpg(process.pid, signal.SIGCONT)
        printed, errors = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "Traceback" not in errors
    assert errors.splitlines()[-1].startswith("interrupted; to go on: python run.py sweep ")
    assert errors.splitlines()[-1].endswith(" --checkpoint")
    count = len(done(out))
    assert 0 < count < 8
    assert printed.splitlines()[-1] == f"Partial result: {count} of 8 runs finished"
    table = {row["run"]: row for row in rows(out)}
    assert {name for name, row in table.items() if row["status"] == "finished"} == set(done(out))
    cut_short = {path.parent.name for path in out.glob("*/run.json")} - set(done(out))
    assert {name for name, row in table.items() if row["status"] == "interrupted"} == cut_short
    assert {row["status"] for row in table.values()} <= {"finished", "interrupted", "waiting"}
    assert all(row["average_jct_s"] == "" for row in table.values() if row["status"] != "finished")
    kept = done(out)
    assert sweep(spec, out, "--checkpoint") == 0
    assert done(out).items() >= kept.items()
    assert {row["status"] for row in rows(out)} == {"finished"}


def test_one_sweep_at_a_time_uses_a_directory(spec, tmp_path, capsys):
    out = tmp_path / "out"
    with started(spec, out) as process:
        assert sweep(spec, out, "--checkpoint") == 2
        assert "is in use by a sweep that is still at work" in capsys.readouterr().err
        process.kill()
        process.wait(timeout=30)
        assert sweep(spec, out, "--checkpoint") == 2  # its runs do not know yet that it is gone
        assert "is in use by a sweep that is still at work" in capsys.readouterr().err
        os.killpg(process.pid, signal.SIGCONT)
