"""Progress on standard error: simulated time, jobs done, time left."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

from tqdm import tqdm

from cluster_exp.sim.engine import OnProgress


def job_bar(label: str, total: int) -> "tqdm[NoReturn]":
    """A bar over jobs that ended; silent where standard error is no terminal, but for a line now and then."""
    terminal = sys.stderr.isatty()
    return tqdm(
        total=total,
        desc=label,
        unit="job",
        file=sys.stderr,
        mininterval=0.2 if terminal else 5.0,
        ascii=not terminal,
        ncols=None if terminal else 100,
        leave=True,
    )


@contextmanager
def progress_bar(label: str, total: int) -> Iterator[OnProgress]:
    """A `job_bar` that also says what time it is in the simulation.

    Yields a function of (simulated seconds, jobs ended).
    """
    with job_bar(label, total) as bar:

        def show(now_s: float, ended: int) -> None:
            bar.set_postfix_str(f"simulated {now_s:.0f} s", refresh=False)
            bar.update(ended - bar.n)

        yield show
