"""What the arbiter keeps and says: processes, messages to them, jobs and groups as it knows them."""

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
    """One process of one launch of a job: a rank, or one that prefetches for it."""

    job: JobKey
    rank: int
    helper: int = 0  # number of a process that prefetches for the rank; 0 = the rank itself


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


@dataclass(frozen=True, slots=True)
class Stuck:
    """A job that has kept a stage for longer than it may."""

    job: JobKey
    ranks: tuple[int, ...]  # those that have not given it back
    resources: int  # bit r = resource r
    held_s: float


class TurnError(ValueError):
    """A process did what it may not do now; it is to be cut off."""


class Phase(Enum):
    """Where a job is in its iteration."""

    BETWEEN = "between"  # at a boundary, or not all of its processes are there yet
    FREE = "free"  # inside an iteration without turns
    TURNS = "turns"  # inside an iteration, or resting after it, with turns


@dataclass(slots=True)
class Help:
    """A turn of a process that prefetches."""

    resources: int
    seen_s: float | None = None  # as `Party.seen_s`
    passed: bool = False


def first_of(resources: int) -> int:
    """The first resource of a mask, by number."""
    return (resources & -resources).bit_length() - 1


@dataclass(slots=True)
class Party:
    """A job as the arbiter knows it.

    A job that lost some of its processes goes on with the rest until its next boundary, where it is told to leave.
    """

    key: JobKey
    world: int
    ranks: set[int] = field(default_factory=set)  # connected processes
    processes: tuple[Process, ...] = ()  # the same, by rank
    complete: bool = False  # all of its processes came
    phase: Phase = Phase.BETWEEN
    asking: set[int] = field(default_factory=set)  # ranks that wait at the boundary
    looked: bool = False  # told to look up since it last asked
    stage: int = 0  # the stage that it does or passes next; after the last one NUM_RESOURCES
    wanting: dict[int, int] = field(default_factory=dict)  # resources that a rank asked for, of `stage` or later
    holding: set[int] = field(default_factory=set)  # ranks that were granted a stage and have not given it back
    held: int = 0  # resources of `holding`
    overtaken_by: set[JobKey] = field(default_factory=set)  # who went before it while it waits (work-conserving)
    helpers: set[Process] = field(default_factory=set)  # connected processes that prefetch
    help_wanted: dict[Process, int] = field(default_factory=dict)  # resources that one of them waits for
    help_held: dict[Process, Help] = field(default_factory=dict)
    seen_s: float | None = None  # when the turn in `holding` was first seen by a check of the limit
    passed: bool = False  # kept that turn too long: the others no longer wait for it
    aligned: bool = False  # its stages follow the slots (lockstep)

    @property
    def wanted(self) -> int:
        """The resources of the turn that comes next."""
        wanted = 0
        for resources in self.wanting.values():
            if resources >> self.stage & 1:
                wanted |= resources
        return wanted

    @property
    def held_now(self) -> int:
        """The resources of the turn that it holds."""
        return self.held if self.holding else 0

    @property
    def occupies(self) -> int:
        """The resources that others have to wait for."""
        busy = 0 if self.passed else self.held_now
        for turn in self.help_held.values():
            if not turn.passed:
                busy |= turn.resources
        return busy

    @property
    def ready(self) -> bool:
        """Whether all of its processes said which stage, or the boundary, is their next, and some stage is left."""
        said = len(self.wanting) + len(self.asking) == len(self.ranks)
        return said and self.complete and self.phase is Phase.TURNS and not self.at_boundary

    @property
    def at_boundary(self) -> bool:
        """Whether all of its processes wait for an answer at the boundary, with no stage to pass before."""
        done = self.phase is not Phase.TURNS or self.stage in (0, NUM_RESOURCES)
        return done and self.complete and len(self.asking) == len(self.ranks)

    @property
    def broken(self) -> bool:
        """Whether some of its processes are gone and others are not."""
        return self.complete and len(self.ranks) < self.world

    @property
    def inside(self) -> bool:
        """Whether it is inside an iteration."""
        return self.phase is not Phase.BETWEEN

    def join(self, rank: int) -> None:
        """One of its processes is there."""
        self.ranks.add(rank)
        self.complete = len(self.ranks) == self.world
        self._count()

    def has(self, process: Process) -> bool:
        """Whether a process is there."""
        return process in self.helpers if process.helper else process.rank in self.ranks

    def leave(self, process: Process) -> None:
        """One of its processes is gone: it holds and wants nothing any more."""
        if process.helper:
            self.helpers.discard(process)
            self.help_wanted.pop(process, None)
            self.help_held.pop(process, None)
            return
        rank = process.rank
        for ranks in (self.ranks, self.asking, self.holding):
            ranks.discard(rank)
        self.wanting.pop(rank, None)
        self._count()

    def busy(self, rank: int) -> bool:
        """Whether a process holds a turn, or waits for one or at the boundary."""
        return rank in self.holding or rank in self.wanting or rank in self.asking

    def skip(self) -> None:
        """Passes the stages that nobody of it wants, if all have said."""
        if self.ready:
            self.stage = min(map(first_of, self.wanting.values()), default=NUM_RESOURCES)

    def grant(self) -> list[Message]:
        """Its next stage begins, for those of its processes that asked for it; the others pass it."""
        self.held = self.wanted
        self.holding = {rank for rank, resources in self.wanting.items() if resources >> self.stage & 1}
        for rank in self.holding:
            del self.wanting[rank]
        self.overtaken_by.clear()
        self.seen_s, self.passed = None, False
        self.stage += 1
        return [Granted(process) for process in self.processes if process.rank in self.holding]

    def grant_help(self, process: Process) -> Message:
        """A turn of a process that prefetches begins."""
        self.help_held[process] = Help(self.help_wanted.pop(process))
        return Granted(process)

    def pass_over(self, now_s: float, limit_s: float) -> list[Stuck]:
        """Lets others no longer wait for what has been kept for `limit_s` since a check first saw it."""
        stuck = []
        if self.holding and not self.passed:
            if self.seen_s is None:
                self.seen_s = now_s
            elif now_s - self.seen_s >= limit_s:
                self.passed, self.aligned = True, False
                stuck.append(Stuck(self.key, tuple(sorted(self.holding)), self.held, now_s - self.seen_s))
        for process, turn in self.help_held.items():
            if turn.seen_s is None:
                turn.seen_s = now_s
            elif not turn.passed and now_s - turn.seen_s >= limit_s:
                turn.passed = True
                stuck.append(Stuck(self.key, (process.rank,), turn.resources, now_s - turn.seen_s))
        return stuck

    def _count(self) -> None:
        self.processes = tuple(Process(self.key, rank) for rank in sorted(self.ranks))


@dataclass(slots=True)
class Group:
    """Jobs on the same GPUs."""

    version: int
    batch: int
    discipline: Discipline
    offsets: dict[JobKey, int] = field(default_factory=dict)  # in turn order
    slot: int = 0  # lockstep: the slot that runs or ran last
    due: list[JobKey] = field(default_factory=list)  # lockstep: whose turn in this slot waits for another's in it
    pending: dict[JobKey, int] | None = None  # offsets that wait until no member is inside an iteration
    last: dict[int, JobKey] = field(default_factory=dict)  # work-conserving: last holder of each resource

    @property
    def empty(self) -> bool:
        """Whether nobody belongs to it, now or soon."""
        return not self.offsets and not self.pending

    def drop(self, key: JobKey) -> None:
        """Takes a job out."""
        self.offsets.pop(key, None)
        if self.pending is not None:
            self.pending.pop(key, None)
