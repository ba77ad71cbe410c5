"""Turns: which member of a group may use which resource now. A state machine without I/O or clock.

Processes of a job (`rank`s) ask at each iteration's boundary whether to go on; with company in their group they
then ask for a turn before each stage. Every call returns the messages that it leads to. A job's processes get each
answer together, when all of them asked, so that they stop at the same iteration and hold a stage together.

A job alone in its group runs free: it is told so at a boundary and asks nothing more until it is told to look up
(`Look`). Company that arrives gets no turn before the free job reached its next boundary.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum

from cluster_exp.domain.resources import NUM_RESOURCES

JobKey = tuple[str, int]  # job id, generation


class Discipline(Enum):
    """How a group's members take turns."""

    LOCKSTEP = "lockstep"  # in slot s member i uses resource (s + offset) mod 4; all move on together
    WORK_CONSERVING = "work-conserving"  # whoever is ready takes a free resource


@dataclass(frozen=True, slots=True)
class Process:
    """One process of one launch of a job."""

    job: JobKey
    rank: int


@dataclass(frozen=True, slots=True)
class Go:
    """Begin an iteration."""

    to: Process
    turns: bool  # ask for a turn before each stage
    batch: int  # iterations that one emulated iteration of the group stands for


@dataclass(frozen=True, slots=True)
class Stop:
    """Leave: do not begin another iteration."""

    to: Process


@dataclass(frozen=True, slots=True)
class Granted:
    """The stage that was asked for may begin."""

    to: Process


@dataclass(frozen=True, slots=True)
class Look:
    """Ask at the next boundary."""

    to: Process


Message = Go | Stop | Granted | Look


class TurnError(ValueError):
    """A process did what it may not do now; it is to be cut off."""


class Phase(Enum):
    """Where a job is in its iteration."""

    BETWEEN = "between"  # at a boundary, or not all of its processes are there yet
    FREE = "free"  # inside an iteration without turns
    TURNS = "turns"  # inside an iteration, or resting after it, with turns


@dataclass(slots=True)
class Party:
    """A job as the arbiter knows it."""

    key: JobKey
    world: int
    ranks: set[int] = field(default_factory=set)  # connected processes
    phase: Phase = Phase.BETWEEN
    asking: set[int] = field(default_factory=set)  # ranks that wait at the boundary
    looked: bool = False  # told to look up since it last asked
    stage: int = 0  # the stage that it asks for or does next
    wanting: set[int] = field(default_factory=set)  # ranks that asked for `stage`
    holding: set[int] = field(default_factory=set)  # ranks that were granted a stage and have not given it back
    held: int = -1  # the stage of `holding`
    aligned: bool = False  # its stages follow the slots (lockstep)

    @property
    def present(self) -> bool:
        """Whether all of its processes are there."""
        return len(self.ranks) == self.world

    @property
    def ready(self) -> bool:
        """Whether all of its processes asked for the stage that comes next."""
        return len(self.wanting) == self.world

    @property
    def at_boundary(self) -> bool:
        """Whether all of its processes wait for an answer at the boundary."""
        return len(self.asking) == self.world

    def processes(self) -> list[Process]:
        """Its connected processes by rank."""
        return [Process(self.key, rank) for rank in sorted(self.ranks)]


@dataclass(slots=True)
class Group:
    """Jobs on the same GPUs."""

    version: int
    offsets: dict[JobKey, int]  # in turn order
    batch: int
    discipline: Discipline
    slot: int = 0  # lockstep: the slot that runs or ran last
    pending: dict[JobKey, int] | None = None  # offsets that wait until no member is inside an iteration
    last: dict[int, JobKey] = field(default_factory=dict)  # work-conserving: last holder of each resource


