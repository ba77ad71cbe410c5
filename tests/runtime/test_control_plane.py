"""The benchmark of the control plane, small: real workers, timers for trainers, no job lost, nothing left behind."""

import os
import re
import signal
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from tests.runtime.test_local import MARK, marked, wait_for

pytestmark = pytest.mark.live
ROOT = Path(__file__).parents[2]
BENCHMARK = ROOT / "benchmarks" / "control_plane.py"


def start(*options: str, mark: str, **streams) -> subprocess.Popen:
    argv = [sys.executable, str(BENCHMARK), "--workers", "40", *options]
    environment = {**os.environ, MARK: mark}
    return subprocess.Popen(argv, env=environment, text=True, start_new_session=True, **streams)


def test_forty_workers_run_two_hundred_jobs_and_none_is_lost():
    mark = uuid.uuid4().hex
    options = ("--gpus-per-worker", "4", "--jobs", "200", "--seconds", "1", "--rate", "200")
    with start(*options, mark=mark, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        printed, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    assert re.search(r"jobs that did all their work\s+200\s+200\s+yes", printed)
    assert re.search(r"submission to launch, p99\s+<= 2 s\s+\S+ s\s+yes", printed)
    assert re.search(r"reports a second at the master\s+>= 160\s+\d+\s", printed)
    assert "Traceback" not in errors
    assert marked(mark) == []


def test_after_ctrl_c_no_process_is_left():
    mark = uuid.uuid4().hex
    with start("--jobs", "400", mark=mark, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
        wait_for(lambda: len(marked(mark)) >= 4, "the processes of the benchmark")
        os.killpg(process.pid, signal.SIGINT)
        _, errors = process.communicate(timeout=30)
    assert process.returncode == 130
    assert errors.rstrip().endswith("stopped")
    assert "Traceback" not in errors
    assert marked(mark) == []


def test_unusable_options_are_named():
    for options, words in (
        (("--jobs", "none"), "'none' given; allowed: a whole number from 1 on"),
        (("--workers", "100000000", "--hosts", "1"), "open files a process are needed"),
    ):
        argv = [sys.executable, str(BENCHMARK), *options]
        result = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
        assert result.returncode == 2
        assert words in result.stderr
