"""The same simulation gives the same bytes, whatever the process and the order of its sets."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from cluster_exp.core.pool import compiled

ROOT = Path(__file__).parents[2]
TRACE = ROOT / "trace_data" / "small.csv"
CLUSTER = ROOT / "cluster_spec" / "n2g4.csv"


def simulate(out: Path, policy: str, hash_seed: str, root: Path = ROOT) -> dict[str, bytes]:
    """What a process of its own leaves, with the package below `root`."""
    argv = [sys.executable, "-m", "cluster_exp", "run", "--policy", policy, "--trace", TRACE, "--cluster", CLUSTER]
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(root)}
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


@pytest.mark.parametrize("policy", ["srsf", "muri-s", "antman"])
def test_compiled_or_not_makes_no_difference(tmp_path, policy):
    shutil.copytree(ROOT / "cluster_exp", tmp_path / "cluster_exp", ignore=shutil.ignore_patterns("*.so"))
    plain = simulate(tmp_path / "plain", policy, "1", tmp_path)
    assert plain == simulate(tmp_path / "compiled", policy, "1")


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler here")
def test_what_can_be_compiled_is():
    assert compiled()
