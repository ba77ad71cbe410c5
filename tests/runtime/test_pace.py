"""How often a master does things: by the size of the cluster and by how long plans take."""

import gc

import pytest

from cluster_exp.protocol.lease_checks import LeaseChecks
from cluster_exp.runtime.collector import rare_collections
from cluster_exp.runtime.pace import PlanPace, gather_s, report_interval_s


@pytest.mark.parametrize(("workers", "interval_s"), [(1, 0.2), (200, 0.2), (500, 0.5), (1000, 0.95), (10_000, 0.95)])
def test_many_workers_report_more_seldom_but_within_a_second(workers, interval_s):
    assert report_interval_s(workers) == pytest.approx(interval_s)


def test_calls_of_a_small_cluster_wait_for_nobody_and_those_of_a_large_one_for_hundredths():
    assert gather_s(8) == 0.0
    assert gather_s(100) == pytest.approx(0.002)
    assert gather_s(100_000) == pytest.approx(0.02)


def test_only_a_plan_that_took_long_is_followed_by_a_rest_and_the_rest_is_bounded():
    pace = PlanPace()
    assert pace.wait_s(0.0) == 0.0
    pace.planned(0.01, now_s=5.0)
    assert pace.wait_s(5.0) == 0.0
    pace.planned(0.12, now_s=6.0)
    assert pace.wait_s(6.1) == pytest.approx(0.2)
    assert pace.wait_s(6.4) == 0.0
    pace.planned(60.0, now_s=100.0)
    assert pace.wait_s(100.0) == pytest.approx(0.5)


def test_leases_are_looked_at_now_and_then():
    checks = LeaseChecks(10.0, 0.5)
    assert [checks.due(now_s) for now_s in (0.0, 0.1, 0.2, 0.3, 0.4)] == [True, False, True, False, True]


def test_a_master_that_was_held_up_blames_no_worker_for_it():
    checks = LeaseChecks(10.0, 0.5)
    assert checks.due(0.0)
    assert not checks.due(60.0)
    assert not any(checks.due(60.0 + step) for step in range(1, 10))
    assert checks.due(70.1)


def test_neither_a_long_plan_nor_an_idle_loop_counts_as_held_up():
    checks = LeaseChecks(0.8, 0.5)
    assert [checks.due(0.5 * turn) for turn in range(4)] == [True, True, True, True]
    checks.listened(60.0)
    assert checks.due(60.1)


def test_collections_are_rare_only_as_long_as_asked():
    former = gc.get_threshold()
    with rare_collections():
        assert gc.get_threshold()[0] > former[0]
    assert gc.get_threshold() == former
