"""What earlier runs tell of how long jobs are."""

from pathlib import Path

from cluster_exp.domain.errors import InputError
from cluster_exp.domain.snapshot import Ended
from cluster_exp.results.job_table import read_job_table


def read_history(path: str) -> tuple[Ended, ...]:
    """The jobs that finished in a job.csv, the shortest first. How long each would take alone is not known there.

    Their service is the time in which they held GPUs.

    Raises:
        InputError: the file is not there or damaged, or no job of it finished.
    """
    rows = [row for row in read_job_table(Path(path)) if row.status == "FINISHED"]
    if not rows:
        raise InputError("has no finished job to learn from", where=path)
    held = sorted((row.jct_s - row.pending_s, row.num_gpu) for row in rows)
    return tuple(Ended(num_gpu, executed_s, executed_s) for executed_s, num_gpu in held)
