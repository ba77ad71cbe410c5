"""Learning on measured pairs (Gavel, OSDI'20), as benchmarks/interference.py does it, with fewer splits."""

import importlib.util
import sys
from pathlib import Path

import pytest

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "interference.py"

pytestmark = pytest.mark.published


def test_pairs_that_were_never_seen_are_predicted_20_percent_better_than_by_medians(data):
    spec = importlib.util.spec_from_file_location("benchmark_interference", BENCHMARK)
    benchmark = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(benchmark)
    assert 1850 < len(benchmark.measured_pairs(data)) / 2 < 1950
    _, mean = benchmark.pairs_table(data, 10)
    assert mean <= 0.8
