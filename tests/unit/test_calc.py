"""calc: a row a run, and the line that scripts parse."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from cluster_exp.cli import main

ROOT = Path(__file__).parents[2]
HEAD = "job_id,num_gpu,submit_time,end_time,JCT,pending_time,status\n"
LAST = re.compile(r"Total jobs: (\d+), avg JCT: ([\d.]+), makespan: ([\d.]+), 99th JCT: ([\d.]+)")


def put(directory: Path, rows: str) -> Path:
    directory.mkdir(parents=True)
    (directory / "job.csv").write_text(HEAD + rows)
    return directory


def test_the_last_line_of_one_run_is_exact(tmp_path, capsys):
    put(tmp_path / "r", "a,1,0,10,10,1,FINISHED\nb,1,5,25.5,20.5,2,FINISHED\nc,1,0,90,90,0,FAILED\n")
    assert main(["calc", str(tmp_path / "r")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == "Total jobs: 2, avg JCT: 15.250000, makespan: 25.500000, 99th JCT: 20.500000"
    assert lines[-2] == f"Other jobs of {tmp_path / 'r'}: 1 failed"
    assert LAST.fullmatch(lines[-1])


def test_columns_are_found_by_name(tmp_path, capsys):
    header = "x,status,JCT,pending_time,end_time,submit_time,num_gpu,job_id"
    (tmp_path / "job.csv").write_text(f"{header}\n0,FINISHED,7,1,9,2,1,a\n")
    assert main(["calc", str(tmp_path)]) == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("Total jobs: 1, avg JCT: 7.000000, makespan: 9.000000")


def test_several_runs_have_a_row_each_and_no_last_line(tmp_path, capsys):
    for name in ("fifo", "srsf"):
        put(tmp_path / name, "a,1,0,10,10,1,FINISHED\n")
    assert main(["calc", str(tmp_path)]) == 0
    below = capsys.readouterr().out
    assert [line.split()[0] for line in below.splitlines()[2:]] == ["fifo", "srsf"]
    assert "Total jobs" not in below
    assert main(["calc", str(tmp_path / "fifo"), str(tmp_path / "srsf")]) == 0
    assert capsys.readouterr().out == below


def test_no_completed_job(tmp_path, capsys):
    put(tmp_path / "r", "a,1,0,10,10,1,CANCELLED\n")
    assert main(["calc", str(tmp_path / "r")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-2].endswith("1 cancelled")
    assert lines[-1].startswith("Total jobs: 0, avg JCT: nan")


def test_json(tmp_path, capsys):
    put(tmp_path / "a", "a,1,0,10,10,1,FINISHED\n")
    put(tmp_path / "b", "")
    assert main(["calc", "--json", str(tmp_path)]) == 0
    a, b = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert (a["run"], a["jobs"], a["average_jct_s"], a["gpu_utilisation"]) == (str(tmp_path / "a"), 1, 10.0, None)
    assert (b["jobs"], b["average_jct_s"]) == (0, None)


def test_calc_py_is_the_verb(tmp_path):
    put(tmp_path / "r", "a,1,0,10,10,1,FINISHED\n")
    command = [sys.executable, "calc.py", str(tmp_path / "r")]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=60, check=True)
    assert LAST.fullmatch(done.stdout.splitlines()[-1])


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ("a,1,0,10,10,1,FINI\nb,1,0,9,9,1,FINISHED\n", ":2: status is 'FINI'"),
        ("a,1,0,10,1e999,1,FINISHED\n", ":2: JCT is '1e999'"),
        ("a,1,0,nan,10,1,FINISHED\n", ":2: end_time is 'nan'"),
        ("a,1,0\n", ":2: status is None"),
        ("a" * 200_000 + ",1,0,10,10,1,FINISHED\n", ":2: is not CSV"),
    ],
)
def test_a_damaged_table_is_told_in_one_line(tmp_path, capsys, rows, says):
    put(tmp_path / "r", rows)
    assert main(["calc", str(tmp_path / "r")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert says in line


@pytest.mark.parametrize("rest", ["b,1,0,1", "b,1,0,12,12,1,FIN"])
def test_a_last_line_that_breaks_off_is_left_out(tmp_path, capsys, caplog, rest):
    put(tmp_path / "r", "a,1,0,10,10,1,FINISHED\n" + rest)
    assert main(["calc", str(tmp_path / "r")]) == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("Total jobs: 1, avg JCT: 10.000000")
    assert "job.csv:3: the last line breaks off" in caplog.text


def test_a_missing_last_newline_is_fine(tmp_path, capsys, caplog):
    put(tmp_path / "r", "a,1,0,10,10,1,FINISHED\nb,1,0,20,20,1,FINISHED")
    assert main(["calc", str(tmp_path / "r")]) == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("Total jobs: 2, avg JCT: 15.000000")
    assert not caplog.records


@pytest.mark.parametrize(
    "about",
    [
        '{"num_gpu": "8", "gpu_busy_s": null, "mean_efficiency": null}',
        '{"num_gpu": 8, "gpu_busy_s": NaN, "mean_efficiency": Infinity}',
        '{"num_gpu": null}',
        "[1]",
    ],
)
def test_numbers_that_run_json_lacks_are_not_known(tmp_path, capsys, about):
    (put(tmp_path / "r", "a,1,0,10,10,1,FINISHED\n") / "run.json").write_text(about)
    assert main(["calc", str(tmp_path / "r"), "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert (row["jobs"], row["gpu_utilisation"], row["mean_efficiency"]) == (1, None, None)


def test_a_run_json_that_cannot_be_read(tmp_path, capsys):
    (put(tmp_path / "r", "a,1,0,10,10,1,FINISHED\n") / "run.json").mkdir()
    assert main(["calc", str(tmp_path / "r")]) == 2
    assert "run.json: cannot be read" in capsys.readouterr().err
