"""Turns: which member of a group may use which resource now. A state machine without I/O or clock.

Processes of a job (`rank`s) ask at each iteration's boundary whether to go on; with company in their group they
then ask for a turn before each stage that they have. Every call returns the messages that it leads to. A job's
processes get each answer together, when all of them asked, so that they stop at the same iteration and hold a stage
together. Who asks for a later stage, or is at the boundary, passes those between: without a message, in lockstep each
in its slot.

A job alone in its group runs free: it is told so at a boundary and asks nothing more until it is told to look up
(`Look`). Company that arrives gets no turn before the free job reached its next boundary. Likewise a job that is
taken out of its group, or moved to another, takes its old group's turns until its next boundary.
"""

from collections.abc import Sequence

from cluster_exp.domain.resources import NUM_RESOURCES
from cluster_exp.protocol.turn_grants import helped, lockstep, work_conserving
from cluster_exp.protocol.turns_state import (
    Discipline,
    Go,
    Granted,
    Group,
    JobKey,
    Look,
    Message,
    Party,
    Phase,
    Process,
    Stop,
    Stuck,
    TurnError,
    first_of,
)

__all__ = [
    "Arbiter",
    "Discipline",
    "Go",
    "Granted",
    "JobKey",
    "Look",
    "Message",
    "Process",
    "Stop",
    "Stuck",
    "TurnError",
]


MOST_HELPERS = 1024  # of a job: processes that prefetch


