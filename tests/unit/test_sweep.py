"""`run.py sweep`: what it does, writes, refuses and does again."""

import csv
import json
from pathlib import Path

import pytest

from cluster_exp.cli import main
from cluster_exp.sweep import sweep as sweeping
from cluster_exp.sweep.table import COLUMNS, MEASURES, SweepTable

ROOT = Path(__file__).parents[2]
CLUSTER = ROOT / "cluster_spec" / "n2g4.csv"
TRACE = ROOT / "trace_data" / "small.csv"
MEASURED = ("wall_s", "peak_memory_mib")  # differ from one time to the next
GRID = f"""
policies: [fifo, srsf]
traces:
  - {TRACE}
  - {{name: made, generate: {{jobs: 15, load: 2, max_duration_s: 900}}}}
clusters: {CLUSTER}
seeds: [1, 2]
"""


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    path = tmp_path / "grid.yaml"
    path.write_text(GRID)
    return path


def sweep(spec: Path, out: Path, *more: object) -> int:
    return main(["sweep", str(spec), "--out", str(out), *map(str, more)])


def rows(out: Path) -> list[dict[str, str]]:
    with open(out / "sweep.csv", newline="") as file:
        return list(csv.DictReader(file))


def same(out: Path) -> list[dict[str, str]]:
    """The rows, but for what differs from one time to the next."""
    return [{key: value for key, value in row.items() if key not in MEASURED} for row in rows(out)]


def refused(capsys: pytest.CaptureFixture[str], code: int) -> str:
    """The line of an error after a command that ended with `code`."""
    assert code == 2
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "error:" in line]
    return line


def test_every_combination_has_a_row_and_a_run(spec, tmp_path, capsys):
    out = tmp_path / "new" / "out"
    assert sweep(spec, out) == 0
    table = rows(out)
    assert tuple(table[0]) == COLUMNS
    assert [(row["trace"], row["seed"], row["policy"]) for row in table] == [
        (trace, seed, policy) for trace in ("small", "made") for seed in "12" for policy in ("fifo", "srsf")
    ]
    assert {row["status"] for row in table} == {"finished"}
    assert [row["jobs"] for row in table] == ["12"] * 4 + ["15"] * 4
    for row in table:
        assert all(float(row[name]) > 0 for name in MEASURES)
        assert sorted(path.name for path in (out / row["run"]).iterdir()) == ["job.csv", "run.json"]
    assert table[0]["average_jct_s"] == table[2]["average_jct_s"]  # a trace that is read has no seed
    assert table[4]["average_jct_s"] != table[6]["average_jct_s"]
    shown = capsys.readouterr().out.splitlines()
    assert shown[0].split()[:4] == ["policy", "trace", "seed", "jobs"]
    assert [line.split()[:4] for line in shown[2:4]] == [["fifo", "small", "1", "12"], ["srsf", "small", "1", "12"]]


def test_a_run_comes_out_as_run_does_it(spec, tmp_path, capsys):
    rules = "interval: 60\nstart_cost: 5\ncost_model: muri22\njournal: full\n"
    spec.write_text(GRID.replace(", max_duration_s: 900", "") + rules)
    assert sweep(spec, tmp_path / "out") == 0
    made, cluster = str(tmp_path / "made.csv"), ("--cluster", str(CLUSTER))
    assert main(["generate", "--jobs", "15", "--seed", "2", *cluster, "--load", "2", "--out", made]) == 0
    words = ["--policy", "srsf", "--trace", made, *cluster, "--out", str(tmp_path / "one")]
    assert main([*words, "--interval", "60", "--start-cost", "5", "--cost-model", "muri22"]) == 0
    run = tmp_path / "out" / "srsf_made_seed=2"
    assert (run / "job.csv").read_bytes() == (tmp_path / "one" / "job.csv").read_bytes()
    assert main(["replay", str(run)]) == 0
    assert "all actions equal" in capsys.readouterr().out


