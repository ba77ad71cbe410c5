import csv
from pathlib import Path

import numpy as np
import pytest

from cluster_exp.domain.errors import InputError
from cluster_exp.policies.gittins import gittins_index
from cluster_exp.policies.registry import make_policy
from cluster_exp.results.history import read_history


def brute_force(attained: float, services: list[float]) -> float:
    longer = [service for service in services if service > attained]
    best = 0.0
    for quantum in (service - attained for service in longer):
        finished = sum(service - attained <= quantum for service in longer)
        spent = sum(min(service - attained, quantum) for service in longer)
        best = max(best, finished / spent)
    return best


def test_the_index_is_the_best_chance_for_the_service_that_it_takes() -> None:
    services = [10.0, 10.0, 100.0]
    # From 0: d = 10 finishes two of three for 10 + 10 + 10; d = 100 all three for 10 + 10 + 100.
    # From 10: only the long one is left, 90 away. From 100: nothing is known.
    assert gittins_index(np.array([0.0, 10.0, 100.0]), services).tolist() == pytest.approx([2 / 30, 1 / 90, 0.0])


@pytest.mark.parametrize("seed", range(20))
def test_the_index_equals_its_definition(seed: int) -> None:
    rng = np.random.default_rng(seed)
    services = np.round(rng.lognormal(3, 2, 30)).tolist()
    attained = np.round(rng.lognormal(3, 2, 20))
    expected = [brute_force(a, services) for a in attained.tolist()]
    assert gittins_index(attained, services).tolist() == pytest.approx(expected)


def test_nothing_known_is_no_index() -> None:
    assert gittins_index(np.array([0.0, 5.0]), []).tolist() == [0.0, 0.0]


def history(path: Path, statuses: list[str]) -> Path:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("job_id", "num_gpu", "submit_time", "end_time", "JCT", "pending_time", "status"))
        for i, status in enumerate(statuses):
            writer.writerow((i, 2, 0, 30, 30, 10, status))
    return path


def test_a_history_is_read_for_the_policy_and_not_by_it(tmp_path: Path) -> None:
    path = history(tmp_path / "job.csv", ["FINISHED", "FAILED"])
    policy = make_policy(f"gittins:history={path}", read_history)
    assert [job.service_s * job.num_gpu for job in policy.history] == [40.0]  # type: ignore[attr-defined]
    with pytest.raises(InputError, match="none can be read here"):
        make_policy(f"gittins:history={path}")
    with pytest.raises(InputError, match="no finished job"):
        make_policy(f"gittins:history={history(tmp_path / 'none.csv', ['FAILED'])}", read_history)
