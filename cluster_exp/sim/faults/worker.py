"""A simulated worker: the protocol of a real one, and trainers that only let time pass."""

import math
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from cluster_exp.domain.cluster import NodeSpec
from cluster_exp.domain.measure import StageWindow
from cluster_exp.domain.models import SpeedModel
from cluster_exp.domain.resources import MAX_GROUP_SIZE
from cluster_exp.protocol.launches import Launches
from cluster_exp.protocol.messages import (
    PROTOCOL_VERSION,
    LaunchOrder,
    Order,
    PreemptOrder,
    Registration,
    ReportKind,
    TrainerReport,
)
from cluster_exp.protocol.outbox import Outbox
from cluster_exp.protocol.refusal import RefusalKind, Refused
from cluster_exp.protocol.turn_token import DIGITS
from cluster_exp.sim.faults.network import Agenda, Network
from cluster_exp.sim.faults.truth import LaunchKey, Truth
from cluster_exp.sim.performance import StartCost

START_S = 0.5  # from a launch to the trainer's first iteration
SAVED_EVERY = 5  # iterations between the checkpoints of a real job
_DEADLINE_S = 5.0
_TURNS_KEY = "0" * DIGITS  # nobody takes turns here
_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.5, 2.0
_HANG_S = 30.0
_GRACE_S = 30.0

Send = Callable[[int, Any, Callable[[Any], None], Callable[[], None], float], None]


@dataclass(eq=False, slots=True)
class Trainer:
    """A part of a launch on its node."""

    order: LaunchOrder
    iterations: float  # of the whole job, up to `since_s`
    saved: int
    since_s: float
    timed: int  # iterations of the whole job, up to which times were reported
    iteration_s: float = math.inf  # now
    running: bool = False
    stopping: bool = False
    hangs: bool = False
    check: int = 0  # counts its changes: what was entered for an earlier one is void

    @property
    def key(self) -> LaunchKey:
        """Job and generation."""
        return self.order.job.job_id, self.order.generation


