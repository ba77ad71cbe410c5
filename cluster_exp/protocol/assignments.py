"""From the core's actions to orders: which worker gets which order, and what has to be known before. No I/O."""

import math
from collections.abc import Callable, Mapping, Sequence

from cluster_exp.domain.actions import Launch, Preempt, SetTurns
from cluster_exp.domain.events import Event
from cluster_exp.domain.job import JobSpec
from cluster_exp.protocol.gangs import Gangs, Outcome
from cluster_exp.protocol.messages import (
    LaunchOrder,
    Order,
    PreemptOrder,
    Registration,
    TrainerReport,
    TurnsOrder,
)
from cluster_exp.protocol.outgoing import Delivery, Outgoing
from cluster_exp.protocol.turn_token import turn_token

IterationsPerTurn = Callable[[Sequence[JobSpec], Sequence[int]], int]  # of a group's jobs with their offsets


class Assignments:
    """Groups and launches as the workers carry them out."""

    def __init__(
        self, specs: Mapping[str, JobSpec], gangs: Gangs, outgoing: Outgoing, per_turn: IterationsPerTurn
    ) -> None:
        """`specs` are the jobs by id, kept by the caller."""
        self.gangs = gangs
        self._specs = specs
        self._outgoing = outgoing
        self._per_turn = per_turn
        self._workers: dict[int, Registration] = {}
        self._groups: dict[int, tuple[TurnsOrder, Delivery | None]] = {}
        self._group_of: dict[str, int] = {}
        self._jobs_of: dict[int, set[str]] = {}
        self._launches: dict[str, Launch] = {}  # of jobs with a part that has not left
        self._silent = False

    def connect(self, node: int, registration: Registration) -> None:
        """Sends orders to a worker from now on, first those that stop whatever it runs and nobody here launched."""
        self._workers[node] = registration
        self._outgoing.connect(node, registration)
        for trainer in registration.trainers:
            self._send(node, PreemptOrder(trainer.job_id, trainer.generation))

    def heard(self, node: int) -> None:
        """A worker that is connected sent its first batch."""
        self._outgoing.heard(node)

    def disconnect(self, node: int, now_s: float) -> Sequence[Event]:
        """Gives up a lost worker, and stops the other parts of the jobs that ran there.

        Returns what the core has to know: these jobs go back to their checkpoints.
        """
        if self._workers.pop(node, None) is not None:
            self._outgoing.disconnect(node)
        outcome = self.gangs.lose(node, now_s)
        self._stop(outcome.orders)
        return outcome.events

    def report(self, node: int, reports: tuple[TrainerReport, ...], now_s: float) -> Outcome:
        """What a node's reports mean; the orders that follow are sent."""
        outcome = self.gangs.report(node, reports, now_s)
        self._stop(outcome.orders)
        return outcome

    def set_turns(self, action: SetTurns) -> None:
        """Tells the worker of a group's lead node who takes turns."""
        group = action.group
        jobs = [self._specs[member.job_id] for member in group.members]
        order = TurnsOrder(group, self._per_turn(jobs, [member.offset for member in group.members]))
        self._groups[group.group_id] = (order, self._send(group.lead_node, order))
        for member in group.members:
            if self._group_of.get(member.job_id) != group.group_id:
                self._leave_group(member.job_id)
            self._group_of[member.job_id] = group.group_id
            self._jobs_of.setdefault(group.group_id, set()).add(member.job_id)

    def launch(self, action: Launch) -> None:
        """Tells the worker of each of a job's nodes to start its part, once the turns of its group are known."""
        self._launches[action.job.job_id] = action
        done = _done(action)
        self.gangs.launch(action, done)
        self._send_launch(action, frozenset(share.node for share in action.allotment.shares))

    def preempt(self, action: Preempt) -> None:
        """Tells the worker of each of a job's nodes to stop its part."""
        self._stop(self.gangs.stop(action.job_id, action.generation))

    def ended(self, job_id: str) -> None:
        """Drops all that is known of a job that is over."""
        self.gangs.ended(job_id)
        self._launches.pop(job_id, None)
        self._leave_group(job_id)

    def drain(self) -> set[tuple[str, int]]:
        """Tells every launch to stop, and sends no order after that; returns (job id, generation) of each."""
        leaving = self.gangs.keys
        for job_id, generation in leaving:
            self._stop(self.gangs.stop(job_id, generation))
        self._silent = True
        return set(leaving)

    def silence(self) -> None:
        """Sends nothing until `resume`: what is told meanwhile was told to the workers before."""
        self._silent = True

    def resume(self, workers: Mapping[int, Registration]) -> None:
        """Connects to the workers that are there, and sends whatever of the present state they may not have heard.

        A worker takes an order that it had before for a repeated one.
        """
        self._silent = False
        for node, registration in workers.items():
            self._workers[node] = registration
            self._outgoing.connect(node, registration)
        for group_id, (order, _) in list(self._groups.items()):
            self._groups[group_id] = (order, self._send(order.group.lead_node, order))
        for job_id, action in list(self._launches.items()):
            gang = self.gangs.present(job_id)
            if gang is None or gang.generation != action.generation:
                del self._launches[job_id]
                continue
            self._send_launch(action, gang.present)
            if gang.stopping:
                self._stop(self.gangs.stop(job_id, gang.generation))

    def _send_launch(self, action: Launch, nodes: frozenset[int] | set[int]) -> None:
        turns, known = self._groups[self._group_of[action.job.job_id]]
        lead = turns.group.lead_node
        arbiter = self._workers.get(lead)
        order = LaunchOrder(
            action.job,
            action.generation,
            action.allotment.shares,
            _done(action),
            turns.iterations_per_turn,
            arbiter.turns_address if arbiter else "",
            turns_token=turn_token(arbiter.turns_key, action.job.job_id, action.generation) if arbiter else "",
        )
        meeting: Delivery | None = None
        for share in action.allotment.shares:
            if share.node in nodes:
                after = () if share.node == lead or known is None else (known,)  # the lead's orders come in order
                delivery = self._send(share.node, order, after, meeting)
                if meeting is None and order.needs_meeting:
                    meeting = delivery  # the first node opens it

    def _stop(self, orders: Sequence[tuple[int, PreemptOrder]]) -> None:
        for node, order in orders:
            self._send(node, order)

    def _send(
        self, node: int, order: Order, after: Sequence[Delivery] = (), meeting: Delivery | None = None
    ) -> Delivery | None:
        """Hands an order to the network; None when nobody is there to take it."""
        if self._silent or node not in self._workers:
            return None
        delivery = Delivery(node, order, after, meeting)
        self._outgoing.send(delivery)
        return delivery

    def _leave_group(self, job_id: str) -> None:
        """Drops a job from its group, and the group with its last job."""
        group_id = self._group_of.pop(job_id, None)
        if group_id is None:
            return
        self._jobs_of[group_id].discard(job_id)
        if not self._jobs_of[group_id]:
            del self._jobs_of[group_id], self._groups[group_id]


def _done(action: Launch) -> int:
    return action.job.iterations - math.ceil(action.remaining_iterations)
