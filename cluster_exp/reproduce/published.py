"""Published results: one CSV of numbers that others printed."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from cluster_exp.inputs.table import Table
from cluster_exp.inputs.text import Span

PUBLISHED_FILE = Path("published", "published_results.csv")
_COLUMNS = ("source", "trace", "cluster", "policy", "metric", "value", "unit", "note")
_KEY = ("source", "trace", "policy", "metric")
_VALUE = Span(0, 1e15)

Key = tuple[str, str, str, str]  # source, trace, policy, metric


@dataclass(frozen=True, slots=True)
class Published:
    """Published numbers by source, trace, policy and metric; seconds in all tables that are reproduced."""

    values: Mapping[Key, float]

    def value(self, source: str, trace: str, policy: str, metric: str) -> float:
        """One number; NaN when it is not among them."""
        return self.values.get((source, trace, policy, metric), math.nan)


def read_published(path: Path) -> Published:
    """The numbers of a CSV file with the columns source, trace, policy, metric, value; others are passed over.

    Raises:
        InputError: the file is not there, a column is missing, or a value is no number.
    """
    table = Table(path)
    table.check_columns((*_KEY, "value"), _COLUMNS)
    values: dict[Key, float] = {}
    for row in table:
        source, trace, policy, metric = (row.text(column) for column in _KEY)
        if row.text("value"):
            values.setdefault((source, trace, policy, metric), row.number("value", _VALUE))
    return Published(values)
