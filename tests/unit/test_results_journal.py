"""Journals: what is read equals what was written, and damage is named by line."""

import json
import logging
import math
import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster_exp.domain import actions, events
from cluster_exp.domain.allotment import Allotment, NodeShare
from cluster_exp.domain.cluster import NodeSpec
from cluster_exp.domain.errors import InputError
from cluster_exp.domain.job import FINAL, JobSpec
from cluster_exp.domain.profile import StageProfile
from cluster_exp.results.journal import Detail, Entry, JournalWriter, read_journal

number = st.floats(min_value=0, allow_nan=False, allow_infinity=False)
count = st.integers(0, 2**40)
text = st.text(st.characters(exclude_categories=("Cs",)), max_size=12)
not_stated = number | st.just(math.nan)
profile = st.builds(StageProfile, number, number, number, number, number)
job = st.builds(
    JobSpec, text, count, number, count, number, text, count, profile, text, text, count, text, number, not_stated
)
share = st.builds(NodeShare, count, st.lists(count, max_size=3).map(tuple), number, number)
allotment = st.builds(Allotment, st.lists(share, min_size=1, max_size=2).map(tuple))
node = st.builds(NodeSpec, text, count, text, text, not_stated, count, not_stated, count)
member = st.builds(actions.GroupMember, text, st.integers(0, 3), count)
turns = st.builds(actions.TurnGroup, count, count, st.lists(member, max_size=4).map(tuple), count)
record = st.builds(
    actions.JobRecord,
    *(text, count, number, number | st.none(), number, number, number, count, count),
    st.sampled_from(sorted(FINAL)),
    text,
)


@st.composite
def progressed(draw):
    pairs = draw(st.lists(st.tuples(text, number), max_size=4))
    ids, left = tuple(name for name, _ in pairs), tuple(value for _, value in pairs)
    return events.Progressed(draw(number), ids, left)


any_event = st.one_of(
    progressed(),
    st.builds(events.JobStarted, number, text, count),
    st.builds(events.JobFinished, number, text, count),
    st.builds(events.JobPreempted, number, text, count, number),
    st.builds(events.JobFailed, number, text, count, text),
    st.builds(events.CancelRequested, number, text),
    st.builds(events.JobArrived, number, job),
    st.builds(events.WorkerJoined, number, count, node),
    st.builds(events.WorkerLost, number, count, text),
    st.builds(events.PlanDue, number),
)
any_action = st.one_of(
    st.builds(actions.Launch, number, job, count, allotment, number, count, text),
    st.builds(actions.Preempt, number, text, count, text),
    st.builds(actions.SetTurns, number, turns, text),
    st.builds(actions.RecordEnd, number, record),
    st.builds(actions.Wake, number, number),
)


def write(path, entries, detail=Detail.FULL):
    writer = JournalWriter(path, {"policy": "fifo"}, detail)
    for event, answer in entries:
        writer.record(event, answer)
    writer.close()
    return path


def due(time_s: float) -> events.PlanDue:
    return events.PlanDue(time_s)


def stop(time_s: float) -> actions.Preempt:
    return actions.Preempt(time_s, "a", 1, "not planned now")


@settings(max_examples=150, deadline=None)
@given(entries=st.lists(st.tuples(any_event, st.lists(any_action, max_size=3)), max_size=4))
def test_what_is_read_is_what_was_written(tmp_path_factory, entries):
    path = write(tmp_path_factory.mktemp("journal") / "journal.jsonl", entries)
    read = [(entry.event, list(entry.actions)) for entry in read_journal(path).entries]
    assert repr(read) == repr(entries)  # repr, because NaN does not equal itself; it shows every digit


def test_one_number_runs_through_an_event_and_its_actions(tmp_path):
    path = write(tmp_path / "j", [(due(0.5), []), (due(1.0), [stop(1.0), stop(1.0)])])
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert lines[0]["policy"] == "fifo"
    assert [line["n"] for line in lines[1:]] == [1, 2, 2, 2]
    assert [line.get("actions") for line in lines[1:]] == [0, 2, None, None]
    assert lines[3]["data"]["reason"] == "not planned now"


