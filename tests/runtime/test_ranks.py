"""The starter of a node's ranks: all of them, their variables, and what happens when one fails."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.runtime.test_launching import alive

SAY = (
    "import os; open(os.environ['OUT'] + os.environ['RANK'], 'w').write(os.environ.get('CLUSTER_EXP_RANKS', 'none'))"
)
WAIT = "import os, signal; open(os.environ['OUT'] + os.environ['RANK'], 'w').write(str(os.getpid())); signal.pause()"
DEADLINE_S = 30.0


def starter(folder: Path, script: str, *envs: dict[str, str], python: str = sys.executable) -> subprocess.Popen:
    ranks = [{"RANK": str(rank), "OUT": f"{folder}/", **env} for rank, env in enumerate(envs)]
    argv = [sys.executable, "-m", "cluster_exp.runtime.ranks", python, "-S", "-c", script]
    return subprocess.Popen(argv, env={**os.environ, "CLUSTER_EXP_RANKS": json.dumps(ranks)}, stderr=subprocess.PIPE)


def waited(paths: list[Path]) -> list[int]:
    deadline = time.monotonic() + DEADLINE_S
    while not all(path.exists() and path.read_text() for path in paths):
        assert time.monotonic() < deadline, paths
        time.sleep(0.01)
    return [int(path.read_text()) for path in paths]


def test_every_rank_gets_its_own_variables(tmp_path):
    process = starter(tmp_path, SAY, {}, {})
    assert process.wait(DEADLINE_S) == 0
    assert [(tmp_path / name).read_text() for name in "01"] == ["none", "none"]


@pytest.mark.parametrize(("how", "code"), [("os._exit(7)", 7), ("os.kill(os.getpid(), 9)", 137)])
def test_a_rank_that_fails_takes_the_others_along_and_gives_its_code(tmp_path, how, code):
    script = f"import os\nif os.environ['RANK'] == '1': {how}\n{WAIT}"
    process = starter(tmp_path, script, {}, {})
    assert process.wait(DEADLINE_S) == code
    assert not [path for path in tmp_path.iterdir() if path.read_text() and alive(int(path.read_text()))]


def test_sigterm_reaches_all_ranks(tmp_path):
    process = starter(tmp_path, WAIT, {}, {})
    pids = waited([tmp_path / "0", tmp_path / "1"])
    process.terminate()
    assert process.wait(DEADLINE_S) == 128 + signal.SIGTERM
    assert not [pid for pid in pids if alive(pid)]


def test_ranks_die_with_a_killed_starter(tmp_path):
    process = starter(tmp_path, WAIT, {}, {})
    pids = waited([tmp_path / "0", tmp_path / "1"])
    process.kill()
    process.wait(DEADLINE_S)
    deadline = time.monotonic() + DEADLINE_S
    while any(alive(pid) for pid in pids):
        assert time.monotonic() < deadline, pids
        time.sleep(0.01)


def test_a_program_that_is_not_there_is_named(tmp_path):
    process = starter(tmp_path, SAY, {}, python="/nowhere/python")
    _, said = process.communicate(timeout=DEADLINE_S)
    assert process.returncode != 0
    assert b"/nowhere/python" in said
