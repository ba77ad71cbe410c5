"""Python's cyclic garbage collector in a process that holds many objects for a long time."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_THRESHOLDS = (50_000, 20, 50)  # objects made before a collection of the youngest; of those before one of the next


@contextmanager
def rare_collections() -> Iterator[None]:
    """While the block runs, collections are rare: each walks all that lives, and what lives are jobs and calls.

    Garbage without cycles, which is nearly all, is freed at once as ever.
    """
    former = gc.get_threshold()
    gc.set_threshold(*_THRESHOLDS)
    try:
        yield
    finally:
        gc.set_threshold(*former)
