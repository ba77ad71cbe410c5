"""What a run comes to: JCT, makespan, queueing, utilisation."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from cluster_exp.results.job_table import JobRow


@dataclass(frozen=True, slots=True)
class JobMetrics:
    """Statistics over the jobs that finished. Times in seconds; NaN when none did."""

    jobs: int
    average_jct_s: float
    median_jct_s: float
    p99_jct_s: float  # the value at index floor(0.99 N) of the sorted list
    makespan_s: float  # latest end, from time 0
    mean_queueing_s: float  # time without GPUs between submission and end
    others: dict[str, int]  # jobs that ended in another way, by status


def job_metrics(rows: Sequence[JobRow]) -> JobMetrics:
    """Metrics of the jobs of one run."""
    done = [row for row in rows if row.status == "FINISHED"]
    others = dict(sorted(Counter(row.status for row in rows if row.status != "FINISHED").items()))
    if not done:
        return JobMetrics(0, *(math.nan,) * 5, others)
    jcts = sorted(row.jct_s for row in done)
    count = len(done)
    return JobMetrics(
        jobs=count,
        average_jct_s=math.fsum(jcts) / count,
        median_jct_s=(jcts[(count - 1) // 2] + jcts[count // 2]) / 2,
        p99_jct_s=jcts[min(math.floor(0.99 * count), count - 1)],
        makespan_s=max(row.end_s for row in done),
        mean_queueing_s=math.fsum(row.pending_s for row in done) / count,
        others=others,
    )
