"""Columns of stage times, as traces and profile tables have them."""

from cluster_exp.inputs.table import Row, Table
from cluster_exp.inputs.text import Span

MAX_MS = 1e14  # about 3,000 years
POSITIVE_MS = Span(0, MAX_MS, above=True, unit="ms")
TIME_MS = Span(0, MAX_MS, unit="ms")
GPUS = Span(1, 1_000_000)
BATCH = Span(1, 1e9)

ITERATION_COLUMN = "iteration_time"
THREE_COLUMNS = ("resource_time_0", "resource_time_1", "resource_time_2")
FOUR_COLUMNS = ("storage_time", "cpu_time", "gpu_time", "network_time")
STAGE_COLUMNS = frozenset({ITERATION_COLUMN, *THREE_COLUMNS, *FOUR_COLUMNS})

Stages = tuple[float, float, float, float]  # seconds, by Resource


def stage_columns(table: Table) -> tuple[str, ...]:
    """The table's three or four columns of stage times, or none. Raises InputError when some are missing."""
    three = [name for name in THREE_COLUMNS if name in table.fields]
    four = [name for name in FOUR_COLUMNS if name in table.fields]
    if three and four:
        message = f"columns {three[0]} and {four[0]} exclude each other; give one kind"
        raise table.header_error(table.fields[four[0]], message)
    columns = THREE_COLUMNS if three else FOUR_COLUMNS if four else ()
    table.check_columns(columns, ())
    return columns


def read_stages(row: Row, columns: tuple[str, ...]) -> Stages | None:
    """Stage times in seconds, or None where the table or the row has none.

    Three times map to storage 0, cpu, gpu, network. Raises InputError at the first unusable field, when only
    some are given, and when all are zero.
    """
    if not any(map(row.text, columns)):
        return None
    times = [row.number(column, TIME_MS) / 1000 for column in columns]
    if not any(times):
        raise row.error(columns[0], f"{columns[0]}: all stage times are 0; at least one must be above 0")
    if len(times) == len(THREE_COLUMNS):
        times.insert(0, 0.0)
    storage_s, cpu_s, gpu_s, network_s = times
    return storage_s, cpu_s, gpu_s, network_s
