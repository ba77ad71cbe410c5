"""Clusters that break, by seed: nothing is lost, whatever happens; and each safeguard is one that some seed needs.

One seed again: `python -m tests.property.faults_kit SEED`.
"""

import inspect
import os
import textwrap

import pytest

from cluster_exp.domain.errors import InputError, InvariantError
from cluster_exp.protocol import gangs, launches, retries, roster, submissions
from cluster_exp.sim.faults import master
from cluster_exp.sim.faults.run import total
from cluster_exp.sim.faults.spec import FaultSpec, parse_faults
from tests.property.faults_kit import broken_run, killed_run

CHUNK = 50
SEEDS = 500
SOAK_SEEDS = int(os.environ.get("CLUSTER_EXP_FAULT_SEEDS", "10000"))


def run_chunk(first: int) -> None:
    reports = [broken_run(seed) for seed in range(first, first + CHUNK)]
    together = total(reports)
    assert together.lost == ()
    assert sum(together.ended.values()) == 8 * CHUNK
    missing = {"masters killed", "workers killed", "networks cut", "messages lost", "messages late"} - set(
        together.injected
    )
    assert not missing


@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_no_job_is_lost_and_none_counts_twice(first):
    run_chunk(first)


@pytest.mark.soak
@pytest.mark.parametrize("first", range(SEEDS, SEEDS + SOAK_SEEDS, CHUNK))
def test_no_job_is_lost_in_many_runs(first):
    run_chunk(first)


def test_a_master_killed_at_any_point_of_a_run_loses_nothing():
    killed = 0
    for point in range(1000):
        report = killed_run(point)
        assert report.lost == ()
        assert report.ended == {"finished": 4}
        if not report.injected:  # the run was over before
            break
        killed += 1
    assert 100 < killed < 1000


def test_the_same_seed_is_the_same_run():
    assert broken_run(7) == broken_run(7)


def test_without_faults_no_launch_is_repeated():
    report = broken_run(5, calm=True)
    assert report.injected == {}
    assert report.ended == {"finished": 8}
    assert report.retried == 0


def changed(function, *swaps: tuple[str, str]):
    """A function with some words of its source replaced."""
    source = textwrap.dedent(inspect.getsource(function))
    for old, new in swaps:
        assert old in source
        source = source.replace(old, new)
    names = dict(function.__globals__)
    exec(source, names)
    return names[function.__name__]


def acknowledge_first(self) -> None:
    """`SimulatedMaster._settle` that answers before it commits."""
    self._links.flush()
    answers, self._answers = self._answers, []
    for answer in answers:
        answer()
    self._point()
    self.log.commit()


# What is taken away, and what then goes wrong for some seed.
SAFEGUARDS = {
    "lease": (roster.Roster, "lapsed", lambda self, now_s: [], "the run is stuck"),
    "generation": (
        gangs.Gangs,
        "report",
        changed(gangs.Gangs.report, (" or gang.generation != report.generation", "")),
        "counts as finished|is to go on from",
    ),
    "repeated batches": (
        roster.Roster,
        "take",
        changed(roster.Roster.take, ("return node, False", "pass"), (" and not member.resumed", " and False")),
        "iterations count as timed",
    ),
    "repeated submissions": (submissions.Submissions, "known", lambda self, *call: None, "is refused"),
    "repeated launches": (launches.Launches, "is_new", lambda self, *launch: True, "is started twice"),
    "retry cap": (retries.Retries, "failed", lambda self, *job: retries.Retry("again", 0.0), "retries|retried"),
    "persist before acknowledge": (master.SimulatedMaster, "_settle", acknowledge_first, "the run is stuck|refused"),
}


@pytest.mark.parametrize("name", SAFEGUARDS)
def test_every_safeguard_is_needed(name, monkeypatch):
    owner, attribute, without, words = SAFEGUARDS[name]
    monkeypatch.setattr(owner, attribute, without)
    with pytest.raises(InvariantError, match=rf"seed \d+, at .*({words})"):
        any(broken_run(seed, rough=True).lost for seed in range(400))


def test_a_specification_is_read_as_it_is_written():
    assert parse_faults("seed=3, masters=2,lost=0.1") == FaultSpec(seed=3, masters=2, lost=0.1)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("masters", "'masters' given; allowed: NAME=VALUE"),
        ("masterz=1", "'masterz=1' given"),
        ("masters=-1", "masters=-1 given; allowed: a whole number from 0"),
        ("lost=0.9", "lost=0.9 given; allowed: from 0 to 0.5"),
        ("late=nan", "late=nan given"),
        ("masters=1,masters=2", "masters is given twice"),
        ("report=5,lease=6", "lease=6 given; allowed: from 3 times report on"),
    ],
)
def test_an_unusable_specification_is_named(text, words):
    with pytest.raises(InputError, match=r"^--faults: ") as caught:
        parse_faults(text)
    assert words in str(caught.value)
