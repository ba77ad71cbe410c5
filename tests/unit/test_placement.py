import numpy as np
import pytest

from cluster_exp.core.placement import PLACEMENTS, ClusterTrial, Layout
from cluster_exp.domain.allotment import Allotment, NodeShare
from cluster_exp.domain.plan import Misfit
from tests.unit.placement_kit import Request, place

CONSOLIDATED, YARN, COUNT = (PLACEMENTS[name] for name in ("consolidated", "yarn", "count"))
TWO_BY_FOUR = {0: 4, 1: 4}


def at(node: int, *gpus: int) -> Allotment:
    return Allotment((NodeShare(node, gpus),))


def nodes(allotment: Allotment | None) -> list[tuple[int, int]]:
    assert allotment is not None
    return [(share.node, len(share.gpus)) for share in allotment.shares]


def test_consolidated_takes_the_fullest_node_with_room_and_yarn_the_first() -> None:
    requests = [Request(2, at(1, 0, 1)), Request(1)]
    best = place(requests, TWO_BY_FOUR, CONSOLIDATED, Misfit.SKIP, pinned=False)
    assert nodes(best[1]) == [(1, 1)]
    first = place(requests, TWO_BY_FOUR, YARN, Misfit.SKIP, pinned=False)
    assert [nodes(allotment) for allotment in first] == [[(1, 2)], [(0, 1)]]


@pytest.mark.parametrize("placement", [CONSOLIDATED, YARN])
def test_wide_jobs_get_whole_nodes_and_a_remainder(placement) -> None:
    sizes = {0: 4, 1: 4, 2: 4}
    (wide,) = place([Request(10)], sizes, placement, Misfit.SKIP, pinned=False)
    assert nodes(wide) == [(0, 4), (1, 4), (2, 2)]
    narrow_first = place([Request(1), Request(8), Request(3)], sizes, placement, Misfit.SKIP, pinned=False)
    assert nodes(narrow_first[1])[0][1] == 4
    assert sum(allotment is not None for allotment in narrow_first) == 3


def test_wide_jobs_need_idle_nodes_unless_only_gpus_count() -> None:
    requests = [Request(1, at(0, 0)), Request(1, at(1, 0)), Request(5)]
    assert place(requests, TWO_BY_FOUR, CONSOLIDATED, Misfit.SKIP, pinned=True)[2] is None
    counted = place(requests, TWO_BY_FOUR, COUNT, Misfit.SKIP, pinned=True)[2]
    assert nodes(counted) == [(0, 3), (1, 2)]


def test_running_groups_stay_when_everything_fits_so() -> None:
    requests = [Request(2), Request(2, at(0, 1, 3)), Request(4)]
    placed = place(requests, TWO_BY_FOUR, CONSOLIDATED, Misfit.SKIP, pinned=False)
    assert placed[1] == at(0, 1, 3)
    assert placed[0] == at(0, 0, 2)
    assert placed[2] == at(1, 0, 1, 2, 3)


def test_groups_move_when_the_plan_fits_only_so() -> None:
    requests = [Request(4), Request(2, at(0, 0, 1)), Request(2, at(1, 0, 1))]
    placed = place(requests, TWO_BY_FOUR, CONSOLIDATED, Misfit.SKIP, pinned=False)
    assert all(allotment is not None for allotment in placed)
    assert sum(placed[i] == requests[i].current for i in (1, 2)) == 1


def test_what_runs_does_not_keep_out_what_comes_first() -> None:
    requests = [Request(8), Request(2, at(0, 0, 1))]
    placed = place(requests, TWO_BY_FOUR, CONSOLIDATED, Misfit.SKIP, pinned=False)
    assert placed[0] is not None
    assert placed[1] is None


def test_misfit_decides_about_the_rest() -> None:
    requests = [Request(3), Request(6), Request(1)]
    skip = place(requests, TWO_BY_FOUR, CONSOLIDATED, Misfit.SKIP, pinned=False)
    stop = place(requests, TWO_BY_FOUR, CONSOLIDATED, Misfit.STOP, pinned=False)
    assert [allotment is not None for allotment in skip] == [True, False, True]
    assert [allotment is not None for allotment in stop] == [True, False, False]


def test_a_place_on_a_lost_node_is_given_up() -> None:
    (placed,) = place([Request(2, at(1, 0, 1))], {0: 4}, CONSOLIDATED, Misfit.SKIP, pinned=True)
    assert placed == at(0, 0, 1)


def test_a_trial_counts_down_and_refuses_without_change() -> None:
    trial = ClusterTrial(Layout(TWO_BY_FOUR).pool(), CONSOLIDATED.fit)
    assert trial.take(3)
    assert not trial.take(8)
    assert trial.free_gpus == 5
    assert trial.take(4)
    assert trial.take(1)
    assert trial.free_gpus == 0
    assert not trial.take(1)


def test_a_trial_takes_columns_that_cannot_be_written_to() -> None:
    wanted = np.array([3, 4, 8, 1, 1], dtype=np.int32)
    wanted.flags.writeable = False
    assert ClusterTrial(Layout(TWO_BY_FOUR).pool(), CONSOLIDATED.fit).take_many(wanted).tolist() == [
        True,
        True,
        False,
        True,
        False,
    ]
