"""Tiresias, AntMan and Themis against the tables published with Muri (SIGCOMM'22), under its simulator's accounting.

AntMan equals the published numbers where all jobs are there from the start. Where jobs arrive, which of several nodes
with equal room a guaranteed job takes is not known from the published rules, and its average JCT moves by 1 to 2 %
with it. Themis depends on how the published solver erred between jobs with almost equal shares; see docs/policies.md.
"""

import pytest

FIGURES_9_10 = "Muri simulator/draw_fig9-10.py"
SMALL = ("trace3", "trace3_pr")
LARGE = tuple(pytest.param(trace, marks=pytest.mark.slow) for trace in ("trace4", "trace4_pr"))

pytestmark = pytest.mark.published


@pytest.mark.parametrize("trace", SMALL + LARGE)
def test_tiresias_to_six_digits(trace, simulated, published) -> None:
    ours, theirs = simulated(trace, "tiresias"), published(FIGURES_9_10, trace, "Tiresias_L")
    assert {metric: f"{value:.6g}" for metric, value in ours.items()} == {
        metric: f"{value:.6g}" for metric, value in theirs.items()
    }


@pytest.mark.parametrize("trace", SMALL + LARGE)
def test_antman_within_a_percent(trace, simulated, published) -> None:
    ours = simulated(trace, "antman")
    within = {"avg_jct": 0.02 if trace == "trace4" else 0.01, "makespan": 0.01, "p99_jct": 0.01}
    for metric, value in published(FIGURES_9_10, trace, "antman").items():
        assert ours[metric] == pytest.approx(value, rel=within[metric]), metric


@pytest.mark.parametrize("trace", SMALL + LARGE)
def test_themis_within_ten_percent(trace, simulated, published) -> None:
    ours = simulated(trace, "themis:units=iterations")
    theirs = published(FIGURES_9_10, trace, "themis")
    assert ours["avg_jct"] == pytest.approx(theirs["avg_jct"], rel=0.10)
    assert ours["makespan"] == pytest.approx(theirs["makespan"], rel=0.025)


@pytest.mark.parametrize("trace", ["trace3", pytest.param("trace3_pr", marks=pytest.mark.slow)])
def test_the_order_of_the_policies_by_average_jct_is_the_published_one(trace, simulated, published) -> None:
    """SRSF and Tiresias are held to six digits, so that their published numbers stand for ours."""
    theirs = {
        name: published(FIGURES_9_10, trace, name)["avg_jct"] for name in ("SRSF", "Tiresias_L", "antman", "themis")
    }
    ours = theirs | {
        "antman": simulated(trace, "antman")["avg_jct"],
        "themis": simulated(trace, "themis:units=iterations")["avg_jct"],
    }
    assert sorted(ours, key=ours.__getitem__) == sorted(theirs, key=theirs.__getitem__)
