"""Progress on standard error: simulated time, jobs done, time left."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

from tqdm import tqdm

from cluster_exp.sim.engine import OnProgress


def job_bar(label: str, total: int, ended: int = 0) -> "tqdm[NoReturn]":
    """A bar over jobs, of which `ended` had ended before.

    Where standard error is no terminal, it is silent but for a line now and then.
    """
    terminal = sys.stderr.isatty()
    return tqdm(
        total=total,
        initial=ended,
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
