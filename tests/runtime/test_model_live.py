"""What turns give against what is predicted: ten combinations of benchmarks/interleave.py."""

import importlib.util
import sys
from pathlib import Path

import pytest

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "interleave.py"
ATTEMPTS = 3  # rates are those of an idle machine

pytestmark = pytest.mark.live


@pytest.fixture(scope="module")
def benchmark():
    spec = importlib.util.spec_from_file_location("benchmark_interleave", BENCHMARK)
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.WINDOW_S = 2.0
    return module


# gpt2/8, a2c/1 and bert/32 want the whole GPU together: who is next there hangs on fractions of a millisecond, and
# in some runs gpt2 gets 0.82 of its rate (docs/benchmarks.md).
SATURATED = pytest.mark.xfail(strict=False, reason="the GPU is wanted without a gap: a late turn is a lost one")


@pytest.mark.parametrize("number", [*range(5), pytest.param(5, marks=SATURATED), *range(6, 10)])
def test_rates_and_lockstep_cycles_are_within_5_percent_of_the_prediction(benchmark, tmp_path, number):
    *_, (models, profiles) = benchmark.combinations(number + 1, 2022, False)
    bench, seen = benchmark.Bench(tmp_path), []
    try:
        for _ in range(1 if number == 5 else ATTEMPTS):
            found = benchmark.compared(bench, profiles)
            seen.append({name: share for name, (_, share) in found.items()})
            if all(abs(share - 1) <= benchmark.WITHIN for share in seen[-1].values()):
                return
    finally:
        bench.close()
    pytest.fail(f"{models}: measured over predicted {seen}")
