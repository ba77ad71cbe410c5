"""Where the time of simulations went, as a table."""

from collections.abc import Sequence
from pathlib import Path

from cluster_exp.results.run_directory import read_run
from cluster_exp.results.tables import table


def profile_table(directories: Sequence[Path]) -> str:
    """A row a run: seconds of processor time by part, plans, skipped rounds, events and peak memory.

    Raises:
        InputError: a run.json is damaged.
    """
    runs = [read_run(directory) for directory in directories]
    parts = list(dict.fromkeys(part for run in runs for part in run.get("profile_s", {})))
    header = ["profile", *(f"{part} s" for part in parts), "events", "plans", "rounds skipped", "peak MiB"]
    rows = []
    for directory, run in zip(directories, runs, strict=True):
        seconds = [run.get("profile_s", {}).get(part, 0.0) for part in parts]
        counts = [run.get(name, 0) for name in ("events", "plans", "rounds_skipped")]
        rows.append([directory.name, *seconds, *counts, round(run.get("peak_memory_mib", 0.0))])
    return table(header, rows)
