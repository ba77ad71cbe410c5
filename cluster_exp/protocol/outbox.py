"""A worker's reports on their way to the master: progress waits for company, everything else does not. No I/O."""

from collections.abc import Callable
from dataclasses import replace

from cluster_exp.protocol.messages import ReportBatch, ReportKind, TrainerReport


class Outbox:
    """Reports that no batch has carried yet, and the batch that is under way.

    It holds a final report, a start and at most one progress a launch, so the node's launches bound it.
    """

    def __init__(self, node: str, instance: str, on_urgent: Callable[[], None] = lambda: None) -> None:
        """`on_urgent` is called when something should not wait for the next interval."""
        self._node = node
        self._instance = instance
        self._on_urgent = on_urgent
        self._sequence = 0
        self._waiting: list[TrainerReport] = []
        self._progress: dict[tuple[str, int], TrainerReport] = {}
        self._measured: dict[tuple[str, int], TrainerReport] = {}
        self._under_way: ReportBatch | None = None
        self._held = False
        self._leaving = False
        self.left = False  # the master has taken the last batch

    @property
    def urgent(self) -> bool:
        """Whether something waits for the next batch that should not wait for the next interval."""
        return self._under_way is None and not self._held and bool(self._waiting or self._leaving)

    def hold(self) -> None:
        """Sends only heartbeats until `leave`: what trainers say is to come with the node's end."""
        self._held = True

    def leave(self) -> None:
        """The next new batch is the last one, with everything that was held."""
        self._held = False
        self._leaving = True
        self._on_urgent()

    def add(self, report: TrainerReport) -> None:
        """Takes a report; of a launch's progress only the latest is kept, its measurements add up."""
        key = (report.job_id, report.generation)
        if report.kind is ReportKind.MEASURED:
            former = self._measured.get(key)
            if former is not None and former.window is not None and report.window is not None:
                report = replace(report, window=former.window.joined(report.window))
            self._measured[key] = report
            return
        if report.kind is ReportKind.PROGRESS:
            self._progress[key] = report
            return
        self._progress.pop(key, None)
        self._waiting.append(report)
        self._on_urgent()

    def batch(self) -> ReportBatch:
        """The batch to send now: the unacknowledged one unchanged, else a new one, possibly empty."""
        if self._under_way is None:
            self._sequence += 1
            if self._held:
                self._under_way = ReportBatch(self._node, self._instance, self._sequence, ())
                return self._under_way
            reports = (*self._progress.values(), *self._measured.values(), *self._waiting)
            self._under_way = ReportBatch(self._node, self._instance, self._sequence, reports, self._leaving)
            self._waiting, self._progress, self._measured = [], {}, {}
        return self._under_way

    def acknowledged(self, sequence: int) -> None:
        """The master has taken all batches up to this one."""
        if self._under_way is not None and self._under_way.sequence <= sequence:
            self.left = self._under_way.leaving
            self._under_way = None
