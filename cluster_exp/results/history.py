"""What earlier runs tell of how long jobs are."""

from pathlib import Path

from cluster_exp.domain.errors import InputError
from cluster_exp.results.job_table import read_job_table


def read_history(path: str) -> tuple[float, ...]:
    """Service of the jobs that finished in a job.csv, in GPU-seconds (executed time x GPUs), ascending.

    Raises:
        InputError: the file is not there or damaged, or no job of it finished.
    """
    rows = [row for row in read_job_table(Path(path)) if row.status == "FINISHED"]
    if not rows:
        raise InputError("has no finished job to learn from", where=path)
    return tuple(sorted((row.jct_s - row.pending_s) * row.num_gpu for row in rows))
