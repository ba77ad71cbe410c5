"""A simulated master: the controller that the runtime drives over gRPC. It can be killed at any point of its work."""

import random
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from cluster_exp.core.recorder import Core, NoRecorder
from cluster_exp.domain.actions import Action
from cluster_exp.domain.events import Event
from cluster_exp.domain.job import JobSpec
from cluster_exp.protocol.controller import Controller, Rules, sum_of
from cluster_exp.protocol.lease_checks import LeaseChecks
from cluster_exp.protocol.log import Happened, Note, Row
from cluster_exp.protocol.messages import Endpoint, Registration, ReportBatch
from cluster_exp.protocol.outgoing import Delivery
from cluster_exp.protocol.refusal import Refused
from cluster_exp.sim.faults.network import Agenda, Network
from cluster_exp.sim.faults.worker import SimulatedWorker

_LOOK_S = 0.5  # between looks at the clock
_ATTEMPTS = 4
_DEADLINE_S = 5.0
_FIRST_WAIT_S = 0.1
_MEETING = Endpoint("torch", "10.0.0.1", 1)
OnSafe = Callable[[Event, Sequence[Action]], None]


class Killed(Exception):
    """The master dies here."""


class MemoryLog:
    """A log on a disk that outlives the master (`protocol.log.Log`)."""

    def __init__(self, on_safe: OnSafe) -> None:
        """`on_safe` is told every event that is safe, once."""
        self.rows: list[Row] = []
        self._added: list[tuple[Row, Sequence[Action]]] = []
        self._on_safe = on_safe

    def note(self, note: Note) -> None:
        """Adds a note."""
        self._added.append((note, ()))

    def record(self, event: Event, actions: Sequence[Action]) -> None:
        """Adds an event."""
        self._added.append((Happened(event, sum_of(actions)), actions))

    def commit(self) -> None:
        """Makes what was added safe."""
        added, self._added = self._added, []
        for row, actions in added:
            self.rows.append(row)
            if isinstance(row, Happened):
                self._on_safe(row.event, actions)

    def forget(self) -> None:
        """The master is dead: what was not committed never was."""
        self._added.clear()


class SimulatedLinks:
    """Orders to the workers, in order; calls are repeated a few times (`protocol.outgoing.Outgoing`)."""

    def __init__(
        self,
        agenda: Agenda,
        network: Network,
        workers: Mapping[int, SimulatedWorker],
        refused: Callable[[Delivery, str], None],
        silent: Callable[[int], None],
    ) -> None:
        """`refused` and `silent` are told what did not work."""
        self._agenda, self._network, self._workers = agenda, network, workers
        self._refused, self._silent = refused, silent
        self._queues: dict[int, deque[Delivery]] = {}
        self._under_way: dict[int, list[Delivery]] = {}
        self._held: list[Delivery] = []
        self._heard: set[int] = set()
        self._instances: dict[int, str] = {}
        self.dead = False

    def connect(self, node: int, registration: Registration) -> None:
        """A worker is there."""
        self.disconnect(node)
        self._queues[node] = deque()
        self._instances[node] = registration.instance

    def heard(self, node: int) -> None:
        """Its orders may go."""
        self._heard.add(node)
        self._go_on()

    def disconnect(self, node: int) -> None:
        """A worker is lost."""
        for delivery in (*self._under_way.pop(node, ()), *self._queues.pop(node, ())):
            delivery.over = True
        self._heard.discard(node)

    def send(self, delivery: Delivery) -> None:
        """Holds an order until the next flush."""
        self._held.append(delivery)

    def flush(self) -> None:
        """Lets the orders go that were held."""
        held, self._held = self._held, []
        for delivery in held:
            if delivery.node in self._queues:
                self._queues[delivery.node].append(delivery)
            else:
                delivery.over = True
        self._go_on()

    def _go_on(self) -> None:
        for node, queue in self._queues.items():
            if node in self._under_way or node not in self._heard:
                continue
            ready: list[Delivery] = []
            while queue and queue[0].ready:
                ready.append(queue.popleft())
            if ready:
                self._under_way[node] = ready
                self._call(node, ready, queue, 1)

    def _call(self, node: int, ready: list[Delivery], queue: deque[Delivery], attempt: int) -> None:
        def present() -> bool:
            return not self.dead and self._queues.get(node) is queue

        def answered(refused: Sequence[tuple[int, str]]) -> None:
            if present():
                for place, reason in refused:
                    self._refused(ready[place], reason)
                self._over(node, ready)

        def silence() -> None:
            if not present():
                return
            if attempt < _ATTEMPTS:
                wait_s = _FIRST_WAIT_S * 2 ** (attempt - 1)
                self._agenda.after(wait_s, lambda: self._call(node, ready, queue, attempt + 1) if present() else None)
            else:
                self._over(node, ready)
                self._silent(node)

        instance = self._instances[node]
        orders, worker = [delivery.order for delivery in ready], self._workers[node]
        self._network.call(
            node, lambda answer: worker.carry(instance, orders, answer), answered, silence, _DEADLINE_S
        )

    def _over(self, node: int, ready: Sequence[Delivery]) -> None:
        for delivery in ready:
            delivery.over = True
            delivery.endpoint = _MEETING
        self._under_way.pop(node, None)
        self._go_on()


