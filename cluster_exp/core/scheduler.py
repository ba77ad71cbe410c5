"""The scheduler: `handle(event)` is the only way in which its state changes."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from cluster_exp.core.backoff import Backoff
from cluster_exp.core.groups import RunningGroup, TargetGroup
from cluster_exp.core.interference_watch import UNWATCHED, InterferenceWatch, Unwatched
from cluster_exp.core.invariants import check_holders, check_plan
from cluster_exp.core.measured import MeasuredProfiles, kind_of
from cluster_exp.core.placement import ClusterTrial, Placement
from cluster_exp.core.places import Nodes, Places
from cluster_exp.core.reconcile import Difference, reconcile
from cluster_exp.core.state import HeldAllotments, JobTable
from cluster_exp.core.waiting import WaitingGroups
from cluster_exp.core.watch import NO_WATCH, PLACEMENT, POLICY, Watch
from cluster_exp.domain.actions import (
    Action,
    GroupMember,
    Launch,
    Preempt,
    RecordEnd,
    SetTurns,
    TurnGroup,
)
from cluster_exp.domain.allotment import Allotment
from cluster_exp.domain.errors import InvariantError
from cluster_exp.domain.events import (
    CancelRequested,
    Event,
    JobArrived,
    JobFailed,
    JobFinished,
    JobPreempted,
    JobStarted,
    Measured,
    PlanDue,
    Progressed,
    WorkerJoined,
    WorkerLost,
)
from cluster_exp.domain.job import FINAL, JobSpec, JobStatus
from cluster_exp.domain.memory import MemoryRules
from cluster_exp.domain.models import SpeedModel
from cluster_exp.domain.plan import columns_of
from cluster_exp.domain.policy import Policy
from cluster_exp.domain.snapshot import Snapshot


class Scheduler:
    """Jobs, nodes, running groups and the plan in force.

    Neither the simulator nor the runtime changes any of it but through `handle`. The same events give the same
    actions.
    """

    def __init__(
        self,
        policy: Policy,
        speed: SpeedModel,
        placement: Placement,
        watch: Watch = NO_WATCH,
        event_cost_s: Callable[[JobSpec], float] = lambda job: 0.0,
        interference: Unwatched | InterferenceWatch = UNWATCHED,
        memory: MemoryRules | None = None,
    ) -> None:
        """Nothing is there yet.

        Args:
            policy: decides who runs.
            speed: how fast groups are taken to run.
            placement: where groups go.
            watch: told which part of the work begins and ends.
            event_cost_s: seconds that a running job loses at every event, as policies see it (`sim/muri22.py`).
            memory: which jobs fit on the same GPUs; None = all do.
            interference: learns how fast groups are; `speed` then only counts until it knows better.
        """
        self._interference = interference
        self._policy = policy
        self._speed = speed
        self._placement = placement
        self._watch = watch
        self._nodes = Nodes()
        self._places = Places(self._nodes)
        self._jobs = JobTable(speed, policy.learns, event_cost_s, memory)
        self._backoff = Backoff(self._jobs)
        self._measured = MeasuredProfiles()
        self._allotments = HeldAllotments(self._jobs)
        self._groups: dict[int, RunningGroup] = {}
        self._next_group = 0
        self._waiting = WaitingGroups()  # wanted groups that wait for GPUs or jobs that are still elsewhere
        self._memory: Mapping[str, Any] = {}
        self._now_s = 0.0
        self._handlers: dict[type, Callable[..., list[Action]]] = {
            Progressed: self._on_progressed,
            Measured: self._on_measured,
            JobStarted: self._on_started,
            JobFinished: self._on_finished,
            JobPreempted: self._on_preempted,
            JobFailed: self._on_failed,
            CancelRequested: self._on_cancel,
            JobArrived: self._on_arrived,
            WorkerJoined: self._on_worker_joined,
            WorkerLost: self._on_worker_lost,
            PlanDue: self._on_plan_due,
        }

    @property
    def num_live(self) -> int:
        """Jobs that have arrived and not ended."""
        return len(self._jobs.live)

    def handle(self, event: Event) -> list[Action]:
        """Applies one event and returns what is to be done, in the order in which it is to be done.

        An event of an earlier launch of a job (its generation is not the present one) and one of a job that is
        not live change nothing.

        Raises:
            InvariantError: the event or the policy's plan contradicts the state; events out of time order.
        """
        if event.time_s < self._now_s:
            raise InvariantError(f"time runs backwards: {event} after {self._now_s} s")
        self._now_s = event.time_s
        return self._handlers[type(event)](event)

    def snapshot(self) -> Snapshot:
        """What the policy sees now."""
        jobs, reads = self._jobs, self._policy.reads
        return Snapshot(
            now_s=self._now_s,
            jobs=jobs.jobs,
            seq=jobs.int_view("seq"),
            status=jobs.int_view("status"),
            num_gpu=jobs.int_view("num_gpu"),
            profile_class=jobs.int_view("profile_class"),
            group=jobs.int_view("group"),
            columns=jobs.columns(reads),
            profiles=jobs.profiles,
            cluster=self._nodes.cluster,
            node_ids=self._nodes.ids,
            speed=self._speed,
            trial=self._trial,
            allotments=self._allotments,
            ended=jobs.ended,
            changed=frozenset(jobs.changed),
            memory=jobs.memory,
            guessed=jobs.int_view("guessed"),
        )

    def _trial(self) -> ClusterTrial:
        return ClusterTrial(self._nodes.layout.pool(), self._placement.admission)

    def check(self) -> None:
        """Raises InvariantError when the state contradicts itself; for tests and simulations with checks on."""
        check_holders(self._jobs, self._nodes, self._groups)

    # Events

    def _on_arrived(self, event: JobArrived) -> list[Action]:
        use = self._measured.arrived(event)
        self._jobs.add(event.job, use.profile if use else None)
        return [use] if use else []

    def _on_progressed(self, event: Progressed) -> list[Action]:
        self._jobs.progress(event.job_ids, event.remaining_iterations)
        self._interference.progressed(event, self._jobs, self._groups)
        return []

    def _on_measured(self, event: Measured) -> list[Action]:
        slot = self._current(event.job_id, event.generation)
        if slot is None:
            return []
        spec = self._jobs.live[slot].spec
        change = self._measured.note(spec, event)
        if change is None:
            return []
        kind = kind_of(spec)
        slots = [slot for slot, job in self._jobs.live.items() if kind_of(job.spec) == kind]
        for slot in slots:
            self._jobs.use_profile(slot, change.profile, change.peak_mib or 0.0)
        job_ids = tuple(self._jobs.live[slot].spec.job_id for slot in slots)
        return [change.action(event.time_s, spec.profile_key, job_ids)]

    def _on_started(self, event: JobStarted) -> list[Action]:
        slot = self._current(event.job_id, event.generation)
        if slot is not None and self._jobs.status(slot) is JobStatus.LAUNCHING:
            self._jobs.move(slot, JobStatus.RUNNING)
        return []

    def _on_finished(self, event: JobFinished) -> list[Action]:
        slot = self._current(event.job_id, event.generation)
        if slot is None:
            return []
        self._jobs.set_remaining(slot, 0.0)
        return self._leave(slot, JobStatus.FINISHED, "")

    def _on_failed(self, event: JobFailed) -> list[Action]:
        slot = self._current(event.job_id, event.generation)
        return [] if slot is None else self._leave(slot, JobStatus.FAILED, event.reason)

    def _on_preempted(self, event: JobPreempted) -> list[Action]:
        slot = self._current(event.job_id, event.generation)
        if slot is None:
            return []
        self._jobs.set_remaining(slot, event.remaining_iterations)
        if self._jobs.live[slot].cancelled:
            return self._leave(slot, JobStatus.CANCELLED, "cancelled by its user")
        if not event.reason:
            self._jobs.int_column("preempted")[slot] += 1
        if event.wait_s <= 0:
            return self._leave(slot, JobStatus.PENDING, "")
        self._waiting.drop_job(slot)  # that it was to start elsewhere
        return self._leave(slot, JobStatus.PENDING, "") + self._backoff.wait(slot, event.time_s, event.wait_s)

    def _on_cancel(self, event: CancelRequested) -> list[Action]:
        slot = self._jobs.slot_of.get(event.job_id)
        if slot is None:
            return []
        job = self._jobs.live[slot]
        job.cancelled = True
        if slot not in self._jobs.holders:
            return self._end(slot, JobStatus.CANCELLED, "cancelled by its user")
        if slot in self._jobs.leaving:
            return []
        self._waiting.leaves(slot, self._allotment(slot))
        return [self._preempt(slot, "cancelled")]

    def _on_worker_joined(self, event: WorkerJoined) -> list[Action]:
        self._nodes.add(event.node, event.spec)
        return []

    def _on_worker_lost(self, event: WorkerLost) -> list[Action]:
        self._nodes.remove(event.node)
        self._waiting.drop_node(event.node)
        actions: list[Action] = []
        for slot in list(self._jobs.holders):
            allotment = self._jobs.live[slot].allotment
            if allotment is not None and any(share.node == event.node for share in allotment.shares):
                actions += self._leave(slot, JobStatus.PENDING, event.reason)
        return actions

    def _on_plan_due(self, event: PlanDue) -> list[Action]:
        jobs = self._jobs
        self._backoff.release(event.time_s)
        jobs.count_until(event.time_s)
        self._speed = self._interference.renewed() or self._speed
        self._watch.enter(POLICY)
        plan = self._policy.plan(self.snapshot(), self._memory)
        self._watch.leave()
        jobs.changed.clear()
        wanted = columns_of(plan.groups)
        check_plan(self._policy.name, plan, wanted, jobs)
        self._memory = plan.memory
        self._watch.enter(PLACEMENT)
        difference = reconcile(plan, wanted, jobs, self._nodes, self._places, self._placement)
        self._watch.leave()
        actions = self._tell_leavers(difference, plan.reason)
        leaving = {slot: self._allotment(slot) for slot in jobs.leaving}
        actions += self._start(self._waiting.reset(difference.targets, leaving))
        return actions + self._backoff.wish(event.time_s, plan.wake_s)

    # Reconcile

    def _tell_leavers(self, difference: Difference, reason: str) -> list[Action]:
        actions: list[Action] = []
        for slot in difference.stopped:
            actions.append(self._preempt(slot, f"not planned now {reason}".strip()))
        for slot in difference.moved:
            actions.append(self._preempt(slot, f"moves {reason}".strip()))
        return actions

    def _start(self, targets: Iterable[TargetGroup]) -> list[Action]:
        return [action for target in targets for action in self._start_group(target)]

    def _start_group(self, target: TargetGroup) -> list[Action]:
        holders = self._jobs.holders
        groups = self._jobs.int_column("group")
        jobs, offsets = target.plan.jobs, target.plan.offsets
        present = self._groups.get(int(groups[jobs[0]]))
        if present is not None and (tuple(present.members), tuple(present.members.values())) == (jobs, offsets):
            return []
        members = target.members
        kept = [slot for slot in members if slot in holders]
        group_id = int(groups[kept[0]]) if kept else self._next_group
        if (group := self._groups.get(group_id)) is None:
            self._next_group += 1
            group = self._groups[group_id] = RunningGroup(group_id, 0, {})
        self._interference.regrouped(self._now_s, group, self._jobs)
        group.members = members
        launches: list[Action] = [
            self._launch(slot, group, allotment, target.plan.reason)
            for slot, allotment in zip(target.plan.jobs, target.allotments, strict=True)
            if slot not in holders
        ]
        for slot in kept:
            self._join(slot, group)
        return [self._announce(group, target.plan.reason), *launches]

    def _join(self, slot: int, group: RunningGroup) -> None:
        """Moves a kept job out of the group it was in, if that is another."""
        groups = self._jobs.int_column("group")
        former = self._groups.get(int(groups[slot]))
        if former is not None and former is not group:
            self._interference.regrouped(self._now_s, former, self._jobs)
            former.members.pop(slot, None)
            if not former.members:
                del self._groups[former.group_id]
        groups[slot] = group.group_id

    def _announce(self, group: RunningGroup, reason: str) -> SetTurns:
        group.version += 1
        self._jobs.write_turns(group.members)
        generation = self._jobs.int_column("generation")
        members = tuple(
            GroupMember(self._jobs.live[slot].spec.job_id, offset, int(generation[slot]))
            for slot, offset in group.members.items()
        )
        lead = min(self._allotment(slot).lead_node for slot in group.members)
        return SetTurns(self._now_s, TurnGroup(group.group_id, group.version, members, lead), reason)

    def _launch(self, slot: int, group: RunningGroup, allotment: Allotment, reason: str) -> Launch:
        jobs = self._jobs
        job = jobs.live[slot]
        job.allotment = allotment
        jobs.move(slot, JobStatus.LAUNCHING)
        jobs.int_column("group")[slot] = group.group_id
        jobs.int_column("place")[slot] = self._places.enter(allotment)
        jobs.int_column("generation")[slot] += 1
        starts = jobs.float_column("starts")
        if starts[slot] == 0:
            jobs.float_column("first_start_s")[slot] = self._now_s
        starts[slot] += 1
        jobs.float_column("counted_until_s")[slot] = self._now_s
        return Launch(
            self._now_s,
            job.spec,
            int(jobs.int_column("generation")[slot]),
            allotment,
            float(jobs.float_column("remaining_iterations")[slot]),
            group.group_id,
            reason,
        )

    def _preempt(self, slot: int, reason: str) -> Preempt:
        self._jobs.move(slot, JobStatus.PREEMPTING)
        generation = int(self._jobs.int_column("generation")[slot])
        return Preempt(self._now_s, self._jobs.live[slot].spec.job_id, generation, reason)

    # Leaving

    def _leave(self, slot: int, status: JobStatus, reason: str) -> list[Action]:
        """Takes a job off its GPUs, lets those start that waited for them, and tells the rest of its group."""
        jobs = self._jobs
        group = self._groups[int(jobs.int_column("group")[slot])]
        jobs.count_one_until(self._now_s, slot)
        self._interference.regrouped(self._now_s, group, jobs)
        self._interference.left(slot)
        group.members.pop(slot)
        jobs.int_column("group")[slot] = -1
        places = jobs.int_column("place")
        self._places.leave(int(places[slot]))
        places[slot] = -1
        jobs.live[slot].allotment = None
        actions: list[Action] = []
        if status in FINAL:
            actions += self._end(slot, status, reason)
        else:
            jobs.move(slot, status)
        if not group.members:
            del self._groups[group.group_id]
        version = group.version
        actions += self._start(self._waiting.left(slot))
        if group.members and group.version == version:
            actions.append(self._announce(group, "a member left"))
        return actions

    def _end(self, slot: int, status: JobStatus, reason: str) -> list[Action]:
        jobs = self._jobs
        self._waiting.drop_job(slot)
        self._backoff.over(slot)
        jobs.move(slot, status)
        record = jobs.record(slot, self._now_s, reason)
        jobs.remove(slot)
        return [RecordEnd(self._now_s, record)]

    # Reading

    def _current(self, job_id: str, generation: int) -> int | None:
        """Slot of a job that holds GPUs since the launch of this generation, else None."""
        slot = self._jobs.slot_of.get(job_id)
        if slot is None or slot not in self._jobs.holders:
            return None
        return slot if self._jobs.int_column("generation")[slot] == generation else None

    def _allotment(self, slot: int) -> Allotment:
        allotment = self._jobs.live[slot].allotment
        if allotment is None:
            raise InvariantError(f"slot {slot} holds no GPUs")
        return allotment
