"""The command line, through main(argv): what it prints, writes and returns."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from cluster_exp.cli import execute, main
from cluster_exp.cli.parser import VERBS
from cluster_exp.results.journal import read_journal
from cluster_exp.runtime.local import LiveError, LiveResult

ROOT = Path(__file__).parents[2]
TRACE = str(ROOT / "trace_data" / "small.csv")
CLUSTER = str(ROOT / "cluster_spec" / "n2g4.csv")
HEAD = "job_id,num_gpu,submit_time,iterations,model_name,batch_size,duration\n"


def run(*words: object) -> int:
    return main([str(word) for word in words])


def simulate(out: Path, *more: object, policy: str = "srsf", trace: object = TRACE) -> int:
    return run("--policy", policy, "--trace", trace, "--cluster", CLUSTER, "--mode", "sim", "--out", out, *more)


def test_one_policy_lies_in_the_directory_itself(tmp_path, capsys):
    assert simulate(tmp_path / "out") == 0
    assert {"job.csv", "journal.jsonl", "run.json"} <= {path.name for path in (tmp_path / "out").iterdir()}
    about = json.loads((tmp_path / "out" / "run.json").read_text())
    assert (about["status"], about["policy"], about["num_gpu"]) == ("finished", "srsf", 8)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split()[:3] == ["policy", "mode", "jobs"]
    assert lines[2].split()[:3] == ["srsf", "sim", "12"]


def test_a_profile_says_where_the_time_went(tmp_path, capsys):
    assert simulate(tmp_path / "out", "--profile", policy="srsf,muri-s") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[4].startswith("profile")
    assert [line.split()[0] for line in lines[6:]] == ["srsf", "muri-s"]
    for policy in ("srsf", "muri-s"):
        about = json.loads((tmp_path / "out" / policy / "run.json").read_text())
        parts = about["profile_s"]
        assert set(parts) == {"engine", "rest of the core", "journal and job table", "policy, grouping", "placement"}
        assert all(seconds > 0 for seconds in parts.values())
        assert about["peak_memory_mib"] > 10
        assert about["events"] >= 12 + about["plans"]
    assert simulate(tmp_path / "plain") == 0
    assert "profile_s" not in json.loads((tmp_path / "plain" / "run.json").read_text())
    assert "profile" not in capsys.readouterr().out


def test_progress_says_how_fast_it_goes(tmp_path, capsys):
    assert simulate(tmp_path / "out") == 0
    assert "events/s" in capsys.readouterr().err


def test_several_policies_lie_below_it(tmp_path, capsys):
    assert simulate(tmp_path / "out", policy="fifo,muri-s") == 0
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["fifo", "muri-s"]
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()[2:]] == ["fifo", "muri-s"]


def test_the_verb_run_is_the_same_as_none(tmp_path):
    assert simulate(tmp_path / "a") == 0
    words = ["run", "--policy", "srsf", "--trace", TRACE, "--cluster", CLUSTER, "--out", tmp_path / "b"]
    assert run(*words) == 0
    assert (tmp_path / "a" / "job.csv").read_bytes() == (tmp_path / "b" / "job.csv").read_bytes()


@pytest.mark.parametrize("policy", ["srsf", "muri-s"])
def test_the_same_seed_gives_the_same_journal(tmp_path, policy):
    for name in "ab":
        assert simulate(tmp_path / name, "--seed", 3, policy=policy) == 0
    assert (tmp_path / "a" / "journal.jsonl").read_bytes() == (tmp_path / "b" / "journal.jsonl").read_bytes()


@pytest.mark.parametrize("policy", ["fifo", "sjf", "srtf", "srsf", "muri-s"])
def test_a_journal_replays(tmp_path, capsys, policy):
    assert simulate(tmp_path / "out", "--interval", 60, policy=policy) == 0
    capsys.readouterr()
    assert run("replay", tmp_path / "out") == 0
    assert "all actions equal" in capsys.readouterr().out


def test_a_journal_that_was_changed_does_not(tmp_path, capsys):
    assert simulate(tmp_path / "out") == 0
    path = tmp_path / "out" / "journal.jsonl"
    lines = path.read_text().splitlines()
    at = next(i for i, line in enumerate(lines) if '"action":"Launch"' in line)
    lines[at] = lines[at].replace('"generation":1', '"generation":7')
    path.write_text("\n".join(lines) + "\n")
    capsys.readouterr()
    assert run("replay", tmp_path / "out") == 1
    shown = capsys.readouterr().out
    assert "recorded" in shown
    assert "generation=7" in shown


def test_a_summary_cannot_be_replayed(tmp_path, capsys):
    assert simulate(tmp_path / "out", "--journal", "summary") == 0
    assert all("Progressed" not in repr(e) for e in read_journal(tmp_path / "out" / "journal.jsonl").entries)
    assert run("replay", tmp_path / "out") == 2
    assert "a full one is needed" in capsys.readouterr().err


def test_without_a_journal_the_rest_is_there(tmp_path):
    assert simulate(tmp_path / "out", "--journal", "none") == 0
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["job.csv", "run.json"]


def test_a_start_cost_makes_jobs_end_later(tmp_path):
    def jct_s(name: str, cost: int) -> float:
        assert simulate(tmp_path / name, "--start-cost", cost, policy="fifo") == 0
        rows = (tmp_path / name / "job.csv").read_text().splitlines()
        return float(rows[1].split(",")[rows[0].split(",").index("JCT")])

    assert jct_s("b", 100) - jct_s("a", 0) == pytest.approx(100.0)


def test_a_dry_run_prints_the_first_plan_and_writes_nothing(tmp_path, capsys):
    words = ["--policy", "srsf,muri-s", "--trace", TRACE, "--cluster", CLUSTER, "--dry-run"]
    assert run(*words, "--out", tmp_path / "out") == 0
    shown = capsys.readouterr().out
    assert "srsf: first plan at 0 s" in shown
    assert "n0:0,1" in shown
    assert list(tmp_path.iterdir()) == []


def test_the_policies_are_listed(capsys):
    assert run("--list-policies") == 0
    listed = capsys.readouterr().out
    assert run("policies") == 0
    assert capsys.readouterr().out == listed
    assert [line.split()[0] for line in listed.splitlines()][:4] == ["fifo", "sjf", "srtf", "srsf"]


def test_unknown_columns_pass_with_one_warning(tmp_path, caplog):
    trace = tmp_path / "t.csv"
    trace.write_text(HEAD.strip() + ",mood\na,1,0,100,bert,4,20000,good")
    assert simulate(tmp_path / "out", trace=trace) == 0
    assert [record.getMessage() for record in caplog.records if "mood" in record.getMessage()]


def test_ctrl_c_leaves_a_readable_part(tmp_path, capsys, monkeypatch):
    def stopped(policy, jobs, cluster, rules, start_cost, recorder, show, watch):
        raise KeyboardInterrupt

    monkeypatch.setattr(execute, "simulate", stopped)
    out = tmp_path / "out"
    assert simulate(out, policy="fifo") == 130
    assert f"the partial result lies in {out}" in capsys.readouterr().err
    assert json.loads((out / "run.json").read_text())["status"] == "interrupted"
    assert run("calc", out) == 0
    assert "is interrupted" in capsys.readouterr().out


def live(tmp_path, monkeypatch, outcome) -> int:
    def run_local(config, core, recorder, show):
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    monkeypatch.setattr(execute, "run_local", run_local)
    words = ["--policy", "srsf", "--trace", TRACE, "--cluster", CLUSTER, "--mode", "local", "--out", tmp_path / "out"]
    return run(*words)


def test_a_live_run_that_was_stopped_is_marked(tmp_path, capsys, monkeypatch):
    nothing = float("nan")
    result = LiveResult(False, "stopped by SIGINT", {}, nothing, nothing, nothing, 0)
    assert live(tmp_path, monkeypatch, result) == 130
    assert f"the partial result lies in {tmp_path / 'out'}" in capsys.readouterr().err
    about = json.loads((tmp_path / "out" / "run.json").read_text(), parse_constant=pytest.fail)
    assert (about["status"], about["start_cost_mean_s"]) == ("interrupted", None)


def test_a_live_run_that_fails_says_why_in_one_line(tmp_path, capsys, monkeypatch):
    assert live(tmp_path, monkeypatch, LiveError("the worker of node n0 ended with code 1")) == 1
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "error:" in line]
    why = "error: the worker of node n0 ended with code 1"
    left = f"the partial result lies in {tmp_path / 'out'}, and `resume` goes on with it"
    assert line.endswith(f"{why}; {left}")
    assert json.loads((tmp_path / "out" / "run.json").read_text())["status"] == "failed"


def test_a_trace_is_generated(tmp_path, capsys):
    out = tmp_path / "mine.csv"
    words = ["generate", "--jobs", 20, "--seed", 5, "--cluster", CLUSTER, "--out", out]
    assert run(*words) == 0
    assert "20 jobs" in capsys.readouterr().out
    assert simulate(tmp_path / "out", trace=out) == 0
    assert run(*words) == 2
    assert "exists already" in capsys.readouterr().err


@pytest.mark.parametrize("verb", ["", *VERBS])
def test_help_ends_with_an_example_and_needs_nothing_heavy(verb):
    code = (
        "import sys; from cluster_exp.cli import main\n"
        "code = main(sys.argv[1:])\n"
        "heavy = {'grpc', 'numpy', 'scipy', 'networkx'} & set(sys.modules)\n"
        "sys.exit(f'imported {heavy}' if heavy else code)"
    )
    words = [sys.executable, "-c", code, *([verb] if verb else []), "--help"]
    done = subprocess.run(words, capture_output=True, text=True, cwd=ROOT, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.rstrip().splitlines()
    assert "example:" in lines[-2]
    assert lines[-1].startswith(("  python ", "  cluster-exp "))


def test_the_workers_options_are_those_of_its_program():
    import argparse

    from cluster_exp.cli import worker
    from cluster_exp.runtime import worker_main

    def options(add) -> list[tuple]:
        parser = argparse.ArgumentParser()
        add(parser)
        kept = ("option_strings", "dest", "type", "required", "default", "help")
        return [tuple(getattr(action, name) for name in kept) for action in parser._actions]

    assert options(worker.add_arguments) == options(worker_main.add_arguments)


def test_the_readme_names_policies_as_the_registry_does():
    from cluster_exp.policies.registry import POLICIES

    section = (ROOT / "README.md").read_text().split("| policy | |")[1].split("\n\n")[0]
    rows = [line.strip("| ").split(" | ") for line in section.splitlines()[2:]]
    assert len(rows) >= 5
    for name, description in rows:
        assert POLICIES[name.strip("`")].description == description


def test_the_package_is_the_same_program():
    command = [sys.executable, "-m", "cluster_exp", "policies"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=60, check=True)
    assert done.stdout.startswith("fifo ")
