"""job.csv, the measures made of it, tables and the gate."""

import json
import math

import pytest

from cluster_exp.domain.actions import JobRecord, RecordEnd
from cluster_exp.domain.errors import InputError
from cluster_exp.domain.events import CancelRequested, JobArrived, JobFinished
from cluster_exp.domain.job import JobSpec, JobStatus
from cluster_exp.domain.profile import StageProfile
from cluster_exp.interleave.speed import LockstepSpeed
from cluster_exp.results.gate import judge
from cluster_exp.results.job_table import COLUMNS, JobTableWriter, read_job_table
from cluster_exp.results.journal import Detail
from cluster_exp.results.metrics import job_metrics
from cluster_exp.results.run_directory import RunDirectory, check_free, read_run
from cluster_exp.results.summary import find_runs, summarise
from cluster_exp.results.tables import table

PROFILE = StageProfile(1.0, 0.25, 0.25, 0.25, 0.25)


def end(job_id, submit_s, start_s, end_s, executed_s, status=JobStatus.FINISHED):
    record = JobRecord(job_id, 2, submit_s, start_s, end_s, executed_s, 50.0, 1, 1, status, "")
    return RecordEnd(end_s, record)


def write_jobs(path, *ends):
    writer = JobTableWriter(path)
    for action in ends:
        record = action.record
        spec = JobSpec(record.job_id, 2, record.submit_s, 10, 50.0, "bert", 4, PROFILE, user="eve", queue="q")
        writer.record(JobArrived(record.submit_s, spec), [])
        writer.record(JobFinished(record.end_s, record.job_id, 1), [action])
    writer.close()
    return path


def table_of(path, jcts, status="FINISHED"):
    rows = [f"{i},1,0,{jct},{jct},0.5,{status}" for i, jct in enumerate(jcts)]
    path.write_text("job_id,num_gpu,submit_time,end_time,JCT,pending_time,status\n" + "\n".join(rows) + "\n")
    return read_job_table(path)


def test_a_row_has_every_column_in_seconds(tmp_path):
    path = write_jobs(
        tmp_path / "job.csv",
        end("a", 10.5, 20.0, 100.1, 60.0),
        end("b", 0.0, None, 5.0, 0.0, JobStatus.CANCELLED),
    )
    header, a, b = [line.split(",") for line in path.read_text().splitlines()]
    assert tuple(header) == COLUMNS
    must = "time,job_id,num_gpu,submit_time,start_time,end_time,executed_time,JCT,duration,pending_time"
    assert header[:13] == [*must.split(","), "preempt", "resume", "status"]
    row = dict(zip(header, a, strict=True))
    assert float(row["JCT"]) == 100.1 - 10.5
    assert float(row["pending_time"]) == 100.1 - 10.5 - 60.0
    assert (row["preempt"], row["resume"], row["user"], row["queue"], row["model"]) == ("1", "1", "eve", "q", "bert")
    assert dict(zip(header, b, strict=True))["start_time"] == ""


def test_statistics_by_hand(tmp_path):
    metrics = job_metrics(table_of(tmp_path / "j", [30.0, 10.0, 20.0, 100.0]))
    assert metrics.jobs == 4
    assert metrics.average_jct_s == 40.0
    assert metrics.median_jct_s == 25.0
    assert metrics.p99_jct_s == 100.0  # floor(0.99 x 4) = 3
    assert metrics.makespan_s == 100.0
    assert metrics.mean_queueing_s == 0.5


@pytest.mark.parametrize(("count", "index"), [(1, 0), (2, 1), (99, 98), (100, 99), (101, 99), (1000, 990)])
def test_the_99th_jct_is_at_floor_of_099_n(tmp_path, count, index):
    metrics = job_metrics(table_of(tmp_path / "j", [float(i) for i in reversed(range(count))]))
    assert metrics.p99_jct_s == float(index)


def test_only_completed_jobs_count(tmp_path):
    rows = table_of(tmp_path / "a", [10.0]) + table_of(tmp_path / "b", [999.0], "FAILED")
    metrics = job_metrics(rows)
    assert (metrics.jobs, metrics.average_jct_s, metrics.makespan_s) == (1, 10.0, 10.0)
    assert metrics.others == {"FAILED": 1}
    nothing = job_metrics(table_of(tmp_path / "c", [5.0], "CANCELLED"))
    assert nothing.jobs == 0
    assert math.isnan(nothing.average_jct_s)


