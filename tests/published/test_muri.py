"""SRTF, SRSF and Muri against the tables published with Muri (SIGCOMM'22), under its simulator's accounting.

Muri is held to bounds from above: ties between equally good matchings move its average JCT by 1 to 3 %, and an exact
matching may do better than the published one. Slow are Muri's runs on trace4 and trace4_pr. Muri-L on job_type_1
(342,922 s published) is not held: there no two jobs gain by sharing, every group is unpacked, and what is left is
least attained service first, which takes about 498,000 s.
"""

import pytest

FIGURES_9_10 = "Muri simulator/draw_fig9-10.py"
FIGURE_11, FIGURE_12, FIGURE_13 = (f"Muri simulator/draw_fig11-13.py Fig{n}" for n in (11, 12, 13))
ABOVE = {"avg_jct": 1.03, "makespan": 1.025, "p99_jct": 1.12}
SMALL, LARGE = ("trace3", "trace3_pr"), ("trace4", "trace4_pr")

pytestmark = pytest.mark.published


def on(traces: tuple[str, ...], *rows: tuple) -> list:
    """Rows (policy, source, published name) for each trace; those of large traces are slow."""
    return [
        pytest.param(trace, *row, marks=pytest.mark.slow if trace in LARGE else ())
        for trace in traces
        for row in rows
    ]


@pytest.mark.parametrize(("policy", "name"), [("srtf", "SRTF"), ("srsf", "SRSF")])
@pytest.mark.parametrize("trace", SMALL + LARGE)
def test_shortest_first_to_six_digits(trace, policy, name, simulated, published) -> None:
    ours, theirs = simulated(trace, policy), published(FIGURES_9_10, trace, name)
    assert {metric: f"{value:.6g}" for metric, value in ours.items()} == {
        metric: f"{value:.6g}" for metric, value in theirs.items()
    }


@pytest.mark.parametrize(
    ("trace", "policy", "source", "name"),
    [
        *on(
            SMALL + LARGE,
            ("muri-s:unpack=off", FIGURES_9_10, "Muri_S"),  # as it was published
            ("muri-l", FIGURES_9_10, "Muri_L"),
        ),
        *on(
            ("trace3", "trace4"),
            ("muri-l:order=worst", FIGURE_11, "Muri_L_w_worstordering"),
            ("muri-l:grouping=chunks", FIGURE_11, "Muri_L_wo_blossom"),
        ),
        *on(
            ("trace3_pr", "trace4_pr"),
            ("muri-l:group=2", FIGURE_12, "Muri_L_2"),
            ("muri-l:group=3", FIGURE_12, "Muri_L_3"),
        ),
        *on(
            ("job_type_1", "job_type_3"),
            ("muri-s", FIGURE_13, "Muri_S"),  # with unpacking, unlike figure 9
        ),
        *on(("job_type_3",), ("muri-l", FIGURE_13, "Muri_L")),
    ],
)
def test_muri_is_not_above_what_was_published(trace, policy, source, name, simulated, published) -> None:
    ours = simulated(trace, policy)
    for metric, value in published(source, trace, name).items():
        assert ours[metric] <= value * ABOVE[metric], metric


@pytest.mark.parametrize(
    ("trace", "policy", "numbers"),
    [
        ("trace3", "muri-s", (83242.46, 8174135.28, 947436.61)),
        ("trace3_pr", "muri-s", (540358.18, 4495393.52, 3948553.69)),
        ("trace3", "muri-l", (88686.97, 8174135.28, 926787.27)),
        ("trace3_pr", "muri-l", (913979.66, 4351395.26, 4032449.24)),
    ],
)
def test_muri_with_unpacking(trace, policy, numbers, simulated) -> None:
    """Against what the authors' code gives with unpacking, which the tables were in part made without."""
    ours = simulated(trace, policy)
    for metric, value in zip(ABOVE, numbers, strict=True):
        assert ours[metric] <= value * ABOVE[metric], metric
