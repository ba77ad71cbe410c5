"""From trainers' own times to the core's event."""

from collections.abc import Iterable, Iterator

from cluster_exp.domain.events import Measured
from cluster_exp.protocol.messages import TrainerReport


def measurements(reports: Iterable[TrainerReport], now_s: float, time_scale: float) -> Iterator[Measured]:
    """The measurements among a node's reports, in run seconds of which `time_scale` pass in one wall second."""
    for report in reports:
        window = report.window
        if window is not None:
            yield Measured(
                now_s,
                report.job_id,
                report.generation,
                window.iterations,
                window.mean(time_scale),
                window.turns,
                window.gpu_memory_mib,
            )
