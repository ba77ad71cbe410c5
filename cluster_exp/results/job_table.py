"""job.csv: a row for every job that ended. Times in seconds from the run's start."""

import csv
import io
import logging
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from cluster_exp.domain.actions import Action, JobRecord, RecordEnd
from cluster_exp.domain.errors import InputError, cut
from cluster_exp.domain.events import Event, JobArrived
from cluster_exp.domain.job import FINAL, JobSpec

COLUMNS = (
    "time",  # when the row was written: the job's end
    "job_id",
    "num_gpu",
    "submit_time",
    "start_time",  # first start; empty = never
    "end_time",
    "executed_time",  # in which it held GPUs
    "JCT",  # end - submit
    "duration",  # as stated by the user or the log
    "pending_time",  # JCT - executed
    "preempt",  # times preempted
    "resume",  # starts after the first
    "status",
    "user",
    "queue",
    "model",
    "reason",  # of a failure
)
_log = logging.getLogger(__name__)
_STATUSES = {status.name: status for status in FINAL}


@dataclass(frozen=True, slots=True)
class JobRow:
    """What metrics need of a row. Times in seconds."""

    job_id: str
    num_gpu: int
    submit_s: float
    end_s: float
    jct_s: float
    pending_s: float
    status: str  # FINISHED, FAILED or CANCELLED


class JobTableWriter:
    """Writes job.csv as jobs end (`core.recorder.Recorder`)."""

    def __init__(self, path: Path) -> None:
        """Opens the file, which must not exist, and writes the header. Raises OSError when it cannot be made."""
        self._file = open(path, "x", newline="", encoding="utf-8")  # noqa: SIM115 - open for the whole run
        self._writer = csv.writer(self._file, lineterminator="\n")
        self._writer.writerow(COLUMNS)
        self._file.flush()  # a full disk shows at once, and the file is readable from the start
        self._specs: dict[str, JobSpec] = {}

    def record(self, event: Event, actions: Sequence[Action]) -> None:
        """Writes a row for each job that ended. Raises OSError when the disk does not take it."""
        if isinstance(event, JobArrived):
            self._specs[event.job.job_id] = event.job
        for action in actions:
            if isinstance(action, RecordEnd):
                self._write(action.record)

    def close(self) -> None:
        """Writes out what is buffered. Raises OSError when the disk does not take it."""
        self._file.close()

    def _write(self, record: JobRecord) -> None:
        spec = self._specs.pop(record.job_id)
        jct_s = record.end_s - record.submit_s
        self._writer.writerow(
            (
                record.end_s,
                record.job_id,
                record.num_gpu,
                record.submit_s,
                "" if record.start_s is None else record.start_s,
                record.end_s,
                record.executed_s,
                jct_s,
                record.duration_s,
                jct_s - record.executed_s,
                record.preempted,
                record.resumed,
                record.status.name,
                spec.user,
                spec.queue,
                spec.model,
                record.reason,
            )
        )


def read_job_table(path: Path) -> list[JobRow]:
    """Rows of a job.csv, columns by name; more columns than are needed are fine.

    A last line that breaks off (the writer was killed) is left out with a warning.

    Raises:
        InputError: the file is not there, a column is missing, or a cell is not what it should be.
    """
    try:
        with open(path, newline="", encoding="utf-8") as file:
            text = file.read()
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", where=str(path)) from error
    except UnicodeDecodeError as error:
        raise InputError(f"is not UTF-8: {error.reason}", where=str(path)) from error
    reader = csv.DictReader(io.StringIO(text, newline=""))
    try:
        return list(_rows(path, reader, breaks_off=not text.endswith("\n")))
    except csv.Error as error:
        raise InputError(f"is not CSV: {error}", where=f"{path}:{reader.line_num + 1}") from error


def _rows(path: Path, reader: "csv.DictReader[str]", *, breaks_off: bool) -> Iterator[JobRow]:
    needed = ("job_id", "num_gpu", "submit_time", "end_time", "JCT", "pending_time", "status")
    missing = [name for name in needed if name not in (reader.fieldnames or ())]
    if missing:
        raise InputError(f"column {missing[0]!r} is missing; needed: {', '.join(needed)}", where=f"{path}:1")
    rows = [(f"{path}:{reader.line_num}", row) for row in reader]
    for count, (where, row) in enumerate(rows, start=1):
        if breaks_off and count == len(rows) and row["status"] not in _STATUSES:
            _log.warning("%s: the last line breaks off and is left out", where)
        else:
            yield _row(row, where)


def _row(row: dict[str, str], where: str) -> JobRow:
    status = row["status"]
    if status not in _STATUSES:
        raise InputError(f"status is {cut(status)}, allowed: {', '.join(_STATUSES)}", where=where)
    return JobRow(
        job_id=row["job_id"],
        num_gpu=int(_number(row, "num_gpu", where)),
        submit_s=_number(row, "submit_time", where),
        end_s=_number(row, "end_time", where),
        jct_s=_number(row, "JCT", where),
        pending_s=_number(row, "pending_time", where),
        status=status,
    )


def _number(row: dict[str, str], name: str, where: str) -> float:
    try:
        value = float(row[name])
    except (TypeError, ValueError):
        value = math.nan
    if not math.isfinite(value):
        raise InputError(f"{name} is {cut(row[name])}, allowed: a number", where=where)
    return value
