"""The state file: what is committed comes back as it was, and a file that is not whole is refused by name."""

import os
import sqlite3
import stat
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from cluster_exp.domain.actions import Preempt
from cluster_exp.domain.cluster import NodeSpec
from cluster_exp.domain.errors import InputError
from cluster_exp.domain.events import JobArrived, JobFinished, PlanDue, Progressed, WorkerJoined
from cluster_exp.protocol.controller import sum_of
from cluster_exp.protocol.log import Happened, ReportsTaken, SubmissionTaken, WorkerKnown
from cluster_exp.protocol.messages import PROTOCOL_VERSION, Registration, ReportKind, TrainerReport
from cluster_exp.runtime.store import StateError, StateFile
from tests.runtime.live_kit import job

ROOT = Path(__file__).parents[2]
OFFER = Registration(
    PROTOCOL_VERSION, "n0", "first", "127.0.0.1:1", "127.0.0.1:2", 2, "v100", 16_000.0, turns_key="0" * 64
)
NOTES = (
    WorkerKnown(OFFER),
    SubmissionTaken("r1", ("a", "b"), 2.5),
    ReportsTaken(0, 3, (TrainerReport("a", 2, ReportKind.FAILED, 7, "exit code 1", 5),), 3.5),
)
EVENTS = (
    (WorkerJoined(0.0, 0, NodeSpec("n0", 2)), []),
    (JobArrived(1.0, job("a")), []),
    (PlanDue(1.5), [Preempt(1.5, "a", 1, "why")]),
    (JobFinished(2.0, "a", 1), []),
)


@pytest.fixture
def path(tmp_path) -> Path:
    return tmp_path / "state.sqlite"


def filled(path: Path) -> None:
    state = StateFile.create(path, {"policy": "srsf", "words": ["--mode", "local"]})
    for note in NOTES:
        state.note(note)
    for event, actions in EVENTS:
        state.record(event, actions)
    state.commit()
    state.close()


def test_rows_come_back_as_they_were_and_only_their_owner_can_read_them(path):
    filled(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    state = StateFile.reopen(path)
    rows = list(state.rows())
    assert rows[:3] == list(NOTES)
    assert [row.event for row in rows[3:] if isinstance(row, Happened)][2:] == [EVENTS[2][0], EVENTS[3][0]]
    assert [row.actions_sum for row in rows[3:]] == [sum_of(actions) for _, actions in EVENTS]
    assert state.meta() == {"policy": "srsf", "words": ["--mode", "local"]}
    state.note(NOTES[0])
    state.commit()
    assert len(list(state.rows())) == len(rows) + 1
    state.close()


def test_progress_waits_for_company_and_what_was_not_committed_never_was(path):
    state = StateFile.create(path, {})
    state.record(Progressed(1.0, ("a",), (5.0,)), [])
    state.commit()
    assert list(state.rows()) == []
    state.note(NOTES[1])
    state.commit()
    assert len(list(state.rows())) == 2
    state.note(NOTES[1])
    state.close()
    state = StateFile.reopen(path)
    assert len(list(state.rows())) == 2
    state.close()


def test_a_second_master_is_refused(path):
    state = StateFile.create(path, {})
    with pytest.raises(InputError, match="is in use: another master runs with it"):
        StateFile.reopen(path)
    state.close()
    with pytest.raises(InputError, match="exists already; `resume` goes on with it"):
        StateFile.create(path, {})


def change(path: Path, statement: str, *values: object) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute(statement, values)
    connection.close()


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("UPDATE log SET data = x'7b7d' WHERE n = 2", "row 2 of log: is missing or damaged"),
        ("DELETE FROM log WHERE n = 3", "row 3 of log: is missing or damaged"),
        ("UPDATE log SET actions_sum = 1 WHERE n = 6", "row 6 of log: is missing or damaged"),
        ("UPDATE log SET kind = 'Unheard' WHERE n = 5", "row 5 of log: is missing or damaged"),
    ],
)
def test_a_damaged_row_is_named(path, statement, words):
    filled(path)
    change(path, statement)
    state = StateFile.reopen(path)
    with pytest.raises(InputError, match=words):
        list(state.rows())
    state.close()


def test_files_of_others_and_of_other_versions_are_refused_by_name(path, tmp_path):
    with pytest.raises(InputError, match=r"nothing\.sqlite: there is no state file"):
        StateFile.reopen(tmp_path / "nothing.sqlite")
    filled(path)
    change(path, "PRAGMA user_version = 99")
    with pytest.raises(InputError, match="has state format 99, this version reads 1"):
        StateFile.reopen(path)
    change(path, "PRAGMA application_id = 5")
    with pytest.raises(InputError, match="is no state file of this program"):
        StateFile.reopen(path)


@pytest.mark.parametrize("content", [b"", b"not a database at all, but long enough to look like one" * 40])
def test_what_is_no_database_is_refused(path, content):
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"is damaged|is no state file"):
        StateFile.reopen(path)


@pytest.mark.parametrize("place", [0, 200, 4096, 9000])
def test_overwritten_pages_never_read_as_something_else(path, place):
    filled(path)
    content = bytearray(path.read_bytes())
    content[place : place + 64] = os.urandom(64)
    path.write_bytes(content)
    found = rows_or_error(path)
    if isinstance(found, str):
        assert str(path) in found
    else:
        assert found[:3] == list(NOTES)  # the bytes lay in no row


def rows_or_error(path: Path) -> list | str:
    try:
        state = StateFile.reopen(path)
    except InputError as error:
        return str(error)
    try:
        return list(state.rows())
    except (InputError, StateError) as error:
        return str(error)
    finally:
        state.close()


FULL = textwrap.dedent("""
    import resource, sys
    from pathlib import Path
    from cluster_exp.runtime.store import StateError, StateFile
    from tests.runtime.test_store import NOTES

    state = StateFile.create(Path(sys.argv[1]), {})
    size = 400_000
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
    written = 0
    try:
        while True:
            for _ in range(50):
                state.note(NOTES[2])
            state.commit()
            written += 50
    except StateError as error:
        print(written, error, flush=True)
""")


def test_a_full_disk_is_a_clear_error_and_keeps_what_was_committed(path):
    run = subprocess.run(
        [sys.executable, "-c", FULL, str(path)], capture_output=True, text=True, cwd=ROOT, timeout=60, check=False
    )
    written, _, words = run.stdout.partition(" ")
    assert words.startswith(f"state file {path}: "), run.stderr
    assert int(written) > 100
    state = StateFile.reopen(path)
    assert list(state.rows()) == [NOTES[2]] * int(written)
    state.close()


def test_a_folder_that_cannot_be_written_to_is_named(tmp_path):
    with pytest.raises(StateError, match=r"state file .*missing/state.sqlite: No such file or directory"):
        StateFile.create(tmp_path / "missing" / "state.sqlite", {})
