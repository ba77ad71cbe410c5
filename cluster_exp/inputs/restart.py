"""What a start or restart of a job costs."""

from collections.abc import Mapping
from pathlib import Path

from cluster_exp.inputs.stages import GPUS
from cluster_exp.inputs.table import Table
from cluster_exp.inputs.text import Span

DEFAULT_START_S = 10.0
_DATA = Path(__file__).parent / "data"
_COLUMNS = ("model_name", "num_gpu", "start_overhead")
_START = Span(0, 1e6, unit="s")


class RestartCosts:
    """Start overheads by model and number of GPUs."""

    def __init__(self, overhead_s: Mapping[tuple[str, int], float], default_s: float = DEFAULT_START_S) -> None:
        """Takes seconds by (model, GPUs), and the seconds of all other models."""
        self._default_s = default_s
        self._steps: dict[str, list[tuple[int, float]]] = {}
        for (model, num_gpu), seconds in sorted(overhead_s.items()):
            self._steps.setdefault(model, []).append((num_gpu, seconds))

    def start_s(self, model: str, num_gpu: int) -> float:
        """Seconds from a launch to the first iteration.

        Between two known numbers of GPUs the larger counts, above the largest the largest.
        """
        steps = self._steps.get(model)
        if steps is None:
            return self._default_s
        for known, seconds in steps:
            if num_gpu <= known:
                return seconds
        return steps[-1][1]


def read_restart_costs(path: str | Path) -> RestartCosts:
    """The start overheads of a CSV file: model_name, num_gpu, start_overhead (s).

    Raises:
        InputError: at the first unusable field.
    """
    table = Table(Path(path))
    table.check_columns(_COLUMNS, _COLUMNS)
    return RestartCosts(
        {
            (row.text("model_name"), row.integer("num_gpu", GPUS)): row.number("start_overhead", _START)
            for row in table
        }
    )


def default_restart_costs() -> RestartCosts:
    """The start overheads of the simulator published with Muri (SIGCOMM 2022); see data/README.md."""
    return read_restart_costs(_DATA / "start_overhead.csv")
