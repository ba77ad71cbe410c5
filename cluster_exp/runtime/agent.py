"""One node's trainers and turns together: what a worker does with the master's orders."""

import asyncio
import shutil
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from cluster_exp.domain.errors import InputError
from cluster_exp.protocol.messages import (
    Endpoint,
    LaunchOrder,
    Order,
    PreemptOrder,
    ReportKind,
    TrainerReport,
    TrainerStatus,
    TurnsOrder,
    Welcome,
)
from cluster_exp.protocol.refusal import RefusalKind, Refused
from cluster_exp.runtime.commands import TrainerPlace, command_for, places_of_job
from cluster_exp.runtime.launchers import JobLauncher, LaunchKey
from cluster_exp.runtime.rendezvous import LOOPBACK, Rendezvous, open_rendezvous
from cluster_exp.runtime.security.access import Access
from cluster_exp.runtime.security.channels import turns_context
from cluster_exp.runtime.trainers import Trainers
from cluster_exp.runtime.turn_server import (
    TrainerDone,
    TrainerEvent,
    TrainerProgress,
    TrainerSaved,
    TrainerStarted,
    TrainerStopped,
    TurnServer,
)

_KINDS: dict[type, ReportKind] = {
    TrainerStarted: ReportKind.STARTED,
    TrainerProgress: ReportKind.PROGRESS,
    TrainerStopped: ReportKind.PREEMPTED,
    TrainerDone: ReportKind.FINISHED,
}

MakeLauncher = Callable[[Callable[[TrainerEvent], None]], JobLauncher]


