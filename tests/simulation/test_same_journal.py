"""The same simulation gives the same bytes, whatever the process and the order of its sets."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TRACE = ROOT / "trace_data" / "small.csv"
CLUSTER = ROOT / "cluster_spec" / "n2g4.csv"


def simulate(out: Path, policy: str, hash_seed: str) -> dict[str, bytes]:
    """What a process of its own leaves."""
    argv = [sys.executable, "-m", "cluster_exp", "run", "--policy", policy, "--trace", TRACE, "--cluster", CLUSTER]
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)}
    subprocess.run(
        [*argv, "--out", out], env=environment, cwd=out.parent, capture_output=True, timeout=60, check=True
    )
    return {name: (out / name).read_bytes() for name in ("journal.jsonl", "job.csv")}


@pytest.mark.parametrize("policy", ["srsf", "muri-s"])
def test_two_processes_write_the_same(tmp_path, policy):
    first = simulate(tmp_path / "first", policy, "1")
    second = simulate(tmp_path / "second", policy, "2")
    assert first["job.csv"].count(b"\n") == 13
    assert first["journal.jsonl"].count(b"\n") > 50
    assert first == second
