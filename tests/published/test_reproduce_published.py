"""The declarative tables against the published file, and HeliosArtifact's virtual clusters against our simulation."""

import math
from pathlib import Path

import pytest

from cluster_exp.reproduce.comparison import compare
from cluster_exp.reproduce.figures import FIGURES, Figure, PolicyUse, TraceUse
from cluster_exp.reproduce.published import PUBLISHED_FILE, read_published
from cluster_exp.reproduce.runs import Outcome, Run, jobs_of, simulate_run, trace_path

pytestmark = pytest.mark.published


@pytest.mark.parametrize("figure", FIGURES.values(), ids=lambda figure: figure.name)
def test_every_number_of_a_figure_is_published(figure: Figure, data: Path) -> None:
    published = read_published(data / PUBLISHED_FILE)
    present = [use for use in figure.uses() if trace_path(data, use[0]).exists()]
    assert present
    missing = [
        (trace.name, policy.spec, metric)
        for trace, policy in present
        for metric in figure.metrics
        if math.isnan(published.value(figure.source, trace.published, policy.published, metric))
    ]
    assert not missing


@pytest.mark.parametrize(("index", "jobs"), [(0, 747), (1, 2199)], ids=["2869ce", "0e4a51"])
def test_the_window_leaves_as_many_jobs_as_published(index: int, jobs: int, data: Path) -> None:
    assert len(jobs_of(data, FIGURES["helios-vc"].traces[index])) == jobs


@pytest.mark.parametrize("policy", FIGURES["helios-vc"].policies, ids=lambda policy: policy.spec)
@pytest.mark.parametrize("trace", FIGURES["helios-vc"].traces, ids=lambda trace: trace.name)
def test_helios_virtual_clusters(trace: TraceUse, policy: PolicyUse, data: Path) -> None:
    """Average JCT and queueing within 0.1 %."""
    run = Run(FIGURES["helios-vc"], trace, policy, data)
    outcome = Outcome(simulate_run(run, lambda _: None), 0.0)
    rows = compare([run], [outcome], read_published(data / PUBLISHED_FILE))
    assert {row.metric for row in rows} == {"avg_jct", "avg_queue"}
    for row in rows:
        assert row.ratio == pytest.approx(1.0, abs=1e-3), row
