"""A run's directory: run.json says what was run and how it went; job.csv and journal.jsonl hold the rest."""

import json
import math
import os
import platform
import resource
from collections.abc import Mapping, Sequence
from enum import Enum
from pathlib import Path
from types import TracebackType
from typing import Any

from cluster_exp import __version__
from cluster_exp.core.pool import compiled
from cluster_exp.core.recorder import Recorder
from cluster_exp.domain.actions import Action
from cluster_exp.domain.errors import InputError
from cluster_exp.domain.events import Event
from cluster_exp.domain.models import SpeedModel
from cluster_exp.results.job_table import JobTableWriter
from cluster_exp.results.journal import Detail, JournalWriter
from cluster_exp.results.usage import UsageMeter

RUN_FILE, JOBS_FILE, JOURNAL_FILE, STATE_FILE = "run.json", "job.csv", "journal.jsonl", "state.sqlite"
_FORMAT_VERSION = 1


class RunStatus(Enum):
    """How far a run came."""

    RUNNING = "running"
    FINISHED = "finished"
    INTERRUPTED = "interrupted"  # what lies there is a partial result
    FAILED = "failed"


def check_free(directory: Path) -> None:
    """Raises InputError when a run's files cannot be put there, also when runs lie in the directory's own ones."""
    check_holds_no_run(directory)
    for name in (RUN_FILE, JOBS_FILE):
        for run in sorted(directory.glob(f"*/{name}")):
            raise InputError(
                f"{str(directory)!r} holds runs ({run.parent.name}); name an empty or a new directory", where="--out"
            )
    existing = next(path for path in (directory, *directory.absolute().parents) if path.exists())
    if not existing.is_dir():
        raise InputError(f"{str(existing)!r} is a file, a directory is needed", where="--out")
    if not os.access(existing, os.W_OK):
        raise InputError(f"{str(existing)!r} cannot be written to", where="--out")


def check_holds_no_run(directory: Path) -> None:
    """Raises InputError when a run lies in the directory itself."""
    for name in (RUN_FILE, JOBS_FILE, JOURNAL_FILE, STATE_FILE):
        if (directory / name).exists():
            raise InputError(
                f"{str(directory)!r} holds another run ({name}); name an empty or a new directory", where="--out"
            )


def read_run(directory: Path) -> dict[str, Any]:
    """run.json of a directory; empty when there is none. Raises InputError when it is damaged."""
    path = directory / RUN_FILE
    if not path.exists():
        return {}
    try:
        run = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", where=str(path)) from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"is damaged: {error}", where=str(path)) from None
    return run if isinstance(run, dict) else {}


class RunDirectory:
    """Records a run into its directory; use it as a context manager.

    Leaving it by an exception marks the run as failed, by KeyboardInterrupt as interrupted.
    """

    def __init__(
        self,
        directory: Path,
        options: Mapping[str, Any],
        num_gpu: int,
        speed: SpeedModel,
        detail: Detail,
        *,
        again: bool = False,
    ) -> None:
        """Makes the directory and its files; with `again`, those of the run that lies there are written anew.

        Raises:
            InputError: it holds another run.
            OSError: it cannot be written to.
        """
        if again:
            for name in (JOBS_FILE, JOURNAL_FILE):
                (directory / name).unlink(missing_ok=True)
        else:
            check_free(directory)
        directory.mkdir(parents=True, exist_ok=True)
        self.path = directory
        versions = {"cluster_exp": __version__, "python": platform.python_version(), "compiled": compiled()}
        self._run: dict[str, Any] = {
            "format": _FORMAT_VERSION,
            "versions": versions,
            **options,
            "num_gpu": num_gpu,
        }
        self._status = RunStatus.RUNNING
        self._save()
        self._meter = UsageMeter(speed)
        try:
            self._jobs = JobTableWriter(directory / JOBS_FILE)
            self._journal = JournalWriter(directory / JOURNAL_FILE, options, detail)
        except OSError:
            self._status = RunStatus.FAILED
            self._save()
            raise
        self._recorders: tuple[Recorder, ...] = (self._journal, self._jobs, self._meter)

    def record(self, event: Event, actions: Sequence[Action]) -> None:
        """Keeps one event and its actions (`core.recorder.Recorder`)."""
        for recorder in self._recorders:
            recorder.record(event, actions)

    def note(self, **values: Any) -> None:
        """Adds values to run.json when the run ends; NaN becomes null."""
        self._run |= {
            name: None if isinstance(value, float) and math.isnan(value) else value for name, value in values.items()
        }

    def interrupted(self) -> None:
        """Marks the run as stopped before its end."""
        self._status = RunStatus.INTERRUPTED

    def __enter__(self) -> "RunDirectory":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self._status = RunStatus.INTERRUPTED if issubclass(kind, KeyboardInterrupt) else RunStatus.FAILED
        elif self._status is RunStatus.RUNNING:
            self._status = RunStatus.FINISHED
        usage = self._meter.usage()
        self._run |= {
            "gpu_busy_s": usage.gpu_busy_s,
            "mean_efficiency": usage.mean_efficiency,
            "peak_memory_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,  # of this process
        }
        failures = []
        for close in (self._jobs.close, self._journal.close):
            try:
                close()
            except OSError as failure:
                failures.append(failure)
                self._status = RunStatus.FAILED
        self._save()
        if failures and error is None:
            raise failures[0]

    def _save(self) -> None:
        path = self.path / RUN_FILE
        draft = path.with_suffix(".tmp")
        text = json.dumps(self._run | {"status": self._status.value}, indent=2) + "\n"
        try:
            _write(draft, "w", text)
            os.replace(draft, path)
        except OSError:  # on a full disk the room that the file has already may do
            draft.unlink(missing_ok=True)
            if not path.exists():
                raise
            _write(path, "r+", text)


def _write(path: Path, mode: str, text: str) -> None:
    with open(path, mode, encoding="utf-8") as file:
        file.write(text)
        file.truncate()
        file.flush()
        os.fsync(file.fileno())
