"""A crew of processes: what becomes of tasks that end well, fail, die, or are stopped."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cluster_exp.domain.errors import InputError
from cluster_exp.parallel.crew import Crew, Tell
from tests.unit.test_reproduce import members

ROOT = Path(__file__).parents[2]


def work(task: str, tell: Tell) -> str:
    match task:
        case "bad input":
            raise InputError("is wrong", where="a.csv:1")
        case "bug":
            return {"a": 1}["b"]
        case "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        case "left":
            os._exit(7)
        case "waits":
            signal.pause()
        case "marks":
            try:
                Path(os.environ["CREW_MARK"]).write_text("at work")
                signal.pause()
            finally:
                Path(os.environ["CREW_MARK"]).write_text("told to stop")
    tell(3)
    tell(5)
    return task.upper()


def outcomes(tasks: list[str], workers: int = 2) -> tuple[dict[str, object], int]:
    told: list[int] = []
    with Crew(work, tasks, [1] * len(tasks), workers, told.append) as crew:
        found = {tasks[index]: outcome.result or outcome.error for index, outcome in crew}
    return found, sum(told)


def test_a_task_that_fails_does_not_stop_the_others():
    found, done = outcomes(["a", "bad input", "bug", "killed", "left", "b"])
    assert found.pop("bug").startswith("KeyError: 'b' (")
    assert found == {
        "a": "A",
        "b": "B",
        "bad input": "InputError: a.csv:1: is wrong",
        "killed": "its process was ended by SIGKILL (the memory may have run out)",
        "left": "its process died with exit code 7",
    }
    assert done == 10  # both that ended well


@pytest.mark.parametrize(("sizes", "order"), [([1, 3, 2], "bca"), ([1, 1, 1], "abc")])
def test_the_largest_start_first_and_equal_ones_in_their_order(sizes, order):
    with Crew(work, ["a", "b", "c"], sizes, 1, lambda units: None) as crew:
        assert "".join("abc"[index] for index, _ in crew) == order


def test_no_task_is_fine():
    assert outcomes([]) == ({}, 0)


def test_leaving_the_block_ends_the_others():
    with Crew(work, ["a", "waits"], [1, 2], 2, lambda units: None) as crew:
        assert next(iter(crew))[0] == 0
        (active,) = crew._active
    assert not active.process.is_alive()


CHILD = """
from cluster_exp.parallel.crew import Crew
from tests.unit.test_crew import work
if __name__ == "__main__":
    with Crew(work, ["marks"], [1], 1, lambda units: None) as crew:
        print(dict(crew))
"""


@pytest.mark.parametrize(("number", "mark"), [(signal.SIGINT, "told to stop"), (signal.SIGKILL, "at work")])
def test_when_its_owner_goes_no_process_stays(tmp_path, number, mark):
    script, note = tmp_path / "owner.py", tmp_path / "mark"
    script.write_text(CHILD)
    environment = {**os.environ, "CREW_MARK": str(note), "PYTHONPATH": str(ROOT)}
    owner = subprocess.Popen(
        [sys.executable, script], cwd=ROOT, env=environment, start_new_session=True, stderr=subprocess.DEVNULL
    )
    deadline_s = time.monotonic() + 60
    while not (note.exists() and note.read_text()) and time.monotonic() < deadline_s:
        time.sleep(0.01)
    assert len(members(owner.pid)) >= 3  # it, the fork server, the task
    owner.send_signal(number)
    owner.wait(timeout=30)
    while members(owner.pid) and time.monotonic() < deadline_s:
        time.sleep(0.01)
    assert members(owner.pid) == []
    assert note.read_text() == mark
