"""Why a job waited, ran, shared or moved, as its journal tells it."""

from pathlib import Path

import pytest

from cluster_exp.cli import main
from cluster_exp.domain.actions import GroupMember, JobRecord, Launch, Preempt, RecordEnd, SetTurns, TurnGroup
from cluster_exp.domain.allotment import Allotment, NodeShare
from cluster_exp.domain.cluster import NodeSpec
from cluster_exp.domain.errors import InputError
from cluster_exp.domain.events import JobArrived, JobFinished, JobPreempted, PlanDue, WorkerJoined, WorkerLost
from cluster_exp.domain.job import JobStatus
from cluster_exp.results.explain import explain
from cluster_exp.results.journal import Entry, Journal
from tests.runtime.live_kit import job

ROOT = Path(__file__).parents[2]
PLACE = Allotment((NodeShare(0, (0,)),))


def turns(time_s: float, *members: str, why: str = "gamma=0.5") -> SetTurns:
    group = TurnGroup(0, 1, tuple(GroupMember(name, i, 1) for i, name in enumerate(members)), 0)
    return SetTurns(time_s, group, why)


def launch(time_s: float, name: str, generation: int = 1) -> Launch:
    return Launch(time_s, job(name), generation, PLACE, 100.0, 0, "rank=0")


def ended(time_s: float, name: str) -> RecordEnd:
    record = JobRecord(name, 1, 0.0, 0.0, time_s, 5.0, 100.0, 0, 0, JobStatus.FINISHED, "")
    return RecordEnd(time_s, record)


def story(*entries: tuple, job_id: str = "b", whole: bool = False) -> list[str]:
    start = [(WorkerJoined(0.0, 0, NodeSpec("n0", 1)),)]
    numbered = [Entry(i, event, tuple(actions)) for i, (event, *actions) in enumerate([*start, *entries], start=1)]
    return [line.partition(" s  ")[2] for line in explain(Journal({}, tuple(numbered)), job_id, whole=whole)]


BEGIN = (
    (JobArrived(0.0, job("a")),),
    (PlanDue(0.0), turns(0.0, "a"), launch(0.0, "a")),
    (JobArrived(1.0, job("b")),),
    (PlanDue(1.0),),
)


def test_a_wait_names_who_held_the_gpus_and_a_start_its_reason():
    lines = story(
        *BEGIN,
        (JobFinished(9.0, "a", 1), ended(9.0, "a")),
        (PlanDue(9.0), turns(9.0, "b"), launch(9.0, "b")),
        (JobFinished(20.0, "b", 1), ended(20.0, "b")),
    )
    assert lines == [
        "arrived: m on 1 GPUs, 100 iterations, 100 s alone",
        "waited 8 s: 1 plan passed over it, 0 of 1 GPUs were free after them, it needs 1; GPUs were held by a",
        "started on n0 gpu 0, alone: rank=0",
        "finished 20 s after it arrived, of which it held GPUs for 5 s",
    ]


def test_company_that_comes_and_goes_is_told_with_the_reason():
    lines = story(
        *BEGIN,
        (PlanDue(2.0), turns(2.0, "a", "b"), launch(2.0, "b")),
        (JobFinished(5.0, "a", 1), ended(5.0, "a"), turns(5.0, "b", why="a member left")),
    )
    assert lines[2:] == [
        "started on n0 gpu 0, with a: rank=0",
        "a went, alone: a member left",
        "still runs where the journal ends",
    ]


def test_a_preemption_a_retry_and_a_lost_node_are_told_apart():
    lines = story(
        *BEGIN[2:],
        (PlanDue(2.0), turns(2.0, "b"), launch(2.0, "b"), Preempt(2.0, "b", 1, "moves")),
        (JobPreempted(3.0, "b", 1, 40.0),),
        (PlanDue(4.0), turns(4.0, "b"), launch(4.0, "b", 2)),
        (JobPreempted(5.0, "b", 2, 30.0, "retry 1 of 3: exit code 1"),),
        (PlanDue(6.0), turns(6.0, "b"), launch(6.0, "b", 3)),
        (WorkerLost(7.0, 0, "silent for 10 s"),),
    )
    told = [line for line in lines if "waited" not in line]
    assert told[1:] == [
        "started on n0 gpu 0, alone: rank=0",
        "told to stop: moves",
        "left its GPUs: moves; 40 iterations remain",
        "started again (2.) on n0 gpu 0, alone: rank=0",
        "failed, retry 1 of 3: exit code 1; 30 iterations remain",
        "started again (3.) on n0 gpu 0, alone: rank=0",
        "lost its GPUs with n0: silent for 10 s",
    ]


def test_the_middle_of_a_long_story_is_left_out_unless_asked_for():
    moves = []
    for i in range(20):
        moves.append((PlanDue(2.0 + i), turns(2.0, "b"), launch(2.0 + i, "b", i + 1)))
        moves.append((JobPreempted(2.5 + i, "b", i + 1, 40.0),))
    short, long = story(*BEGIN[2:], *moves), story(*BEGIN[2:], *moves, whole=True)
    assert len(short) == 25
    assert len(long) > 40
    assert [line for line in short if line in long] != short


def test_an_unknown_job_is_refused_with_the_nearest_one():
    with pytest.raises(InputError, match="the journal knows no job 'c'"):
        story(*BEGIN, job_id="c")


def test_the_command_prints_a_jobs_story_and_refuses_what_it_cannot_read(tmp_path, capsys):
    out = tmp_path / "run"
    options = ["--policy", "muri-s", "--cluster", str(ROOT / "cluster_spec" / "n2g4.csv"), "--out", str(out)]
    assert main(["--trace", str(ROOT / "trace_data" / "small.csv"), *options]) == 0
    capsys.readouterr()
    assert main(["explain", "--journal", str(out), "--job", "1"]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed[0] == "job 1 under muri-s"
    assert any("with 3" in line for line in printed)
    assert main(["explain", "--journal", str(out / "journal.jsonl"), "--job", "nobody"]) == 2
    assert "the journal knows no job 'nobody'" in capsys.readouterr().err
    assert main(["explain", "--journal", str(tmp_path / "no.jsonl"), "--job", "1"]) == 2
    assert "no.jsonl: cannot be read" in capsys.readouterr().err