class SimulatedMaster:
    """Takes calls while it is up; after a kill it starts again from what its log holds."""

    def __init__(
        self,
        agenda: Agenda,
        network: Network,
        rules: Rules,
        make_core: Callable[[], Core],
        jobs: Sequence[JobSpec],
        on_safe: OnSafe,
        draw: random.Random,
        injected: Counter[str],
    ) -> None:
        """`jobs` arrive by themselves, besides those that users submit."""
        self._agenda, self._network, self._rules, self._make_core, self._jobs = (
            agenda,
            network,
            rules,
            make_core,
            jobs,
        )
        self._draw, self._injected = draw, injected
        self.workers: dict[int, SimulatedWorker] = {}
        self.log = MemoryLog(on_safe)
        self.core: Core | None = None
        self.controller: Controller | None = None  # None while it is dead
        self._links: SimulatedLinks | None = None
        self._answers: list[Callable[[], None]] = []
        self.worked = 0  # turns of its loop
        self._life = 0
        self._ahead_s = 0.0  # what its clock is ahead of time
        self._kill_in: int | None = None  # points of its work until it is killed
        self._lease_checks = LeaseChecks(rules.lease_s, _LOOK_S)

    # Its life

    def come_up(self) -> None:
        """Its process starts, with an empty log or with that of the one before."""
        self._life += 1
        self._links = SimulatedLinks(
            self._agenda,
            self._network,
            self.workers,
            lambda delivery, reason: self._work(lambda at: self._refused(delivery, reason, at)),
            lambda node: self._work(lambda at: self._up.lose(node, "no answer", at)),
        )
        self.core = self._make_core()
        self.controller = Controller(
            self._rules, self.core, NoRecorder(), self.log, self._links, lambda jobs, offsets: 1
        )
        self._lease_checks = LeaseChecks(self._rules.lease_s, _LOOK_S)
        self.controller.resume(list(self.log.rows), self._now_s)
        self.controller.expect(self._jobs)
        self.controller.begin()
        self._work(lambda at_s: None)
        self._look(self._life)

    def kill_soon(self, points: int) -> None:
        """It is killed after so many points of its work: before a commit, after it, after orders and answers left."""
        self._kill_in = points

    def jump(self, seconds: float) -> None:
        """Its clock jumps ahead."""
        self._ahead_s += seconds

    def call(
        self,
        node: int,
        message: Any,
        on_answer: Callable[[Any], None],
        on_silence: Callable[[], None],
        deadline_s: float,
    ) -> None:
        """A worker's call."""
        self._network.call(node, lambda answer: self._take(message, answer), on_answer, on_silence, deadline_s)

    def submit(
        self,
        request_id: str,
        jobs: tuple[JobSpec, ...],
        on_answer: Callable[[Any], None],
        on_silence: Callable[[], None],
    ) -> None:
        """A user's call, over a network that is never cut."""
        self._network.call(
            -1, lambda answer: self._take((request_id, jobs), answer), on_answer, on_silence, _DEADLINE_S
        )

    @property
    def _up(self) -> Controller:
        assert self.controller is not None
        return self.controller

    @property
    def _now_s(self) -> float:
        return self._agenda.now_s + self._ahead_s

    # Its work

    def _take(self, message: Any, answer: Callable[[Any], None]) -> None:
        def work(at_s: float) -> None:
            try:
                reply: Any = self._answer_to(message, at_s)
            except Refused as refused:
                reply = refused
            self._answers.append(lambda: answer(reply))

        self._work(work)

    def _answer_to(self, message: Any, at_s: float) -> Any:
        match message:
            case Registration():
                return self._up.register(message, at_s, self._now_s)
            case ReportBatch():
                return self._up.report(message, at_s, self._now_s)
            case (str(request_id), jobs):
                return self._up.submit(request_id, jobs, at_s)
        raise TypeError(f"no such call: {message}")

    def _refused(self, delivery: Delivery, reason: str, at_s: float) -> None:
        self._up.order_refused(delivery.node, delivery.order, reason, at_s)

    def _work(self, what: Callable[[float], None]) -> None:
        """One turn of its loop; it may be killed in the middle."""
        if self.controller is None:
            return
        self.worked += 1
        try:
            what(self._now_s)
            self._up.tell_core_progress()
            self._settle()
            if self._up.plan_due(self._now_s):
                self._up.plan(self._now_s)()
                self._settle()
        except Killed:
            self._die()

    def _settle(self) -> None:
        self._point()
        self.log.commit()
        self._point()
        if self._links is not None:
            self._links.flush()
        answers, self._answers = self._answers, []
        for answer in answers:
            answer()
        self._point()

    def _point(self) -> None:
        if self._kill_in is not None:
            self._kill_in -= 1
            if self._kill_in < 0:
                self._kill_in = None
                raise Killed

    def _die(self) -> None:
        self._injected["masters killed"] += 1
        self._life += 1
        self.controller = None
        if self._links is not None:
            self._links.dead = True
        self._answers.clear()
        self.log.forget()
        self._agenda.after(self._draw.choice((0.2, 3.0, 3.0 * self._rules.lease_s)), self.come_up)

    def _look(self, life: int) -> None:
        if life != self._life:
            return

        def look(at_s: float) -> None:
            self._up.arrive(at_s)
            if self._lease_checks.due(self._now_s):
                self._up.check_leases(at_s, self._now_s)

        self._work(look)
        self._agenda.after(_LOOK_S, lambda: self._look(life))
