"""The benchmark of the simulator, at a small size: what it measures is there, and its targets are checked."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def benchmark(*words: str, code: int = 0) -> list[str]:
    environment = {name: value for name, value in os.environ.items() if name != "CLUSTER_EXP_DATA"}
    command = [sys.executable, str(ROOT / "benchmarks" / "simulator.py"), *words]
    done = subprocess.run(
        command, env=environment | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == code, done.stderr
    return (done.stdout + done.stderr * (code != 0)).splitlines()


def test_pairing_rounds_are_measured_in_loops():
    lines = benchmark("--rows", "pairing")
    assert lines[0].startswith("compiled: ")
    alike, different, gap = lines[3:]
    assert "0.2 loops" in alike
    assert "2 loops" in different
    assert float(gap.split("%")[1].split()[-1]) <= 1.0


@pytest.mark.parametrize("policy", ["srsf", pytest.param("muri-s", marks=pytest.mark.soak)])
def test_large_runs_are_measured_at_several_sizes(policy):
    lines = benchmark("--rows", f"million-{policy}", "--jobs", "200,800")
    assert [line.split("  ")[0] for line in lines[3:]][:1] == [f"200 jobs {policy}"]
    assert any(line.startswith(f"800 jobs {policy}") for line in lines)
    assert any("rounds skipped" in line for line in lines)
    assert "time per job, 800 against 200" in lines[-1]


def test_rows_without_their_data_are_left_out_by_name():
    assert "left out: trace3 (CLUSTER_EXP_DATA names no folder)" in benchmark("--rows", "trace3")


def test_unknown_rows_are_refused():
    assert "'tracr3' given; allowed: trace3" in benchmark("--rows", "tracr3", code=2)[-1]
