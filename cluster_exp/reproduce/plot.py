"""The comparison as a picture; needs matplotlib (the optional extra `plots`)."""

import importlib.util
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cluster_exp.reproduce.comparison import Compared

_BAR = 0.4
_PUBLISHED, _OURS = "#b8c4d0", "#20639b"


def can_plot() -> bool:
    """Whether matplotlib is installed."""
    return importlib.util.find_spec("matplotlib") is not None


def write_plot(path: Path, title: str, rows: Sequence[Compared]) -> None:
    """Writes a PNG: a panel for each metric, in it a pair of bars, published and ours, for each trace and policy.

    Raises:
        ImportError: matplotlib is not installed.
        OSError: the file cannot be written.
    """
    from matplotlib.figure import Figure as Canvas

    metrics = list(dict.fromkeys(row.metric for row in rows))
    pairs = len(rows) / len(metrics)
    canvas = Canvas(figsize=(2 + 0.45 * pairs, 1 + 2.6 * len(metrics)), layout="constrained")
    canvas.suptitle(title)
    panels = canvas.subplots(len(metrics), 1, squeeze=False)[:, 0]
    for panel, metric in zip(panels, metrics, strict=True):
        _draw(panel, metric, [row for row in rows if row.metric == metric])
    panels[0].legend(loc="upper left", fontsize="small", ncols=2)
    canvas.savefig(path, dpi=150)


def _draw(panel: Any, metric: str, rows: Sequence[Compared]) -> None:
    places = [i + sum(rows[j].trace != rows[j - 1].trace for j in range(1, i + 1)) for i in range(len(rows))]
    for shift, label, colour, values in (
        (-_BAR / 2, "published", _PUBLISHED, [row.published for row in rows]),
        (_BAR / 2, "ours", _OURS, [row.ours for row in rows]),
    ):
        heights = [0.0 if math.isnan(value) else value / 3600 for value in values]
        panel.bar([place + shift for place in places], heights, _BAR, label=label, color=colour)
    panel.set_ylabel(f"{metric} (hours)")
    panel.set_xticks(places, [f"{row.policy}\n{row.trace}" for row in rows], rotation=60, fontsize=6, ha="right")
    panel.margins(x=0.01)
    panel.spines[["top", "right"]].set_visible(False)
