"""The demo's gate, on a run that takes seconds: green with the right cycle formula, red with a wrong one."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from cluster_exp.cli import main
from cluster_exp.domain.profile import StageProfile
from cluster_exp.interleave import speed
from cluster_exp.interleave.cycle import slot_lengths

pytestmark = [pytest.mark.live, pytest.mark.slow]

# Four jobs of about 1,900 s alone on one GPU: muri-s has to interleave them.
TRACE = """job_id,num_gpu,submit_time,iterations,model_name,batch_size,duration
a,1,0,4000,gpt2,4,1704000
b,1,0,3900,a2c,64,2016000
c,1,0,10000,bert,4,1780000
d,1,0,2400,shufflenet_v2_x1_0,128,1915000
"""
CLUSTER = "num_switch,num_node_p_switch,num_gpu_p_node,num_cpu_p_node,mem_p_node\n1,1,1,8,64\n"


def wrong_cycle_s(profiles: Sequence[StageProfile], offsets: Sequence[int]) -> float:
    """As if the slots of a cycle ran side by side."""
    return max(slot_lengths(profiles, offsets))


@pytest.fixture
def demo(tmp_path: Path) -> list[str]:
    (tmp_path / "trace.csv").write_text(TRACE)
    (tmp_path / "cluster.csv").write_text(CLUSTER)
    files = ["--trace", str(tmp_path / "trace.csv"), "--cluster", str(tmp_path / "cluster.csv")]
    return ["demo", *files, "--policy", "muri-s", "--time-scale", "800", "--out", str(tmp_path / "out")]


def test_the_right_formula_passes(demo: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(demo) == 0, capsys.readouterr()
    assert "(allowed: 10%): ok" in capsys.readouterr().out


def test_a_wrong_formula_turns_the_gate_red(
    demo: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(speed, "lockstep_cycle_s", wrong_cycle_s)
    assert main(demo) == 1, capsys.readouterr()
    assert "(allowed: 10%): FAILED" in capsys.readouterr().out
