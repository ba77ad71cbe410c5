"""Jobs as their nodes report them: the parts of a job that spans nodes become one job's events. No I/O."""

from dataclasses import dataclass, field

from cluster_exp.domain.actions import Launch
from cluster_exp.domain.events import Event, JobFailed, JobFinished, JobPreempted, JobStarted, Progressed
from cluster_exp.protocol.messages import FINAL_REPORTS, PreemptOrder, ReportKind, TrainerReport
from cluster_exp.protocol.retries import Retries

_PASSING = frozenset({ReportKind.PROGRESS, ReportKind.MEASURED})  # what they say is said again


@dataclass(slots=True)
class Gang:
    """The parts of one launch, one a node. Iterations are those of the whole job, earlier launches included."""

    generation: int
    iterations: int
    real: bool  # its trainers are programs, which have checkpoints
    done: dict[int, int]  # by node
    saved: dict[int, int]  # of the newest checkpoint, by node
    starting: set[int]  # nodes that have not reported a start
    present: set[int]  # nodes where it has not left
    stopping: bool = False  # its parts were told to stop
    failures: list[str] = field(default_factory=list)

    @property
    def remaining(self) -> int:
        """Iterations that its slowest part still has to do."""
        return self.iterations - min(self.done.values())

    @property
    def unsaved(self) -> int:
        """Iterations still to do from the newest checkpoint that all parts have."""
        return self.iterations - min(self.saved.values())


@dataclass(slots=True)
class Outcome:
    """What reports lead to."""

    events: list[Event] = field(default_factory=list)
    orders: list[tuple[int, PreemptOrder]] = field(default_factory=list)  # (node id, order)
    kept: list[TrainerReport] = field(default_factory=list)  # reports that changed more than progress
    stale: list[TrainerReport] = field(default_factory=list)  # reports of launches that count no longer


class Gangs:
    """All launches whose parts have not all left."""

    def __init__(self, retries: int = 0, retry_wait_s: float = 0.0, time_scale: float = 1.0) -> None:
        """No launch is there.

        Args:
            retries: how often a job that fails is started again from its checkpoint.
            retry_wait_s: wall time before the first retry; later ones wait longer (`protocol.retries`).
            time_scale: simulated seconds per wall second.
        """
        self._time_scale = time_scale
        self._gangs: dict[str, Gang] = {}
        self._retries = Retries(retries, retry_wait_s)

    def launch(self, action: Launch, iterations_done: int) -> None:
        """Notes a launch; reports of the job's earlier launches count no longer."""
        nodes = [share.node for share in action.allotment.shares]
        self._gangs[action.job.job_id] = Gang(
            action.generation,
            action.job.iterations,
            bool(action.job.command),
            dict.fromkeys(nodes, iterations_done),
            dict.fromkeys(nodes, iterations_done),
            set(nodes),
            set(nodes),
        )

    def stop(self, job_id: str, generation: int) -> list[tuple[int, PreemptOrder]]:
        """The orders that stop a launch, one a node; none when it is not there."""
        gang = self._gangs.get(job_id)
        if gang is None or gang.generation != generation:
            return []
        gang.stopping = True
        return [(node, PreemptOrder(job_id, generation)) for node in sorted(gang.present)]

    def ended(self, job_id: str) -> None:
        """Forgets a job that is over."""
        self._retries.forget(job_id)

    def present(self, job_id: str) -> Gang | None:
        """The launch of a job whose parts have not all left."""
        return self._gangs.get(job_id)

    def runs(self, job_id: str, generation: int) -> bool:
        """Whether some part of this launch has not left."""
        gang = self._gangs.get(job_id)
        return gang is not None and gang.generation == generation

    @property
    def keys(self) -> list[tuple[str, int]]:
        """Job and generation of every launch with a part that has not left."""
        return [(job_id, gang.generation) for job_id, gang in self._gangs.items()]

    def report(self, node: int, reports: tuple[TrainerReport, ...], now_s: float) -> Outcome:
        """What a node's reports mean; those of strangers and of earlier launches mean nothing.

        A trainer that runs although its launch counts no longer is told to stop.
        """
        outcome = Outcome()
        progressed: dict[str, float] = {}
        for report in reports:
            gang = self._gangs.get(report.job_id)
            if gang is None or gang.generation != report.generation or node not in gang.present:
                outcome.stale.append(report)
                if report.kind not in FINAL_REPORTS:
                    outcome.orders.append((node, PreemptOrder(report.job_id, report.generation)))
                continue
            saved = gang.saved[node]
            gang.done[node] = max(gang.done[node], min(report.iterations_done, gang.iterations))
            gang.saved[node] = max(saved, min(report.saved, gang.done[node]))
            progressed[report.job_id] = float(gang.remaining)
            if report.kind not in _PASSING or (gang.real and gang.saved[node] > saved):
                outcome.kept.append(report)
            if report.kind is ReportKind.STARTED and node in gang.starting:
                gang.starting.discard(node)
                if not gang.starting:
                    outcome.events.append(JobStarted(now_s, report.job_id, gang.generation))
            elif report.kind in FINAL_REPORTS:
                self._part_left(node, report, gang, outcome, now_s)
        if progressed:
            event = Progressed(now_s, tuple(progressed), tuple(progressed.values()))
            outcome.events.insert(0, event)
        return outcome

    def lose(self, node: int, now_s: float) -> Outcome:
        """Forgets every launch with a part on a lost node.

        The jobs go back to their checkpoints; the orders stop their other parts.
        """
        outcome = Outcome()
        back: dict[str, float] = {}
        for job_id, gang in list(self._gangs.items()):
            if node in gang.done:
                outcome.orders += [other for other in self.stop(job_id, gang.generation) if other[0] != node]
                back[job_id] = float(gang.unsaved)
                del self._gangs[job_id]
        if back:
            outcome.events.append(Progressed(now_s, tuple(back), tuple(back.values())))
        return outcome

    def _part_left(self, node: int, report: TrainerReport, gang: Gang, outcome: Outcome, now_s: float) -> None:
        gang.present.discard(node)
        if report.kind is ReportKind.FINISHED:
            gang.done[node] = gang.iterations
        if report.kind is ReportKind.FAILED:
            gang.failures.append(report.reason)
        if not gang.present:
            del self._gangs[report.job_id]
            outcome.events.append(self._end_of(gang, report.job_id, now_s))
        elif report.kind is not ReportKind.FINISHED and not gang.stopping:
            outcome.orders += self.stop(report.job_id, gang.generation)

    def _end_of(self, gang: Gang, job_id: str, now_s: float) -> Event:
        if gang.failures:
            again = self._retries.failed(job_id)
            if again is None:
                return JobFailed(now_s, job_id, gang.generation, self._retries.last_words(gang.failures[0]))
            reason, wait_s = f"{again.words}: {gang.failures[0]}", again.wait_s * self._time_scale
            return JobPreempted(now_s, job_id, gang.generation, float(gang.unsaved), reason, wait_s)
        if gang.remaining == 0:
            return JobFinished(now_s, job_id, gang.generation)
        return JobPreempted(now_s, job_id, gang.generation, float(gang.unsaved))
