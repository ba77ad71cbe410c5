"""Runs that are stopped, or that the disk does not take: their part is readable and marked, and one line says why."""

import json
import os
import signal

import pytest

from cluster_exp.cli import execute, main
from cluster_exp.results import job_table, run_directory
from cluster_exp.results.run_directory import RunDirectory
from tests.unit.test_cli_run import CLUSTER, TRACE, simulate


def status(out) -> str:
    return json.loads((out / "run.json").read_text(), parse_constant=pytest.fail)["status"]


def test_sigterm_stops_a_simulation_as_ctrl_c_does(tmp_path, capsys, monkeypatch):
    def terminated(policy, jobs, cluster, rules, start_cost, recorder, show, watch):
        os.kill(os.getpid(), signal.SIGTERM)
        pytest.fail("the signal was not taken")

    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(execute, "simulate", terminated)
    assert simulate(tmp_path / "out") == 130
    assert signal.getsignal(signal.SIGTERM) is before
    assert "interrupted; the partial result lies in" in capsys.readouterr().err
    assert status(tmp_path / "out") == "interrupted"
    assert main(["calc", str(tmp_path / "out")]) == 0
    assert "Total jobs: 0" in capsys.readouterr().out


def full(*_: object) -> None:
    raise OSError(28, "No space left on device")


def errors(capsys) -> list[str]:
    return [line for line in capsys.readouterr().err.split("\n") if "error:" in line]


def test_a_full_disk_fails_the_run_in_one_line(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(RunDirectory, "record", full)
    assert simulate(tmp_path / "out") == 1
    (line,) = errors(capsys)
    assert line.endswith(f"No space left on device; the partial result lies in {tmp_path / 'out'}")
    assert status(tmp_path / "out") == "failed"
    assert main(["calc", str(tmp_path / "out")]) == 0


def test_a_disk_that_is_full_at_the_end_fails_the_run(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(job_table.JobTableWriter, "close", full)
    assert simulate(tmp_path / "out") == 1
    assert len(errors(capsys)) == 1
    assert status(tmp_path / "out") == "failed"


def test_a_table_that_cannot_be_made_fails_the_run(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(run_directory, "JobTableWriter", full)
    assert simulate(tmp_path / "out") == 1
    assert len(errors(capsys)) == 1
    assert status(tmp_path / "out") == "failed"


def test_where_no_draft_fits_the_status_is_written_in_place(tmp_path, monkeypatch):
    write = run_directory._write

    def no_room_for_drafts(path, mode, text) -> None:
        if (path.parent / "run.json").exists() and path.name != "run.json":
            path.touch()
            full()
        write(path, mode, text)

    monkeypatch.setattr(run_directory, "_write", no_room_for_drafts)
    assert simulate(tmp_path / "out") == 0
    assert status(tmp_path / "out") == "finished"
    assert not (tmp_path / "out" / "run.tmp").exists()


def test_an_empty_out_is_not_the_current_directory(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for argv in (["--policy", "srsf", "--trace", TRACE, "--cluster", CLUSTER, "--out", ""], ["demo", "--out", ""]):
        assert main(argv) == 2
        assert "--out: '' given; allowed: a directory's path" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
