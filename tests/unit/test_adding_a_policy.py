"""The policy in docs/adding-a-policy.md, run as it stands there."""

import re
from pathlib import Path

import pytest

from cluster_exp.cli import main
from cluster_exp.domain.policy import Policy
from cluster_exp.policies import registry

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "adding-a-policy.md"


def blocks() -> list[str]:
    return re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)


def test_the_policy_of_the_page_runs_as_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, row = blocks()
    assert len([line for line in code.splitlines() if line.strip()]) <= 30
    widest = type("widest", (), {})
    names: dict[str, object] = {"__name__": "widest"}
    exec(compile(code, str(PAGE), "exec"), names)
    widest.WidestFirst = names["WidestFirst"]  # type: ignore[attr-defined]
    entry = eval(row, {"PolicyRow": registry.PolicyRow, "widest": widest})
    monkeypatch.setitem(registry.POLICIES, entry.name, entry)
    assert isinstance(registry.make_policy("widest"), Policy)
    files = ["--trace", str(ROOT / "trace_data/small.csv"), "--cluster", str(ROOT / "cluster_spec/n2g4.csv")]
    assert main(["--policy", "widest", *files, "--out", str(tmp_path / "out")]) == 0
    assert "widest" in capsys.readouterr().out
    assert main(["replay", str(tmp_path / "out")]) == 0
