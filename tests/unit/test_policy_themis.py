"""Themis's shares: against a solver, and by hand."""

from typing import Any

import cvxpy as cp
import numpy as np
import pytest

from cluster_exp.policies.themis import Ratios


def ratios(waited_s: Any, work_s: Any, alone: Any, num_gpu: Any) -> Ratios:
    columns = (np.array(column, dtype=np.float64) for column in (waited_s, work_s, alone))
    return Ratios(*columns, np.array(num_gpu, dtype=np.int64))


def largest(of: Ratios, shares: np.ndarray) -> float:
    return float(((of.waited_s + of.work_s / shares) / of.alone).max())


def solved(of: Ratios, num_gpu: int) -> float:
    """The least largest ratio, by cvxpy."""
    shares = cp.Variable(of.num_gpu.size)
    terms = cp.multiply(of.work_s / of.alone, cp.inv_pos(shares)) + of.waited_s / of.alone
    room = [shares >= 0, shares <= 1, of.num_gpu @ shares <= num_gpu]
    problem = cp.Problem(cp.Minimize(cp.max(terms)), room)
    return float(problem.solve(solver=cp.CLARABEL))


@pytest.mark.parametrize("seed", range(8))
def test_the_largest_ratio_is_as_small_as_the_solver_finds(seed: int) -> None:
    rng = np.random.default_rng(seed)
    size = int(rng.integers(2, 30))
    waited_s, work_s, alone = (rng.uniform(least, most, size) for least, most in ((0, 1000), (1, 500), (100, 2000)))
    of = ratios(waited_s, work_s, alone, rng.choice([1, 2, 4], size))
    num_gpu = int(rng.integers(4, 17))
    shares = of.shares(num_gpu)
    assert np.all((shares > 0) & (shares <= 1))
    assert float(shares @ of.num_gpu) <= num_gpu * (1 + 1e-9)
    assert largest(of, shares) == pytest.approx(solved(of, num_gpu), rel=1e-5)


def test_equal_jobs_get_equal_shares() -> None:
    np.testing.assert_allclose(ratios([0, 0], [10, 10], [20, 20], [1, 1]).shares(1), 0.5)


def test_who_is_treated_worst_gets_all_it_can_use_and_the_others_share_the_rest_equally() -> None:
    """The first job waited 100 s for 1 s of work: even alone its ratio is 101. The others need next to nothing to
    stay below that, and share the other GPU."""
    shares = ratios([100, 0, 0], [1, 10, 10], [1, 20, 20], [1, 1, 1]).shares(2)
    np.testing.assert_allclose(shares, [1.0, 0.5, 0.5])


def test_all_run_when_there_is_room() -> None:
    np.testing.assert_array_equal(ratios([5, 0], [1, 10], [1, 20], [2, 1]).shares(3), [1.0, 1.0])


def test_a_job_without_work_has_no_ratio_and_all_the_time() -> None:
    shares = ratios([0, 0], [0, 10], [0, 10], [1, 1]).shares(1)
    assert shares[0] == 1.0
    assert np.isfinite(shares).all()