class Arbiter:
    """Hands out the turns of all groups of one node.

    A group's four turns are its own: the published model gives each group its GPUs' part of a node's CPUs, storage
    and network (docs/decisions/turns.md), so groups never wait for one another and no circle of waiting can form.
    """

    def __init__(self) -> None:
        self._groups: dict[int, Group] = {}
        self._group_of: dict[JobKey, int] = {}  # whose turns a job takes
        self._bound: dict[JobKey, int | None] = {}  # where a job goes at its next boundary; None = to no group
        self._parties: dict[JobKey, Party] = {}
        self._stops: set[JobKey] = set()

    # What the master says

    def set_group(
        self,
        group_id: int,
        version: int,
        members: Sequence[tuple[JobKey, int]],
        batch: int,
        discipline: Discipline = Discipline.LOCKSTEP,
    ) -> list[Message]:
        """Sets a group's members with their offsets, in turn order; an older version than the present is ignored."""
        group = self._groups.get(group_id)
        if group is None:
            group = self._groups[group_id] = Group(version, batch, discipline)
        elif version <= group.version:
            return []
        changed = group.discipline is not discipline
        if changed:
            group.due.clear()
        group.version, group.batch, group.discipline = version, batch, discipline
        offsets = dict(members)
        former = [key for key in (*group.offsets, *(group.pending or ())) if key not in offsets]
        self._change(group_id, group, offsets)
        touched: dict[int, None] = {}  # groups, in order
        for key in former:
            if self._target(key) == group_id:
                touched |= self._bind(key, None)
        for key in offsets:
            touched |= self._bind(key, group_id)
        messages: list[Message] = []
        for key in (*former, *offsets):
            if key in self._bound:
                messages += self._look(self._parties[key])
            if changed or (key not in self._bound and key not in self._group_of):
                messages += self._settle_job(key)
        for touched_id in touched | {group_id: None}:
            messages += self._settle(touched_id)
        return messages

    def stop(self, key: JobKey) -> list[Message]:
        """Tells a job to leave at its next boundary, also when its processes have not come yet."""
        self._stops.add(key)
        party = self._parties.get(key)
        if party is None:
            return []
        return [*self._look(party), *self._settle_job(key)]

    def forget(self, key: JobKey) -> list[Message]:
        """Drops all that is known of a launch that is over."""
        messages: list[Message] = []
        if key in self._parties:
            party = self._parties[key]
            for process in (*party.helpers, *party.processes):
                messages += self.leave(process)
        self._stops.discard(key)
        for group_id in self._bind(key, None):
            messages += self._settle(group_id)
        return messages

    def knows(self, key: JobKey) -> bool:
        """Whether a launch is a member of a group, or becomes one."""
        return key in self._group_of or self._bound.get(key) is not None

    def helps(self, process: Process) -> bool:
        """Whether a process that prefetches holds a turn."""
        party = self._parties.get(process.job)
        return party is not None and process in party.help_held

    # What processes say

    def join(self, process: Process, world: int) -> list[Message]:
        """A process is there.

        Raises:
            TurnError: it is or was there already, or contradicts the job's other processes.
        """
        if process.helper:
            party = self._party(Process(process.job, process.rank))
            if len(party.helpers) >= MOST_HELPERS:
                raise TurnError(f"job {process.job[0]} has {MOST_HELPERS} processes that prefetch, allowed: as many")
            if party.has(process):
                raise TurnError(f"helper {process.helper} of job {process.job[0]} is there already")
            party.helpers.add(process)
            return []
        party = self._parties.get(process.job) or Party(process.job, world)
        if party.world != world or not 0 <= process.rank < world:
            raise TurnError(f"rank {process.rank} of {world} does not go with a job of {party.world} processes")
        if process.rank in party.ranks or party.complete:
            raise TurnError(f"rank {process.rank} of job {process.job[0]} is or was there already")
        self._parties[process.job] = party
        party.join(process.rank)
        return self._settle_job(process.job)

    def leave(self, process: Process) -> list[Message]:
        """A process is gone, in whatever way: it holds and wants nothing any more."""
        party = self._parties.get(process.job)
        if party is None or not party.has(process):
            return []
        party.leave(process)
        return self._settle_what_is_left(party)

    def _settle_what_is_left(self, party: Party) -> list[Message]:
        """A job without ranks is there as long as a process that prefetched for it holds a turn."""
        key = party.key
        if party.ranks or party.help_held:
            return self._settle_job(key)
        del self._parties[key]
        group_id = self._group_of.get(key)
        if key in self._bound:
            self._place(key, self._bound[key])
        return self._settle(group_id)

    def ask(self, process: Process, leave: bool = False) -> list[Message]:
        """A process is at a boundary and wants to know whether to begin an iteration, or wants its job to leave.

        Raises:
            TurnError: it holds or wants a turn.
        """
        party = self._party(process)
        if process.helper or process.rank in party.holding or process.rank in party.wanting:
            raise TurnError(f"job {process.job[0]} asks at a boundary while it holds or wants a turn")
        party.asking.add(process.rank)
        if leave:
            self._stops.add(process.job)
        return self._settle_job(process.job)

    def take(self, process: Process, *stages: int) -> list[Message]:
        """A process wants the turn of a stage, with one resource or several: all of them, or it waits.

        Raises:
            TurnError: it runs without turns, holds one, or asks out of order.
        """
        party = self._party(process)
        resources = sum(1 << stage for stage in set(stages))
        if process.helper:
            if process in party.help_wanted or process in party.help_held:
                raise TurnError(f"job {process.job[0]}: a process that prefetches asks twice")
            party.help_wanted[process] = resources
            return self._settle_job(process.job)
        stage = first_of(resources)
        if party.phase is not Phase.TURNS or party.busy(process.rank) or stage < party.stage:
            raise TurnError(f"job {process.job[0]} asks for stage {stage} in phase {party.phase.value}")
        party.wanting[process.rank] = resources
        return self._settle_job(process.job) if party.ready else []

    def give(self, process: Process) -> list[Message]:
        """A process gives its turn back. Raises TurnError when it holds none."""
        party = self._party(process)
        if process.helper and party.help_held.pop(process, None) is not None:
            return self._settle_what_is_left(party)
        if process.helper or process.rank not in party.holding:
            raise TurnError(f"job {process.job[0]} gives back a turn that it does not hold")
        party.holding.discard(process.rank)
        return [] if party.holding else self._settle_job(process.job)

    # What the clock says

    def check_limit(self, now_s: float, limit_s: float) -> tuple[list[Stuck], list[Message]]:
        """Passes over the jobs that have kept a stage for `limit_s` since a check first saw them hold it.

        Each is named once a stage. The others go on without it; once it has given back, it goes on like a newcomer.
        """
        stuck: list[Stuck] = []
        for party in filter(lambda each: each.occupies, self._parties.values()):
            stuck += party.pass_over(now_s, limit_s)
        groups = dict.fromkeys(self._group_of.get(each.job) for each in stuck)
        return stuck, [message for group_id in groups for message in self._settle(group_id)]

    def _party(self, process: Process) -> Party:
        party = self._parties.get(process.job)
        if party is None or not party.has(process):
            raise TurnError(f"rank {process.rank} of job {process.job[0]} is not there")
        return party

    # Who belongs where

    def _inside(self, key: JobKey) -> bool:
        party = self._parties.get(key)
        return party is not None and party.inside

    def _target(self, key: JobKey) -> int | None:
        """The group to which a job belongs once it has reached its next boundary."""
        return self._bound[key] if key in self._bound else self._group_of.get(key)

    def _bind(self, key: JobKey, group_id: int | None) -> dict[int, None]:
        """Moves a job: at its next boundary when it is inside an iteration, else now. Returns the groups it left."""
        resident, target = self._group_of.get(key), self._target(key)
        left: dict[int, None] = {}
        if target is not None and target not in (resident, group_id):
            self._drop(target, key)
            left[target] = None
        if self._inside(key) and resident != group_id:
            self._bound[key] = group_id
            return left
        if resident is not None and resident != group_id:
            left[resident] = None
        self._place(key, group_id)
        return left

    def _place(self, key: JobKey, group_id: int | None) -> None:
        self._bound.pop(key, None)
        resident = self._group_of.pop(key, None)
        if group_id is not None:
            self._group_of[key] = group_id
        if resident != group_id:
            if resident is not None:
                self._drop(resident, key)
            if key in self._parties:
                self._parties[key].aligned = False

    def _drop(self, group_id: int, key: JobKey) -> None:
        group = self._groups[group_id]
        group.drop(key)
        if group.empty:
            del self._groups[group_id]

    def _change(self, group_id: int, group: Group, offsets: dict[JobKey, int]) -> None:
        """Takes over new offsets: at once where they agree, up to a rotation, for the members that are under way.

        Otherwise, or while a former member finishes its iteration, they wait (`Group.pending`).
        """
        here = [key for key in group.offsets if self._group_of.get(key) == group_id and key in self._parties]
        leaving = {key: group.offsets[key] for key in here if key not in offsets and self._parties[key].inside}
        under_way = [key for key in here if key in offsets and self._parties[key].aligned]
        shifts = {(offsets[key] - group.offsets[key]) % NUM_RESOURCES for key in under_way}
        if group.discipline is Discipline.WORK_CONSERVING or (len(shifts) <= 1 and not leaving):
            shift = shifts.pop() if shifts else 0
            group.offsets = {key: (offset - shift) % NUM_RESOURCES for key, offset in offsets.items()} | leaving
            group.pending = None
        else:
            group.offsets = {key: group.offsets.get(key, offset) for key, offset in offsets.items()} | leaving
            group.pending = offsets

    # Who may go

    def _settle_job(self, key: JobKey) -> list[Message]:
        """Answers everybody who can be answered now that something about a job has changed."""
        party = self._parties.get(key)
        former = self._group_of.get(key)
        group = self._groups.get(former) if former is not None else None
        if party is not None and (group is None or group.discipline is Discipline.WORK_CONSERVING):
            party.skip()
        if party is not None and party.at_boundary:
            party.looked, party.phase = False, Phase.BETWEEN
            if key in self._bound:
                self._place(key, self._bound[key])
        group_id = self._group_of.get(key)
        messages = self._settle(former) if former != group_id else []
        if group_id is not None:
            return messages + self._settle(group_id)
        if party is not None and party.at_boundary:
            messages += self._answer(party, (), 1)
        return messages + (helped(party, (), False) if party is not None else [])

    def _settle(self, group_id: int | None) -> list[Message]:
        """Answers everybody in a group who can be answered now."""
        group = self._groups.get(group_id) if group_id is not None else None
        if group is None:
            return []
        parties = [
            self._parties[key]
            for key in group.offsets
            if key in self._parties and self._group_of.get(key) == group_id
        ]
        messages: list[Message] = []
        for party in parties:
            if party.at_boundary:
                messages += self._answer(party, [other for other in parties if other is not party], group.batch)
        if group.discipline is Discipline.LOCKSTEP:
            granted, passed = lockstep(group, parties, self._bound)
        else:
            granted, passed = work_conserving(group, parties), False
        messages += granted
        for party in parties:
            if party.help_wanted:
                others = [other for other in parties if other is not party]
                messages += helped(party, others, group.discipline is Discipline.LOCKSTEP)
        if passed:
            arrived = [party.key for party in parties if party.at_boundary]
            for key in arrived or [parties[0].key]:
                messages += self._settle_job(key)
        return messages

    def _must_leave(self, party: Party) -> bool:
        return party.broken or party.key in self._stops

    def _answer(self, party: Party, others: Sequence[Party], batch: int) -> list[Message]:
        """What a job at its boundary is told, if it can be told anything yet."""
        if self._must_leave(party):
            party.asking.clear()
            party.aligned = False
            return [Stop(process) for process in party.processes]
        free = [other for other in others if other.phase is Phase.FREE]
        if free:
            return [message for other in free for message in self._look(other)]
        company = any(
            other.occupies or (other.complete and (other.phase is Phase.TURNS or not self._must_leave(other)))
            for other in others
        )
        party.asking.clear()
        party.phase = Phase.TURNS if company else Phase.FREE
        party.stage = 0
        party.aligned &= company
        return [Go(process, company, batch) for process in party.processes]

    def _look(self, party: Party) -> list[Message]:
        """Makes a job that runs free ask at its next boundary; told once."""
        if party.phase is not Phase.FREE or party.looked:
            return []
        party.looked = True
        return [Look(process) for process in party.processes]