class NodeAgent:
    """Launches and stops trainers and keeps the turn server informed. Used from one event loop."""

    def __init__(
        self,
        make_launcher: MakeLauncher,
        emit: Callable[[TrainerReport], None],
        host: str,
        grace_s: float,
        log_dir: Path,
        scratch: Path | None = None,
        access: Access | None = None,
    ) -> None:
        """Listens from `start` on; on a `host` that others reach only with `access`.

        The turn server's socket lies in a new folder under `scratch`; the last agent that leaves `scratch` empty
        removes it. `make_launcher` is told where trainers that live in this event loop report what others say over
        their sockets. Stage logs go to `log_dir`.
        """
        self._host = host
        self._log_dir = log_dir
        self._meetings: dict[LaunchKey, Rendezvous] = {}  # that this node opened
        self._emit = emit
        self._scratch = scratch
        self._trainers = Trainers(make_launcher(self.hear), self._pass_on, grace_s)
        self._folder = Path(tempfile.mkdtemp(prefix="cluster-exp-", dir=scratch))
        self._tls_dir = str(access.tls_dir.resolve()) if access else ""
        tls = turns_context(access) if access else None
        self._turns = TurnServer(self._folder / "turns", self._on_event, host, tls=tls)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._welcome: Welcome | None = None
        self._draining = False

    @property
    def turns_address(self) -> str:
        """Where trainers of other nodes find the turn server, as host:port."""
        return self._turns.tcp_address

    @property
    def turns_key(self) -> str:
        """The key from which the tokens of trainers of other nodes derive."""
        return self._turns.key

    def start(self) -> None:
        """Begins to serve trainers; call it inside the event loop. Raises OSError when it cannot listen."""
        self._loop = asyncio.get_running_loop()
        self._turns.start()

    def welcome(self, welcome: Welcome) -> None:
        """Takes what the master said when this node registered."""
        self._welcome = welcome
        self._turns.use(welcome.turns, welcome.limits.stage_s)
        self._trainers.hang_s = welcome.limits.hang_s

    def carry_out(self, order: Order) -> Endpoint | None:
        """Does what the master asks for; returns where the ranks of a launch meet, if this node opened it.

        Raises:
            Refused: a launch that cannot be.
        """
        match order:
            case LaunchOrder():
                return self.launch(order)
            case PreemptOrder():
                self.preempt(order)
            case TurnsOrder():
                self.set_turns(order)
        return None

    def launch(self, order: LaunchOrder) -> Endpoint | None:
        """Starts this node's part of a job; returns where its ranks meet, if this node opened it.

        Raises:
            Refused: the node has no part, or it cannot be started.
        """
        if self._welcome is None:
            raise Refused(RefusalKind.PRECONDITION, "this worker is not registered")
        node = self._welcome.node_id
        mine = [i for i, share in enumerate(order.shares) if share.node == node]
        if not mine:
            raise Refused(RefusalKind.INVALID, f"job {order.job.job_id} has no part on node {node}")
        key = (order.job.job_id, order.generation)
        if self._draining:
            return None  # it goes back to the queue when this node is gone
        if not self._trainers.is_new(order):
            meeting = self._meetings.get(key)
            return meeting.endpoint if meeting else None
        arbiter = self._turns.address
        if order.turns_address != self._turns.tcp_address:
            arbiter = f"{'tls' if self._tls_dir else 'tcp'}:{order.turns_address}"
        host = self._host if len(order.shares) > 1 else LOOPBACK
        place = TrainerPlace(mine[0], self._turns.address, arbiter, host, self._log_dir, self._tls_dir)
        try:
            endpoint = order.endpoint or self._open_meeting(order, place, self._welcome.comm)
            command = command_for(order, place, self._welcome, endpoint)
            self._turns.expect(*key)
            self._trainers.launch(order, command)
        except (InputError, OSError) as error:
            self._close_meeting(key)
            raise Refused(RefusalKind.PRECONDITION, str(error)) from error
        except Refused:
            self._close_meeting(key)
            raise
        return endpoint if order.endpoint is None else None

    def preempt(self, order: PreemptOrder) -> None:
        """Stops a launch at its next boundary; one that is not here is passed over."""
        if self._trainers.stop(order):
            self._turns.stop_job(order.job_id, order.generation)

    def set_turns(self, order: TurnsOrder) -> None:
        """Sets a group's members and order."""
        group = order.group
        members = [((member.job_id, member.generation), member.offset) for member in group.members]
        self._turns.set_group(group.group_id, group.version, members, order.iterations_per_turn)

    def hear(self, event: TrainerEvent) -> None:
        """Takes a trainer's word; call it in the event loop."""
        if isinstance(event, TrainerSaved):
            self._trainers.saved(event.job_id, event.generation, event.rank, event.iterations_done)
            return
        self._trainers.heard(event.job_id, event.generation, _KINDS[type(event)], event.iterations_done)
        if isinstance(event, TrainerProgress) and event.window is not None:
            who = (event.job_id, event.generation)
            self._emit(TrainerReport(*who, ReportKind.MEASURED, event.iterations_done, window=event.window))

    def statuses(self) -> tuple[TrainerStatus, ...]:
        """All trainers of the node."""
        return self._trainers.statuses()

    async def drain(self) -> None:
        """Starts nothing more, and has every trainer leave at the end of its iteration; returns when they have."""
        self._draining = True
        for status in self._trainers.statuses():
            self.preempt(PreemptOrder(status.job_id, status.generation))
        await self._trainers.all_left()

    async def stop_all(self) -> None:
        """Ends all trainers at once; nothing is reported."""
        for status in self._trainers.statuses():
            self._turns.forget_job(status.job_id, status.generation)
        await self._trainers.stop_all()
        for key in list(self._meetings):
            self._close_meeting(key)

    async def close(self) -> None:
        """Ends all trainers and stops serving."""
        await self.stop_all()
        self._turns.close()
        shutil.rmtree(self._folder, ignore_errors=True)
        if self._scratch is not None:
            with suppress(OSError):  # other workers of the run are still there
                self._scratch.rmdir()

    def _pass_on(self, report: TrainerReport) -> None:
        if report.kind in (ReportKind.FINISHED, ReportKind.PREEMPTED, ReportKind.FAILED):
            self._turns.forget_job(report.job_id, report.generation)
            self._close_meeting((report.job_id, report.generation))
        self._emit(report)

    def _open_meeting(self, order: LaunchOrder, place: TrainerPlace, comm: str) -> Endpoint | None:
        """Opens the place where the ranks of a launch meet, if they need one."""
        if not order.needs_meeting:
            return None
        if place.share != 0:
            raise Refused(RefusalKind.INVALID, f"job {order.job.job_id}: it is not said where its ranks meet")
        meeting = open_rendezvous(comm, places_of_job(order), place.host)
        self._meetings[(order.job.job_id, order.generation)] = meeting
        return meeting.endpoint

    def _close_meeting(self, key: LaunchKey) -> None:
        meeting = self._meetings.pop(key, None)
        if meeting is not None:
            meeting.stop()

    def _on_event(self, event: TrainerEvent) -> None:
        """Called in the turn server's thread."""
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop is closed: nobody waits for it any more
                self._loop.call_soon_threadsafe(self.hear, event)