def test_two_workers_give_the_table_of_one(spec, tmp_path):
    assert sweep(spec, tmp_path / "one", "--workers", 1) == 0
    assert sweep(spec, tmp_path / "two", "--workers", 2) == 0
    assert same(tmp_path / "one") == same(tmp_path / "two")


def test_runs_of_a_sweep_are_runs_to_calc(spec, tmp_path, capsys):
    assert sweep(spec, tmp_path / "out") == 0
    capsys.readouterr()
    assert main(["calc", "--json", str(tmp_path / "out")]) == 0
    found = {Path(each["run"]).name: each for each in json.loads(capsys.readouterr().out)}
    for row in rows(tmp_path / "out"):
        assert found[row["run"]]["average_jct_s"] == float(row["average_jct_s"])


def test_going_on_does_what_is_not_done_and_only_that(spec, tmp_path, capsys):
    out = tmp_path / "out"
    assert sweep(spec, out, "--checkpoint") == 0  # there is nothing yet: it starts
    before = same(out)
    names = [row["run"] for row in rows(out)]
    for name, status in ((names[1], "running"), (names[2], "failed"), (names[3], "interrupted")):
        path = out / name / "run.json"
        path.write_text(path.read_text().replace('"finished"', f'"{status}"'))
    (out / names[4] / "run.json").write_text("{ cut")
    (out / names[5] / "run.json").unlink()
    (out / names[6] / "job.csv").unlink()
    kept = {name: (out / name / "run.json").stat().st_ino for name in (names[0], names[7])}
    (out / "sweep.csv").unlink()
    capsys.readouterr()
    assert sweep(spec, out, "--checkpoint") == 0
    assert same(out) == before
    assert {name: (out / name / "run.json").stat().st_ino for name in kept} == kept
    assert "8 done" in capsys.readouterr().err


def test_a_directory_with_a_sweep_needs_the_word(spec, tmp_path, capsys):
    assert sweep(spec, tmp_path / "out") == 0
    before = (tmp_path / "out" / "sweep.csv").stat().st_mtime_ns
    capsys.readouterr()
    line = refused(capsys, sweep(spec, tmp_path / "out"))
    assert "holds this sweep already; add --checkpoint to go on with it, or name a new directory" in line
    assert (tmp_path / "out" / "sweep.csv").stat().st_mtime_ns == before


@pytest.mark.parametrize("word", [[], ["--checkpoint"]])
def test_another_sweep_is_named_by_what_differs(spec, tmp_path, capsys, word):
    assert sweep(spec, tmp_path / "out") == 0
    capsys.readouterr()
    for old, new, difference in (
        ("[fifo, srsf]", "[fifo]", "policies was 'fifo, srsf', is 'fifo'"),
        ("seeds: [1, 2]", "seeds: [1, 3]", "seeds was '1, 2', is '1, 3'"),
        ("jobs: 15", "jobs: 16", "traces was"),
        ("seeds:", "journal: full\nseeds:", "journal was 'none', is 'full'"),
    ):
        spec.write_text(GRID.replace(old, new))
        line = refused(capsys, sweep(spec, tmp_path / "out", *word))
        assert f"holds another sweep: {difference}" in line
        assert line.endswith("name a new directory")
    spec.write_text(GRID.replace("[fifo, srsf]", "[ fifo,\n srsf ] # the same"))
    assert sweep(spec, tmp_path / "out", "--checkpoint") == 0


def test_a_file_that_changed_is_another_sweep(spec, tmp_path, capsys):
    trace = tmp_path / "small.csv"
    trace.write_bytes(TRACE.read_bytes())
    spec.write_text(GRID.replace(str(TRACE), "small.csv"))
    assert sweep(spec, tmp_path / "out") == 0
    trace.write_text(trace.read_text() + "\n")
    capsys.readouterr()
    line = refused(capsys, sweep(spec, tmp_path / "out", "--checkpoint"))
    assert "the file 'small.csv' has changed since" in line


@pytest.mark.parametrize("text", ["", "[]", '{"format": 1}', '{"spec": 1, "files": 2}'])
def test_a_damaged_note_is_refused(spec, tmp_path, capsys, text):
    (tmp_path / "sweep.json").write_text(text)
    assert "sweep.json: is damaged" in refused(capsys, sweep(spec, tmp_path, "--checkpoint"))


