"""Ranks as plain processes under several host names train, agree bit by bit, and notice when one is lost."""

import os
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from cluster_exp.runtime.rendezvous import RankPlace, open_rendezvous, rank_environment, rank_places

pytestmark = pytest.mark.horovod
ROOT = Path(__file__).parents[2]
RANK = Path(__file__).with_name("rank.py")
BACKENDS = ("horovod", "torch")
PAIR = (("left", 1), ("right", 1))
DEADLINE_S = 150.0  # for processes that start while all cores are busy
LOST_CODE = 3


@dataclass
class Ended:
    """How a rank ended."""

    code: int | None  # None = it still ran and was killed
    output: str
    after_s: float  # since it was started

    @property
    def weights(self) -> str:
        return re.search(r"^weights (\w+)$", self.output, re.MULTILINE)[1]


def run_ranks(
    backend: str,
    places: Sequence[RankPlace],
    *arguments: str,
    timeout_s: float = 60.0,
    started: Sequence[int] | None = None,
    awaited: Sequence[int] | None = None,
) -> dict[int, Ended]:
    """Starts the ranks `started` (all), waits for those `awaited` (all that were started), ends the others."""
    started = range(len(places)) if started is None else started
    ended: dict[int, Ended] = {}
    with open_rendezvous(backend, places) as meeting:
        began_s = time.monotonic()
        processes = {
            rank: subprocess.Popen(
                [sys.executable, str(RANK), *arguments],
                env={
                    **os.environ,
                    "PYTHONPATH": str(ROOT),
                    **rank_environment(meeting.endpoint, places[rank], timeout_s=timeout_s),
                },
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            for rank in started
        }
        try:
            for rank in started if awaited is None else awaited:
                output, _ = processes[rank].communicate(timeout=DEADLINE_S)
                ended[rank] = Ended(processes[rank].returncode, output, time.monotonic() - began_s)
        finally:
            for process in processes.values():
                process.kill()
            for process in processes.values():
                process.communicate()
    return ended


@pytest.fixture(scope="module")
def weights_of_torch() -> str:
    return run_ranks("torch", rank_places(PAIR))[0].weights


@pytest.mark.parametrize("backend", BACKENDS)
def test_all_ranks_end_with_the_same_bits_run_after_run(backend, weights_of_torch):
    ended = run_ranks(backend, rank_places(PAIR))
    assert [rank.code for rank in ended.values()] == [0, 0], ended
    # Two ranks: there is one sum only, so that the backends agree as well.
    assert {rank.weights for rank in ended.values()} == {weights_of_torch}


@pytest.mark.parametrize("backend", BACKENDS)
def test_three_ranks_on_two_nodes(backend):
    first, second = (run_ranks(backend, rank_places([("a/b", 2), ("c d", 1)])) for _ in range(2))
    assert [rank.code for rank in first.values()] == [0, 0, 0], first
    stands = [re.search(r"^rank.*$", rank.output, re.MULTILINE)[0] for rank in first.values()]
    assert stands == ["rank 0 local 0 size 3", "rank 1 local 1 size 3", "rank 2 local 0 size 3"]
    assert len({rank.weights for rank in [*first.values(), *second.values()]}) == 1


@pytest.mark.parametrize("lost", [0, 1])
@pytest.mark.parametrize("backend", BACKENDS)
def test_the_others_of_a_killed_rank_end_at_once(backend, lost):
    left = 1 - lost
    ended = run_ranks(backend, rank_places(PAIR), "--fault", f"killed,{lost},5", timeout_s=2 * DEADLINE_S)
    assert ended[lost].code == -9
    assert ended[left].code == LOST_CODE, ended[left].output
    assert f"LOST rank {left} of 2: allreduce over {backend} failed: " in ended[left].output


@pytest.mark.parametrize(("backend", "kind"), [("horovod", "idle"), ("horovod", "stopped"), ("torch", "stopped")])
def test_a_rank_that_stays_away_is_waited_for_no_longer_than_the_limit(backend, kind):
    ended = run_ranks(backend, rank_places(PAIR), "--fault", f"{kind},1,2", timeout_s=15, awaited=[0])
    assert ended[0].code == LOST_CODE, ended[0].output
    assert f"LOST rank 0 of 2: allreduce over {backend} failed: " in ended[0].output


@pytest.mark.parametrize(("backend", "alone"), [("horovod", 0), ("torch", 0), ("torch", 1)])
def test_a_rank_that_never_comes_is_an_error_of_the_others(backend, alone):
    ended = run_ranks(backend, rank_places(PAIR), timeout_s=2, started=[alone])
    assert ended[alone].code == LOST_CODE, ended[alone].output
    assert f"the ranks did not meet over {backend}: " in ended[alone].output
    if backend == "horovod":
        assert f"rank {1 - alone} of 2 did not come within 2 s" in ended[alone].output


def test_the_places_are_those_that_horovod_would_give():
    from horovod.runner.common.util.hosts import HostInfo, get_host_assignments

    hosts = [("n3", 2), ("n0", 4), ("n1", 1), ("n2", 4)]
    theirs = get_host_assignments([HostInfo(*host) for host in hosts], 1)
    ours = rank_places(hosts)
    assert [
        (place.node, place.rank, place.size, place.local_rank, place.local_size, place.cross_rank, place.cross_size)
        for place in ours
    ] == [
        (slot.hostname, slot.rank, slot.size, slot.local_rank, slot.local_size, slot.cross_rank, slot.cross_size)
        for slot in theirs
    ]
