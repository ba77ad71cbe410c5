"""What a run showed: targets, measures, and whether every job is accounted for."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from cluster_exp.domain.job import JobStatus
from cluster_exp.results.job_table import read_job_table
from cluster_exp.results.run_directory import JOBS_FILE
from control_plane_kit.driver import Log, Size
from control_plane_kit.master import Sample

P99_TARGET_S = 2.0
CORE_TARGET = 1.0  # seconds of CPU per second: more than one core cannot be used by one loop


def accounted(size: Size, log: Log, run: Path) -> list[str]:
    """What is wrong with the jobs, a line a kind; nothing when each was launched, did its work and is recorded."""
    expected = {f"job-{i}" for i in range(size.jobs)}
    rows = read_job_table(run / JOBS_FILE)
    times = Counter(row.job_id for row in rows)
    finished = {row.job_id for row in rows if row.status == JobStatus.FINISHED.name}
    wrong = {
        "were never launched": expected - log.launched_s.keys(),
        "did not do all their iterations": expected - log.ended.keys(),
        "are not recorded as finished": expected - finished,
        "are recorded more than once": {job_id for job_id, count in times.items() if count > 1},
        "are recorded and were never submitted": times.keys() - expected,
    }
    return [f"{len(jobs)} jobs {what}, {min(jobs)} is one" for what, jobs in wrong.items() if jobs]


def table(size: Size, log: Log) -> list[str]:
    """The lines to print."""
    waits_s = np.array(
        [log.launched_s[job_id] - due_s for job_id, due_s in log.due_s.items() if job_id in log.launched_s]
    )
    full_s = max(list(log.launched_s.values())[: size.together]) if log.launched_s else 0.0
    fill = between(log.samples, min(log.due_s.values()), full_s)
    busy = between(log.samples, full_s + 1.0, log.first_end_s)
    rows = [("", "target", "measured", "met")]
    finished = len(log.ended)
    rows.append(("jobs that did all their work", f"{size.jobs}", f"{finished}", met(finished == size.jobs)))
    p50_s, p99_s = np.percentile(waits_s, (50, 99))
    rows.append(("submission to launch, p99", f"<= {P99_TARGET_S:g} s", f"{p99_s:.3f} s", met(p99_s <= P99_TARGET_S)))
    rows.append(("  p50, max", "", f"{p50_s:.3f} s, {waits_s.max():.3f} s", ""))
    if busy is None:
        rows.append((f"{size.together} jobs running together", f"{size.seconds:g} s", "never", "no"))
    else:
        rows += list(busy_rows(size, busy))
    rows += list(spent_rows(f"while {size.rate:g} jobs/s arrive", fill))
    rows += list(spent_rows(f"while {size.together} jobs run", busy))
    peak_mib = log.samples[-1].peak_mib
    rows.append(("master, peak memory", "", f"{peak_mib:.0f} MiB", ""))
    rows.append(("slowest plan", "", f"{log.samples[-1].slowest_plan_s:.3f} s", ""))
    return [f"{name:<46}{target:>12}{measured:>20}{is_met:>6}" for name, target, measured, is_met in rows]


def busy_rows(size: Size, busy: Sample) -> Iterator[tuple[str, str, str, str]]:
    """Rows about the time in which all run."""
    reports = busy.reports / busy.at_s
    yield (
        "  running together for",
        f">= {size.seconds:g} s",
        f"{busy.at_s:.1f} s",
        met(busy.at_s >= 0.9 * size.seconds),
    )
    yield ("reports a second at the master", f">= {size.together}", f"{reports:.0f}", met(reports >= size.together))
    cpu = busy.cpu_s / busy.at_s
    yield ("master's CPU, seconds per second", f"<= {CORE_TARGET:g}", f"{cpu:.2f}", met(cpu <= CORE_TARGET))


def spent_rows(when: str, spent: Sample | None) -> Iterator[tuple[str, str, str, str]]:
    """Rows about what the master does with its CPU in some time."""
    if spent is None or not spent.at_s:
        return
    rest_s = spent.cpu_s - spent.plan_s - spent.core_s - spent.record_s
    yield (f"master's CPU {when}", "", f"{spent.cpu_s / spent.at_s:.2f} s/s", "")
    for name, value in (
        (f"core, planning ({spent.plans / spent.at_s:.1f}/s)", spent.plan_s),
        (f"core, other events ({(spent.events - spent.plans) / spent.at_s:.0f}/s)", spent.core_s),
        ("recorder", spent.record_s),
        ("gRPC, codec, loop", rest_s),
    ):
        yield (f"    {name}", "", f"{value / spent.at_s:.3f} s/s", "")


def between(samples: list[Sample], begin_s: float, end_s: float) -> Sample | None:
    """What was spent between two times, or None when too little was sampled."""
    inside = [sample for sample in samples if begin_s <= sample.at_s <= end_s]
    if len(inside) < 2:
        return None
    first, last = inside[0], inside[-1]
    return Sample(
        at_s=last.at_s - first.at_s,
        cpu_s=last.cpu_s - first.cpu_s,
        plan_s=last.plan_s - first.plan_s,
        core_s=last.core_s - first.core_s,
        record_s=last.record_s - first.record_s,
        reports=last.reports - first.reports,
        events=last.events - first.events,
        plans=last.plans - first.plans,
    )


def met(value: bool) -> str:
    """How a table says yes and no."""
    return "yes" if value else "no"