HEAD = "job_id,num_gpu,submit_time,end_time,JCT,pending_time,status\n"
BAD = {
    "no file": (None, "cannot be read"),
    "empty": ("", ":1: column 'job_id' is missing"),
    "no status": (HEAD.replace(",status", "") + "a,1,0,1,1,0\n", ":1: column 'status' is missing"),
    "text": (HEAD + "a,1,0,1,soon,0,FINISHED\n", ":2: JCT is 'soon', allowed: a number"),
    "nan": (HEAD + "\na,1,0,nan,1,0,FINISHED\n", ":3: end_time is 'nan'"),
    "short row": (HEAD + "a,1,0,1,1,0,FINISHED\nb,1\n", ":3: status is None"),
    "status": (HEAD + "a,1,0,1,1,0,DONE\n", ":2: status is 'DONE', allowed: FINISHED, FAILED, CANCELLED"),
    "latin": (HEAD.encode() + b"\xe9,1,0,1,1,0,FINISHED\n", "is not UTF-8"),
}


@pytest.mark.parametrize(("content", "says"), BAD.values(), ids=BAD)
def test_a_bad_job_csv_is_named_with_its_line(tmp_path, content, says):
    path = tmp_path / "job.csv"
    if content is not None:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(InputError) as caught:
        read_job_table(path)
    assert str(caught.value).startswith(str(path))
    assert says in str(caught.value)


def directory(path, **options):
    return RunDirectory(path, {"policy": "fifo", "mode": "sim", **options}, 2, LockstepSpeed(), Detail.FULL)


def test_run_json_says_how_far_a_run_is(tmp_path):
    with directory(tmp_path / "r") as run:
        running = read_run(tmp_path / "r")
        run.note(starts=0, start_cost_mean_s=math.nan)
    done = json.loads((tmp_path / "r" / "run.json").read_text(), parse_constant=pytest.fail)
    assert (running["status"], done["status"]) == ("running", "finished")
    assert set(done["versions"]) == {"cluster_exp", "python", "compiled"}
    assert done["start_cost_mean_s"] is None
    assert sorted(path.name for path in (tmp_path / "r").iterdir()) == ["job.csv", "journal.jsonl", "run.json"]


@pytest.mark.parametrize(("error", "status"), [(KeyboardInterrupt, "interrupted"), (OSError, "failed")])
def test_what_ends_a_run_early_is_kept(tmp_path, error, status):
    def broken_run():
        with directory(tmp_path / "r") as run:
            spec = JobSpec("a", 2, 0.0, 10, 50.0, "bert", 4, PROFILE)
            run.record(JobArrived(0.0, spec), [])
            run.record(CancelRequested(9.0, "a"), [end("a", 0.0, 1.0, 9.0, 8.0)])
            raise error

    with pytest.raises(error):
        broken_run()
    assert read_run(tmp_path / "r")["status"] == status
    summary = summarise(tmp_path / "r")
    assert (summary.status, summary.metrics.jobs) == (status, 1)


def test_a_directory_holds_one_run(tmp_path):
    with directory(tmp_path / "all" / "fifo"):
        pass
    check_free(tmp_path / "all" / "srsf")
    with pytest.raises(InputError, match=r"holds another run \(run.json\)"):
        check_free(tmp_path / "all" / "fifo")
    with pytest.raises(InputError, match=r"holds runs \(fifo\)"):
        check_free(tmp_path / "all")
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="is a file"):
        check_free(tmp_path / "file")


def test_runs_are_found_in_a_directory_or_one_below(tmp_path):
    for name in ("srsf", "fifo"):
        with directory(tmp_path / name):
            pass
    assert find_runs(tmp_path) == [tmp_path / "fifo", tmp_path / "srsf"]
    assert find_runs(tmp_path / "fifo") == [tmp_path / "fifo"]
    with pytest.raises(InputError, match=r"no job\.csv here"):
        find_runs(tmp_path / "nothing")


def test_a_damaged_run_json_is_named(tmp_path):
    with directory(tmp_path / "r"):
        pass
    (tmp_path / "r" / "run.json").write_text("{")
    with pytest.raises(InputError, match=r"run\.json: is damaged"):
        summarise(tmp_path / "r")


def test_a_table_aligns_text_left_and_numbers_right():
    lines = table(("name", "x"), [("a", 1.0), ("long name", 12345.678), ("c", math.nan)]).splitlines()
    assert lines[:2] == ["name           x", "---------  -----"]
    assert lines[2:] == ["a          1.000", "long name  12346", "c              -"]


@pytest.mark.parametrize(
    ("live_s", "simulated_s", "passed"),
    [
        (100.0, 100.0, True),
        (109.9, 100.0, True),
        (90.1, 100.0, True),
        (110.1, 100.0, False),
        (89.9, 100.0, False),
        (math.nan, 100.0, False),
        (100.0, math.nan, False),
        (100.0, math.inf, False),
    ],
)
def test_the_gate(live_s, simulated_s, passed):
    (verdict,) = judge([("p", live_s, simulated_s)])
    assert verdict.passed is passed