def test_other_directories_are_refused(spec, tmp_path, capsys):
    run = ["--policy", "fifo", "--trace", str(TRACE), "--cluster", str(CLUSTER), "--out", str(tmp_path / "run")]
    assert main(run) == 0
    for out, reason in ((tmp_path / "run", "holds another run"), (tmp_path / "grid.yaml", "is a file")):
        assert reason in refused(capsys, sweep(spec, out, "--checkpoint"))
    (tmp_path / "table").mkdir()
    (tmp_path / "table" / "sweep.csv").write_text("mine")
    assert "holds sweep.csv but no sweep.json" in refused(capsys, sweep(spec, tmp_path / "table"))
    assert "--out: is missing" in refused(capsys, main(["sweep", str(spec)]))
    assert "--workers: 0" in refused(capsys, sweep(spec, tmp_path / "out", "--workers", 0))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["grid.yaml", "run", "table"]


def test_nothing_that_is_no_runs_is_removed(spec, tmp_path, capsys):
    out = tmp_path / "out"
    assert sweep(spec, out) == 0
    run = out / rows(out)[0]["run"]
    (run / "run.json").unlink()
    (run / "notes.txt").write_text("mine")
    capsys.readouterr()
    assert "holds 'notes.txt', which no run writes; move it away" in refused(capsys, sweep(spec, out, "--checkpoint"))
    assert sorted(path.name for path in run.iterdir()) == ["job.csv", "notes.txt"]


def test_mistakes_in_the_file_start_nothing(spec, tmp_path, capsys):
    spec.write_text(GRID.replace("srsf", "srfs"))
    assert f"{spec}:2:18: unknown policy 'srfs'" in refused(capsys, sweep(spec, tmp_path / "out"))
    assert not (tmp_path / "out").exists()


def test_a_dry_run_prints_the_runs_and_writes_nothing(spec, tmp_path, capsys):
    assert sweep(spec, tmp_path / "out", "--dry-run") == 0
    shown = capsys.readouterr().out.splitlines()
    assert len(shown) == 2 + 8 + 1
    assert shown[2].split() == [
        "fifo",
        "small",
        "n2g4",
        "1",
        "0",
        "physical",
        *("default", "none"),
        *["default"] * 2,
        "12",
    ]
    assert shown[-1] == "8 runs, 108 jobs"
    assert not (tmp_path / "out").exists()


def test_a_run_that_fails_does_not_stop_the_others(spec, tmp_path, capsys, monkeypatch):
    """A trace that is no longer there when its run starts: only that run knows."""
    trace = tmp_path / "small.csv"
    trace.write_bytes(TRACE.read_bytes())
    spec.write_text(GRID.replace(str(TRACE), "small.csv"))

    def resume(grid, directory):
        trace.unlink(missing_ok=True)
        return SweepTable(grid)

    with monkeypatch.context() as context:
        context.setattr(sweeping, "resume", resume)
        assert sweep(spec, tmp_path / "out") == 1
    said = capsys.readouterr()
    assert [row["status"] for row in rows(tmp_path / "out")] == ["failed"] * 4 + ["finished"] * 4
    assert rows(tmp_path / "out")[0]["error"] == f"InputError: {trace}: no such file"
    assert len([line for line in said.err.splitlines() if line.startswith("error: ")]) == 4
    assert f"error: fifo_small_seed=1: InputError: {trace}: no such file" in said.err
    assert "Partial result: 4 of 8 runs finished" in said.out
    assert said.err.splitlines()[-1] == f"to go on: python run.py sweep {spec} --out {tmp_path / 'out'} --checkpoint"
    trace.write_bytes(TRACE.read_bytes())
    assert sweep(spec, tmp_path / "out", "--checkpoint") == 0
    assert {row["status"] for row in rows(tmp_path / "out")} == {"finished"}
    assert {row["error"] for row in rows(tmp_path / "out")} == {""}
