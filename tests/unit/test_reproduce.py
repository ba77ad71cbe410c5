"""`reproduce` on a made-up data folder: two days of jobs and published numbers that are right, wrong or missing."""

import csv
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest

from cluster_exp.cli import main
from cluster_exp.policies.registry import make_policy
from cluster_exp.reproduce import plot
from cluster_exp.reproduce.comparison import METRICS, Compared, comparison_table, summary_line
from cluster_exp.reproduce.figures import FIGURES, Figure, Window
from cluster_exp.sim.simulate import COST_MODELS

ROOT = Path(__file__).parents[2]
TRACE_HEADER = (
    "job_id,num_gpu,submit_time,iterations,model_name,batch_size,duration,iteration_time,"
    "resource_time_0,resource_time_1,resource_time_2"
)
SOURCE = FIGURES["helios-vc"].source
WINDOW_MS = 1_064_161_000  # 2017-10-01 00:00:00 for the trace whose time 0 is 2017-09-18 16:23:59


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """16 nodes. `whole` takes all 128 GPUs for 100 s; `late` (10 s) comes 40 s later; `early` is before the window.

    FIFO and SJF: JCT 100 and 60 + 10, queueing 0 and 60. SRTF preempts `whole` (60 s) for 11 s: `late` takes 11 s,
    `whole` ends at 51 + 60 + 60 + 1.
    """
    (tmp_path / "traces" / "muri").mkdir(parents=True)
    (tmp_path / "published").mkdir()
    rows = [
        ("early", 1, WINDOW_MS - 1000, 7000),
        ("whole", 128, WINDOW_MS, 100_000),
        ("late", 1, WINDOW_MS + 40_000, 10_000),
    ]
    lines = [f"{name},{gpus},{submit},5,vgg16,16,{duration},100,10,80,10" for name, gpus, submit, duration in rows]
    (tmp_path / "traces" / "muri" / "trace3.csv").write_text("\n".join([TRACE_HEADER, *lines]) + "\n")
    published = [
        "source,trace,cluster,policy,metric,value,unit,note",
        f'{SOURCE},Philly VC 2869ce,"16 nodes, per VC",fifo,avg_jct,85,s,right',
        f"{SOURCE},Philly VC 2869ce,,fifo,avg_queue,60,s,twice ours",
        f"{SOURCE},Philly VC 2869ce,,sjf,avg_jct,170,s,twice ours",
        f"{SOURCE},Philly VC 2869ce,,srtf,avg_jct,91.5,s,right",
        "another source,Philly VC 2869ce,,srtf,avg_queue,91.5,s,of another figure",
    ]
    (tmp_path / "published" / "published_results.csv").write_text("\n".join(published) + "\n")
    return tmp_path


