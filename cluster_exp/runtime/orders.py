"""Carries out the core's actions: which worker gets which order, and in which order."""

import asyncio
import math
from collections.abc import Mapping, Sequence

from cluster_exp.domain.actions import Launch, Preempt, SetTurns
from cluster_exp.domain.events import Event
from cluster_exp.domain.job import JobSpec
from cluster_exp.interleave.cycle import lockstep_cycle_s
from cluster_exp.protocol.gangs import Gangs
from cluster_exp.protocol.messages import LaunchOrder, PreemptOrder, Registration, TurnsOrder
from cluster_exp.runtime.commands import needs_meeting
from cluster_exp.runtime.emulated import batch_for
from cluster_exp.runtime.link import NOTHING, Delivery, Trouble, WorkerLink
from cluster_exp.runtime.security.access import Access


def iterations_per_turn(jobs: Sequence[JobSpec], offsets: Sequence[int], time_scale: float) -> int:
    """How many iterations one emulated iteration of a group stands for, so that its cycle is long enough."""
    profiles = [job.profile for job in jobs]
    cycle_s = profiles[0].iteration_s if len(profiles) == 1 else lockstep_cycle_s(profiles, offsets)
    return batch_for(cycle_s, time_scale)


class Dispatcher:
    """Links to the workers, and what is known of the groups and launches that they carry out."""

    def __init__(
        self, specs: Mapping[str, JobSpec], time_scale: float, retries: int = 0, access: Access | None = None
    ) -> None:
        """`specs` are the jobs by id, kept by the caller; `access` is what workers ask for.

        A job that fails is started again `retries` times.
        """
        self._access = access
        self._specs = specs
        self._time_scale = time_scale
        self.gangs = Gangs(retries)
        self._links: dict[int, WorkerLink] = {}
        self._turns_addresses: dict[int, str] = {}
        self._groups: dict[int, tuple[TurnsOrder, Delivery]] = {}
        self._group_of: dict[str, int] = {}
        self._jobs_of: dict[int, set[str]] = {}
        self._closing: set[asyncio.Task[None]] = set()

    def connect(self, node: int, registration: Registration, trouble: Trouble) -> None:
        """Opens a link to a worker that registered, and stops whatever it runs that nobody here launched."""
        link = WorkerLink(registration.node, registration.worker_address, trouble, self._access)
        self._links[node] = link
        self._turns_addresses[node] = registration.turns_address
        for trainer in registration.trainers:
            link.send(PreemptOrder(trainer.job_id, trainer.generation))

    def disconnect(self, node: int, now_s: float) -> Sequence[Event]:
        """Closes the link to a lost worker, and stops the other parts of the jobs that ran there.

        Returns what the core has to know: these jobs go back to their checkpoints.
        """
        self._turns_addresses.pop(node, None)
        link = self._links.pop(node, None)
        if link is not None:
            task = asyncio.create_task(link.close())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)
        outcome = self.gangs.lose(node, now_s)
        self.send(outcome.orders)
        return outcome.events

    def send(self, orders: Sequence[tuple[int, PreemptOrder]]) -> None:
        """Sends stop orders to nodes; a node without a worker is passed over."""
        for node, order in orders:
            if node in self._links:
                self._links[node].send(order)

    def set_turns(self, action: SetTurns) -> None:
        """Tells the worker of a group's lead node who takes turns."""
        group = action.group
        jobs = [self._specs[member.job_id] for member in group.members]
        offsets = [member.offset for member in group.members]
        order = TurnsOrder(group, iterations_per_turn(jobs, offsets, self._time_scale))
        sent = NOTHING
        if group.lead_node in self._links:
            sent = self._links[group.lead_node].send(order)
        self._groups[group.group_id] = (order, sent)
        for member in group.members:
            if self._group_of.get(member.job_id) != group.group_id:
                self._leave_group(member.job_id)
            self._group_of[member.job_id] = group.group_id
            self._jobs_of.setdefault(group.group_id, set()).add(member.job_id)

    def launch(self, action: Launch) -> None:
        """Tells the worker of each of a job's nodes to start its part, once the turns of its group are known."""
        turns, known = self._groups[action.group_id]
        done = action.job.iterations - math.ceil(action.remaining_iterations)
        order = LaunchOrder(
            action.job,
            action.generation,
            action.allotment.shares,
            done,
            turns.iterations_per_turn,
            self._turns_addresses.get(turns.group.lead_node, ""),
        )
        self.gangs.launch(action, done)
        meeting: Delivery | None = None
        for share in action.allotment.shares:
            if share.node in self._links:
                lead = share.node == turns.group.lead_node  # its orders come in order anyway
                delivery = self._links[share.node].send(order, () if lead else (known,), meeting)
                if meeting is None and needs_meeting(order):
                    meeting = delivery  # the first node opens it

    def preempt(self, action: Preempt) -> None:
        """Tells the worker of each of a job's nodes to stop its part."""
        self.send(self.gangs.stop(action.job_id, action.generation))

    def ended(self, job_id: str) -> None:
        """Drops all that is known of a job that is over."""
        self.gangs.ended(job_id)
        self._leave_group(job_id)

    def _leave_group(self, job_id: str) -> None:
        """Drops a job from its group, and the group with its last job."""
        group_id = self._group_of.pop(job_id, None)
        if group_id is None:
            return
        self._jobs_of[group_id].discard(job_id)
        if not self._jobs_of[group_id]:
            del self._jobs_of[group_id], self._groups[group_id]

    async def shutdown(self, reason: str) -> None:
        """Tells all workers to leave and closes the links."""
        links = list(self._links.values())
        await asyncio.gather(*(link.shutdown(reason) for link in links))
        await asyncio.gather(*(link.close() for link in links), *self._closing)
        self._links.clear()