class Arbiter:
    """Hands out the turns of all groups of one node.

    A group's four turns are its own: the published model gives each group its GPUs' part of a node's CPUs, storage
    and network (docs/decisions/turns.md), so groups never wait for one another and no circle of waiting can form.
    """

    def __init__(self) -> None:
        self._groups: dict[int, Group] = {}
        self._group_of: dict[JobKey, int] = {}
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
        if group is not None and version <= group.version:
            return []
        offsets = dict(members)
        if group is None:
            group = self._groups[group_id] = Group(version, offsets, batch, discipline)
        else:
            self._change(group, offsets)
            group.version, group.batch, group.discipline = version, batch, discipline
        left = [key for key, other in self._group_of.items() if other == group_id and key not in offsets]
        for key in left:
            del self._group_of[key]
        for key in offsets:
            self._move(key, group_id)
        return [*self._settle(group_id), *self._settle_strays(left)]

    def stop(self, key: JobKey) -> list[Message]:
        """Tells a job to leave at its next boundary, also when its processes have not come yet."""
        self._stops.add(key)
        party = self._parties.get(key)
        if party is None:
            return []
        return [*self._look(party), *self._settle_job(key)]

    def forget(self, key: JobKey) -> list[Message]:
        """Drops all that is known of a launch that is over."""
        self._stops.discard(key)
        messages: list[Message] = []
        if key in self._parties:
            for process in self._parties[key].processes():
                messages += self.leave(process)
        group_id = self._group_of.pop(key, None)
        if group_id is not None:
            group = self._groups[group_id]
            group.offsets.pop(key, None)
            if group.pending is not None:
                group.pending.pop(key, None)
            if not group.offsets and not group.pending:
                del self._groups[group_id]
            else:
                messages += self._settle(group_id)
        return messages

    # What processes say

    def join(self, process: Process, world: int) -> list[Message]:
        """A process is there.

        Raises:
            TurnError: it is there already, or contradicts the job's other processes.
        """
        party = self._parties.setdefault(process.job, Party(process.job, world))
        if party.world != world or not 0 <= process.rank < world:
            raise TurnError(f"rank {process.rank} of {world} does not go with a job of {party.world} processes")
        if process.rank in party.ranks:
            raise TurnError(f"rank {process.rank} of job {process.job[0]} is there already")
        party.ranks.add(process.rank)
        return self._settle_job(process.job)

    def leave(self, process: Process) -> list[Message]:
        """A process is gone, in whatever way: it holds and wants nothing any more."""
        party = self._parties.get(process.job)
        if party is None or process.rank not in party.ranks:
            return []
        party.ranks.discard(process.rank)
        for ranks in (party.asking, party.wanting, party.holding):
            ranks.discard(process.rank)
        if not party.ranks:
            del self._parties[process.job]
        elif not party.present:
            party.aligned = False
        return self._settle_job(process.job)

    def ask(self, process: Process) -> list[Message]:
        """A process is at a boundary and wants to know whether to begin an iteration."""
        party = self._party(process)
        if process.rank in party.holding or process.rank in party.wanting:
            raise TurnError(f"job {process.job[0]} asks at a boundary while it holds or wants a turn")
        party.asking.add(process.rank)
        if party.at_boundary:
            party.looked = False
            if party.phase is Phase.FREE:
                party.phase = Phase.BETWEEN
        return self._settle_job(process.job)

    def take(self, process: Process, stage: int) -> list[Message]:
        """A process wants the turn of a stage.

        Raises:
            TurnError: it runs without turns, holds one, or asks out of order.
        """
        party = self._party(process)
        if party.phase is not Phase.TURNS or process.rank in party.holding or stage != party.stage:
            raise TurnError(f"job {process.job[0]} asks for stage {stage} in phase {party.phase.value}")
        party.wanting.add(process.rank)
        return self._settle_job(process.job)

    def give(self, process: Process) -> list[Message]:
        """A process gives its turn back. Raises TurnError when it holds none."""
        party = self._party(process)
        if process.rank not in party.holding:
            raise TurnError(f"job {process.job[0]} gives back a turn that it does not hold")
        party.holding.discard(process.rank)
        return self._settle_job(process.job)

    # Who may go

    def _party(self, process: Process) -> Party:
        party = self._parties.get(process.job)
        if party is None or process.rank not in party.ranks:
            raise TurnError(f"rank {process.rank} of job {process.job[0]} is not there")
        return party

    def _move(self, key: JobKey, group_id: int) -> None:
        former = self._group_of.get(key)
        if former is not None and former != group_id and former in self._groups:
            self._groups[former].offsets.pop(key, None)
            if not self._groups[former].offsets:
                del self._groups[former]
        self._group_of[key] = group_id

    def _change(self, group: Group, offsets: dict[JobKey, int]) -> None:
        """Takes over new offsets: at once where they agree, up to a rotation, for the members that are under way."""
        under_way = [key for key in offsets if key in group.offsets and self._aligned(key)]
        shifts = {(offsets[key] - group.offsets[key]) % NUM_RESOURCES for key in under_way}
        if len(shifts) <= 1:
            shift = shifts.pop() if shifts else 0
            group.offsets = {key: (offset - shift) % NUM_RESOURCES for key, offset in offsets.items()}
            group.pending = None
        else:
            group.offsets = {key: group.offsets.get(key, offset) for key, offset in offsets.items()}
            group.pending = offsets

    def _aligned(self, key: JobKey) -> bool:
        party = self._parties.get(key)
        return party is not None and party.aligned

    def _settle_strays(self, keys: Iterable[JobKey]) -> list[Message]:
        return [message for key in keys if key in self._parties for message in self._settle_job(key)]

    def _settle_job(self, key: JobKey) -> list[Message]:
        group_id = self._group_of.get(key)
        if group_id is not None:
            return self._settle(group_id)
        party = self._parties.get(key)
        if party is None:
            return []
        if party.at_boundary:
            return self._answer(party, (), 1)
        return self._grant(party) if party.ready else []  # nobody shares with it

    def _settle(self, group_id: int) -> list[Message]:
        """Answers everybody in a group who can be answered now."""
        group = self._groups.get(group_id)
        if group is None:
            return []
        messages: list[Message] = []
        parties = [self._parties[key] for key in group.offsets if key in self._parties]
        for party in parties:
            if party.at_boundary:
                messages += self._answer(party, [other for other in parties if other is not party], group.batch)
        if group.discipline is Discipline.LOCKSTEP:
            messages += self._lockstep(group, parties)
        else:
            messages += self._work_conserving(group, parties)
        return messages

    def _answer(self, party: Party, others: Sequence[Party], batch: int) -> list[Message]:
        """What a job at its boundary is told, if it can be told anything yet."""
        if party.key in self._stops:
            party.asking.clear()
            party.phase, party.aligned = Phase.BETWEEN, False
            return [Stop(process) for process in party.processes()]
        free = [other for other in others if other.phase is Phase.FREE]
        if free:
            return [message for other in free for message in self._look(other)]
        company = any(
            other.present and (other.phase is Phase.TURNS or other.key not in self._stops) for other in others
        )
        party.asking.clear()
        party.phase = Phase.TURNS if company else Phase.FREE
        party.stage = 0
        party.aligned &= company
        return [Go(process, company, batch) for process in party.processes()]

    def _look(self, party: Party) -> list[Message]:
        """Makes a job that runs free ask at its next boundary; told once."""
        if party.phase is not Phase.FREE or party.looked:
            return []
        party.looked = True
        return [Look(process) for process in party.processes()]

    def _grant(self, party: Party) -> list[Message]:
        party.holding, party.wanting = set(party.wanting), set()
        party.held = party.stage
        party.stage = (party.stage + 1) % NUM_RESOURCES
        return [Granted(process) for process in party.processes()]

    def _lockstep(self, group: Group, parties: Sequence[Party]) -> list[Message]:
        """Begins the next slot when nobody holds a turn and everyone who follows the slots asks for the right one."""
        if any(party.holding for party in parties):
            return []
        self._realign(group, parties)
        followers = [party for party in parties if party.aligned and party.present]
        newcomers = [party for party in parties if not party.aligned and party.ready and party.stage == 0]
        if group.pending is not None:
            newcomers = []
        slot = group.slot + 1
        if not followers and newcomers:
            slot = -group.offsets[newcomers[0].key] % NUM_RESOURCES
        due = {party.key: (slot + group.offsets[party.key]) % NUM_RESOURCES for party in parties}
        if any(not party.ready or party.stage != due[party.key] for party in followers):
            return []
        going = [*followers, *(party for party in newcomers if due[party.key] == 0)]
        if going:
            group.slot = slot
        messages: list[Message] = []
        for party in going:
            party.aligned = True
            messages += self._grant(party)
        return messages

    def _realign(self, group: Group, parties: Sequence[Party]) -> None:
        """Takes over new offsets once no member is inside an iteration; until then none begins one."""
        if group.pending is None:
            return
        for party in parties:
            party.aligned &= party.stage != 0
        if not any(party.aligned for party in parties):
            group.offsets, group.pending = group.pending, None

    def _work_conserving(self, group: Group, parties: Sequence[Party]) -> list[Message]:
        """Gives each free resource to the next member, after its last holder in turn order, that waits for it."""
        messages: list[Message] = []
        order = list(group.offsets)
        for resource in range(NUM_RESOURCES):
            if any(party.holding and party.held == resource for party in parties):
                continue
            last = group.last.get(resource)
            first = order.index(last) + 1 if last in order else 0
            waiting = [party for party in parties if party.ready and party.stage == resource]
            if waiting:
                chosen = min(waiting, key=lambda party: (order.index(party.key) - first) % len(order))
                group.last[resource] = chosen.key
                messages += self._grant(chosen)
        return messages