class SimulatedWorker:
    """One node: registers, reports, carries out orders; can be killed, slowed, and have trainers that crash."""

    def __init__(
        self,
        node: int,
        spec: NodeSpec,
        agenda: Agenda,
        network: Network,
        send: Send,
        truth: Truth,
        speed: SpeedModel,
        start_cost: StartCost,
        draw: random.Random,
        injected: Counter[str],
    ) -> None:
        """`send` makes a call to the master: (node, message, on answer, on silence, deadline)."""
        self.node = node
        self._spec, self._agenda, self._network, self._send = spec, agenda, network, send
        self._truth, self._speed, self._draw, self._injected = truth, speed, draw, injected
        self._start_cost = start_cost
        self.trainers: dict[str, Trainer] = {}
        self.slowness = 1.0  # iterations take so many times as long
        self._launches = Launches()
        self._life = 0  # counts its processes and registrations: what an earlier one expects is void
        self._instance = ""
        self._outbox = Outbox("", "")
        self._on_the_way = False
        self._alive = self._registered = False
        self.come_up()

    # Its life

    def come_up(self) -> None:
        """The worker's process starts."""
        self._alive = True
        self._enter_anew()

    def die(self, for_s: float) -> None:
        """It is killed, its trainers with it, and comes back after a while."""
        if not self._alive:
            return
        self._alive = False
        self._life += 1
        self._end_trainers()
        self._agenda.after(for_s, self.come_up)

    def _enter_anew(self) -> None:
        """Stops whatever it runs, then registers as a new worker."""
        self._life += 1
        self._end_trainers()
        self._launches.clear()
        self._instance = f"{self.node}.{self._life}"
        self._outbox = Outbox(self._spec.name, self._instance, self._urgent)
        self._on_the_way = self._registered = False
        self._register(_FIRST_WAIT_S)

    def _end_trainers(self) -> None:
        for trainer in self.trainers.values():
            trainer.check += 1
        self.trainers.clear()

    def _register(self, wait_s: float) -> None:
        life = self._life
        offer = Registration(
            PROTOCOL_VERSION,
            self._spec.name,
            self._instance,
            "10.0.0.1:1",
            "10.0.0.1:2",
            self._spec.num_gpu,
            turns_key=_TURNS_KEY,
        )

        def again() -> None:
            self._later(life, wait_s, lambda: self._register(min(2 * wait_s, _LONGEST_WAIT_S)))

        def answered(answer: Any) -> None:
            if life == self._life:
                if isinstance(answer, Refused):
                    again()
                else:
                    self._registered = True
                    self._report_regularly(life)

        self._send(self.node, offer, answered, again, _DEADLINE_S)

    def _later(self, life: int, delay_s: float, what: Callable[[], None]) -> None:
        self._agenda.after(delay_s, lambda: what() if life == self._life else None)

    # Reports

    def _report_regularly(self, life: int) -> None:
        self._report()
        self._later(life, self._network.spec.report, lambda: self._report_regularly(life))

    def _urgent(self) -> None:
        self._later(self._life, 0.0, self._report)

    def _report(self) -> None:
        if self._on_the_way:
            return
        self._on_the_way = True
        for trainer in self.trainers.values():
            if trainer.running and not trainer.hangs:
                self._advance(trainer)
                self._say(trainer, ReportKind.PROGRESS)
                self._measure(trainer)
        life = self._life
        self._send(
            self.node,
            self._outbox.batch(),
            lambda answer: self._acknowledged(answer) if life == self._life else None,
            lambda: self._unheard() if life == self._life else None,
            _DEADLINE_S,
        )

    def _acknowledged(self, answer: Any) -> None:
        self._on_the_way = False
        if not isinstance(answer, Refused):
            self._outbox.acknowledged(answer)
        elif answer.kind is RefusalKind.PRECONDITION:
            self._enter_anew()

    def _unheard(self) -> None:
        self._on_the_way = False
        self._report()

    def _say(self, trainer: Trainer, kind: ReportKind, reason: str = "") -> None:
        done = int(trainer.iterations)
        saved = trainer.saved if trainer.order.job.command else done
        self._outbox.add(TrainerReport(*trainer.key, kind, done, reason, saved))

    def _measure(self, trainer: Trainer) -> None:
        count = int(trainer.iterations) - trainer.timed
        if count <= 0:
            return
        trainer.timed += count
        self._truth.measure(trainer.order, count)
        profile = trainer.order.job.profile
        stages_s = (profile.storage_s, profile.cpu_s, profile.gpu_s, profile.network_s)
        scaled = (stages_s[0] * count, stages_s[1] * count, stages_s[2] * count, stages_s[3] * count)
        window = StageWindow(count, profile.iteration_s * count, count, scaled, False, None)
        self._outbox.add(TrainerReport(*trainer.key, ReportKind.MEASURED, int(trainer.iterations), window=window))

    # Orders

    def carry(self, instance: str, orders: Sequence[Order], answer: Callable[[Any], None]) -> None:
        """Carries out a call's orders; answers with (place, reason) of those that were refused."""
        if not self._alive or not self._registered or instance != self._instance:
            return  # nobody listens, or they are meant for an earlier registration
        refused: list[tuple[int, str]] = []
        for place, order in enumerate(orders):
            try:
                if isinstance(order, LaunchOrder):
                    self._launch(order)
                elif isinstance(order, PreemptOrder):
                    self._stop(order)
            except Refused as reason:
                refused.append((place, str(reason)))
        answer(refused)

    def _launch(self, order: LaunchOrder) -> None:
        job_id, generation = order.job.job_id, order.generation
        if not self._launches.is_new(job_id, generation):
            return
        former = self.trainers.pop(job_id, None)
        if former is not None:
            former.check += 1
        self._launches.note(job_id, generation)
        begins = self._truth.start(order, self.node, self._instance)
        trainer = Trainer(order, float(begins), begins, self._agenda.now_s, begins)
        self.trainers[job_id] = trainer
        self._change(trainer, self._start_cost(order.job), lambda: self._begin(trainer))

    def _begin(self, trainer: Trainer) -> None:
        trainer.running = True
        trainer.since_s = self._agenda.now_s
        self._say(trainer, ReportKind.STARTED)
        if trainer.stopping:
            self._leave(trainer, ReportKind.PREEMPTED)
            return
        self.settle_speeds()
        if trainer.order.job.job_id in self._truth.looping:
            self._agenda.after(self._draw.uniform(0.1, 3.0), partial(self._crash_if_there, trainer))

    def _crash_if_there(self, trainer: Trainer) -> None:
        if self.trainers.get(trainer.order.job.job_id) is trainer and not trainer.hangs:
            self._injected["trainers crashed"] += 1
            self._advance(trainer)
            self._break(trainer, "exit code 1")

    def _stop(self, order: PreemptOrder) -> None:
        trainer = self.trainers.get(order.job_id)
        if trainer is None or trainer.order.generation != order.generation or trainer.stopping:
            return
        trainer.stopping = True
        if not trainer.running:
            return
        self._advance(trainer)
        rest_s = (math.floor(trainer.iterations) + 1 - trainer.iterations) * trainer.iteration_s
        if trainer.hangs:
            rest_s = _GRACE_S  # then it is ended by force
        self._change(trainer, rest_s, lambda: self._at_boundary(trainer))

    def _at_boundary(self, trainer: Trainer) -> None:
        if not trainer.hangs:
            trainer.iterations = min(float(round(trainer.iterations + 0.5)), float(trainer.order.job.iterations))
            self._truth.did(trainer.order, self.node, int(trainer.iterations))
            if trainer.order.job.command:
                self._save(trainer, int(trainer.iterations))
        done = trainer.iterations >= trainer.order.job.iterations
        self._leave(trainer, ReportKind.FINISHED if done else ReportKind.PREEMPTED)

    # Trainers

    def settle_speeds(self) -> None:
        """Computes anew how fast trainers are, and when they are done: company came or left, or the node changed."""
        for trainer in self.trainers.values():
            if trainer.running and not trainer.stopping and not trainer.hangs:
                self._advance(trainer)
                trainer.iteration_s = self._alone_or_not_s(trainer) * self.slowness
                left = trainer.order.job.iterations - trainer.iterations
                self._change(trainer, max(0.0, left) * trainer.iteration_s, partial(self._finish, trainer))

    def crash(self) -> bool:
        """One of its trainers crashes; False when none runs."""
        running = [trainer for trainer in self.trainers.values() if trainer.running and not trainer.hangs]
        if not running:
            return False
        trainer = self._draw.choice(running)
        self._advance(trainer)
        self._break(trainer, "exit code 1")
        return True

    def hang(self) -> bool:
        """One of its trainers does nothing any more, which is noticed after a while; False when none runs."""
        running = [trainer for trainer in self.trainers.values() if trainer.running and not trainer.stopping]
        if not running:
            return False
        trainer = self._draw.choice(running)
        self._advance(trainer)
        trainer.hangs = True
        self._change(trainer, _HANG_S, lambda: self._break(trainer, "no iteration"))
        return True

    def _break(self, trainer: Trainer, reason: str) -> None:
        job = trainer.order.job.job_id
        self._truth.broken[job] = self._truth.broken.get(job, 0) + 1
        self._leave(trainer, ReportKind.FAILED, reason)

    def _finish(self, trainer: Trainer) -> None:
        trainer.iterations = float(trainer.order.job.iterations)
        self._truth.did(trainer.order, self.node, trainer.order.job.iterations)
        self._leave(trainer, ReportKind.FINISHED)

    def _leave(self, trainer: Trainer, kind: ReportKind, reason: str = "") -> None:
        trainer.check += 1
        self.trainers.pop(trainer.order.job.job_id, None)
        self._say(trainer, kind, reason)
        self.settle_speeds()

    def _advance(self, trainer: Trainer) -> None:
        """Lets a trainer's time pass up to now."""
        now_s, total = self._agenda.now_s, trainer.order.job.iterations
        if trainer.running and not trainer.hangs and trainer.iteration_s < math.inf:
            trainer.iterations = min(total, trainer.iterations + (now_s - trainer.since_s) / trainer.iteration_s)
            self._truth.did(trainer.order, self.node, int(trainer.iterations))
            if trainer.order.job.command:
                self._save(trainer, int(trainer.iterations) // SAVED_EVERY * SAVED_EVERY)
        trainer.since_s = now_s

    def _save(self, trainer: Trainer, iterations: int) -> None:
        if iterations > trainer.saved:
            trainer.saved = iterations
            self._truth.save(trainer.order, self.node, iterations)

    def _alone_or_not_s(self, trainer: Trainer) -> float:
        """Seconds of an iteration beside those that share its GPUs here."""
        mine = self._gpus(trainer)
        company = [other for other in self.trainers.values() if other.running and mine & self._gpus(other)]
        company.remove(trainer)
        together = [trainer, *company[: MAX_GROUP_SIZE - 1]]  # more only while strays of lost launches are there
        return self._speed.group([other.order.job.profile for other in together]).iteration_s[0]

    def _gpus(self, trainer: Trainer) -> set[int]:
        return {gpu for share in trainer.order.shares if share.node == self.node for gpu in share.gpus}

    def _change(self, trainer: Trainer, delay_s: float, then: Callable[[], None]) -> None:
        """Enters what becomes of a trainer; what was entered for it before is void."""
        trainer.check += 1
        check = trainer.check
        self._agenda.after(delay_s, lambda: then() if trainer.check == check else None)