def test_a_summary_leaves_out_progress_and_keeps_the_numbers(tmp_path):
    entries = [(events.Progressed(1.0, ("a",), (2.5,)), []), (due(1.0), [])]
    assert read_journal(write(tmp_path / "j", entries, Detail.SUMMARY)).entries == (Entry(2, due(1.0), ()),)
    write(tmp_path / "none", entries, Detail.NONE)
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("cut", range(1, 200, 7))
def test_an_end_that_breaks_off_is_left_out_with_a_warning(tmp_path, caplog, cut):
    entries = [(due(1.0), []), (due(2.0), [stop(2.0), stop(2.0)])]
    path = write(tmp_path / "j", entries)
    path.write_bytes(path.read_bytes()[:-cut])
    with caplog.at_level(logging.WARNING):
        read = read_journal(path)
    assert read.entries == (Entry(1, due(1.0), ()),)
    assert "left out" in caplog.text


DAMAGE = {
    "no JSON": ("{oops", "is damaged"),
    "a list": ("[1]", "no JSON object"),
    "unknown event": ('{"n":9,"event":"Flood","actions":0,"data":{}}', "unknown event 'Flood'"),
    "event is no text": ('{"n":9,"event":[],"actions":0,"data":{}}', r"unknown event \[\]"),
    "a field is missing": ('{"n":9,"event":"PlanDue","actions":0,"data":{}}', "is no PlanDue"),
    "text for a number": ('{"n":9,"event":"PlanDue","actions":0,"data":{"time_s":"x"}}', "is no PlanDue"),
    "no number": ('{"event":"PlanDue","actions":0,"data":{"time_s":1}}', "n is None"),
    "no count": ('{"n":9,"event":"PlanDue","data":{"time_s":1}}', "actions is None"),
    "a stray action": ('{"n":1,"action":"Wake","data":{"time_s":1,"at_s":2}}', "neither an event nor the action"),
}


@pytest.mark.parametrize(("line", "says"), DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_line_is_named(tmp_path, line, says):
    path = write(tmp_path / "j", [(due(1.0), []), (due(2.0), [])])
    lines = path.read_text().splitlines()
    lines[2] = line
    path.write_text("\n".join(lines) + "\n")
    with pytest.raises(InputError, match=f"^{re.escape(str(path))}:3: .*{says}"):
        read_journal(path)


def test_an_event_that_lacks_actions_in_the_middle_is_named(tmp_path):
    path = write(tmp_path / "j", [(due(1.0), [stop(1.0)]), (due(2.0), [])])
    lines = path.read_text().splitlines()
    del lines[2]
    path.write_text("\n".join(lines) + "\n")
    with pytest.raises(InputError, match=":3: event 1 lacks 1 of its actions"):
        read_journal(path)


def test_other_files_are_no_journals(tmp_path):
    path = tmp_path / "j"
    with pytest.raises(InputError, match="cannot be read"):
        read_journal(path)
    path.write_text("")
    with pytest.raises(InputError, match="is empty"):
        read_journal(path)
    path.write_text('{"format":99}\n')
    with pytest.raises(InputError, match=":1: has journal format 99"):
        read_journal(path)


def test_a_journal_is_never_written_over(tmp_path):
    path = write(tmp_path / "j", [])
    with pytest.raises(FileExistsError):
        JournalWriter(path, {})


def test_writing_is_fast(tmp_path):
    progress = events.Progressed(1.0, tuple(f"job{i}" for i in range(40)), tuple(i / 7 for i in range(40)))
    writer = JournalWriter(tmp_path / "j", {})
    start_s = time.process_time()
    for _ in range(2_000):
        writer.record(progress, [])
    writer.close()
    assert time.process_time() - start_s < 0.5  # about 0.02 s where nothing else runs
