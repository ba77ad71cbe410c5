"""Progress on standard error: simulated time, jobs done, time left."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

from tqdm import tqdm

from cluster_exp.sim.engine import OnProgress

_DAY_S = 86_400.0


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
    """A `job_bar` that also says what time it is in the simulation, and how fast it goes.

    Yields a function of (simulated seconds, jobs ended, events handled; 0 = not counted).
    """
    began_s = time.monotonic()
    with job_bar(label, total) as bar:

        def show(now_s: float, ended: int, events: int) -> None:
            speed = f", {events / max(1e-9, time.monotonic() - began_s):.0f} events/s" if events else ""
            bar.set_postfix_str(f"simulated {span(now_s)}{speed}", refresh=False)
            bar.update(ended - bar.n)

        yield show


def span(seconds: float) -> str:
    """A time in seconds, or in days from two days on."""
    return f"{seconds:.0f} s" if seconds < 2 * _DAY_S else f"{seconds / _DAY_S:.1f} days"