def test_published_ours_and_ratio_are_printed(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "new" / "out"
    assert main(["reproduce", "helios-vc", "--data", str(data), "--out", str(out), "--jobs", "2"]) == 0
    printed = capsys.readouterr().out
    lines = [line.split() for line in printed.splitlines()]
    assert ["trace3", "fifo", "fifo", "avg_jct", "85.00", "85.00", "1.000000"] in lines
    assert ["trace3", "fifo", "fifo", "avg_queue", "60.00", "30.00", "0.500000"] in lines
    assert ["trace3", "sjf", "sjf", "avg_jct", "170.00", "85.00", "0.500000"] in lines
    assert ["trace3", "srtf", "srtf", "avg_jct", "91.50", "91.50", "1.000000"] in lines
    assert ["trace3", "srtf", "srtf", "avg_queue", "-", "5.50", "-"] in lines
    assert f"skipped: trace4 ({data / 'traces' / 'muri' / 'trace4.csv'} is not there)" in printed
    assert "4 numbers compared; ratio from 0.500000" in printed
    with (out / "helios-vc.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 6
    assert {key: rows[0][key] for key in ("policy", "metric", "published_s", "ours_s", "ratio")} == {
        "policy": "fifo",
        "metric": "avg_jct",
        "published_s": "85.0",
        "ours_s": "85.0",
        "ratio": "1.0",
    }
    assert (rows[5]["published_s"], rows[5]["ours_s"], rows[5]["ratio"]) == ("", "5.5", "")


def test_the_data_folder_comes_from_the_environment(
    data: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLUSTER_EXP_DATA", str(data))
    assert main(["reproduce", "helios-vc", "--traces", "trace3", "--policies", "fifo,sjf", "--jobs", "1"]) == 0
    printed = capsys.readouterr().out
    assert "skipped" not in printed
    assert "srtf" not in printed
    assert "3 numbers compared" in printed


def test_without_matplotlib_a_line_says_how_to_get_it(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plot, "can_plot", lambda: False)
    words = ["reproduce", "helios-vc", "--data", str(data), "--policies", "fifo", "--out", str(tmp_path / "out")]
    assert main(words) == 0
    assert "no picture: matplotlib is not installed; pip install 'cluster-exp[plots]'" in capsys.readouterr().out
    assert not (tmp_path / "out" / "helios-vc.png").exists()
    assert main(words) == 2
    assert "exists already" in capsys.readouterr().err


def test_the_picture_is_a_png(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    rows = [Compared("t", policy, "p", metric, 7200.0, 3600.0) for policy in "ab" for metric in METRICS]
    plot.write_plot(tmp_path / "f.png", "title", rows)
    assert (tmp_path / "f.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("words", "where", "nearest"),
    [
        (["muri-fig99"], "FIGURE", "muri-fig9"),
        (["helios-vc", "--traces", "trace5"], "--traces", "trace4"),
        (["helios-vc", "--policies", "srft"], "--policies", "srtf"),
    ],
)
def test_an_unknown_name_is_refused_with_the_nearest(
    data: Path, capsys: pytest.CaptureFixture[str], words: list[str], where: str, nearest: str
) -> None:
    assert main(["reproduce", *words, "--data", str(data)]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"error: {where}: ")
    assert f"nearest is {nearest!r}" in error
    assert error.count("\n") == 1


def test_bad_folders_are_refused(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CLUSTER_EXP_DATA", raising=False)
    assert main(["reproduce", "helios-vc"]) == 2
    assert "error: --data: is missing" in capsys.readouterr().err
    assert main(["reproduce", "helios-vc", "--data", str(tmp_path / "nowhere")]) == 2
    assert "published_results.csv: no such file" in capsys.readouterr().err
    assert main(["reproduce", "muri-fig13", "--data", str(data), "--traces", "job_type_1"]) == 2
    assert "holds none of the traces of muri-fig13" in capsys.readouterr().err
    assert main(["reproduce", "helios-vc", "--data", str(data), "--jobs", "0"]) == 2
    assert "--jobs" in capsys.readouterr().err


def test_a_broken_trace_is_one_line(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = data / "traces" / "muri" / "trace3.csv"
    trace.write_text(trace.read_text().replace("100000", "long"))
    assert main(["reproduce", "helios-vc", "--data", str(data)]) == 2
    assert f"error: {trace}:3:7: duration: 'long' is not a number" in capsys.readouterr().err


def test_a_window_holds_both_its_ends() -> None:
    window = Window(datetime(2020, 1, 1), datetime(2020, 1, 2), datetime(2020, 1, 3))
    day_s = 24 * 3600.0
    assert [window.holds(s) for s in (day_s - 1, day_s, 2 * day_s, 2 * day_s + 1)] == [False, True, True, False]


@pytest.mark.parametrize("figure", FIGURES.values(), ids=lambda figure: figure.name)
def test_every_figure_is_made_of_known_parts(figure: Figure) -> None:
    assert figure.cost_model in COST_MODELS
    assert set(figure.metrics) <= set(METRICS)
    assert len({policy.label for policy in figure.policies}) == len(figure.policies)
    assert len({trace.name for trace in figure.traces}) == len(figure.traces)
    for policy in figure.policies:
        assert make_policy(policy.spec).name


def test_ratios_of_missing_numbers_are_dashes() -> None:
    nan = float("nan")
    rows = [Compared("t", "p", "P", "avg_jct", 0.0, 1.0), Compared("t", "q", "Q", "avg_jct", 5.0, nan)]
    assert [line.split()[-1] for line in comparison_table(rows).splitlines()[2:]] == ["-", "-"]
    assert summary_line(rows) == "no published number to compare with"


@pytest.fixture
def long_run(data: Path) -> Iterator["subprocess.Popen[str]"]:
    """A figure whose simulation takes far longer than the test: 20,000 jobs that preempt one another."""
    trace = data / "traces" / "muri" / "trace3.csv"
    rows = [f"j{i},1,{WINDOW_MS + 1000 * i},5,vgg16,16,{10**8 - 1000 * i},100,10,80,10" for i in range(20_000)]
    trace.write_text("\n".join([TRACE_HEADER, *rows]) + "\n")
    command = [sys.executable, "run.py", "reproduce", "helios-vc", "--data", str(data), "--jobs", "2"]
    process = subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    yield process
    if process.poll() is None:
        process.kill()
    process.communicate()


def test_an_interrupt_leaves_no_process(long_run: "subprocess.Popen[str]") -> None:
    group = long_run.pid
    deadline = time.monotonic() + 60
    while len(members(group)) < 4 and time.monotonic() < deadline:  # it, the fork server, two simulations
        time.sleep(0.05)
    assert len(members(group)) >= 4
    os.killpg(group, signal.SIGINT)
    _, errors = long_run.communicate(timeout=30)
    assert long_run.returncode == 130
    assert errors.rstrip().endswith("interrupted")
    assert "Traceback" not in errors
    while members(group) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not members(group)


def members(group: int) -> list[int]:
    """Process ids of a process group."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(words[2]) == group and words[0] != "Z":
                found.append(int(entry.name))
    return found
