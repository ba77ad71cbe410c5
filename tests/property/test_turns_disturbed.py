"""Turns under every disturbance at once, with messages that arrive late.

Jobs join, crash whole or lose one process, are told to leave or wish to, are taken out of their group while they
run, and move between two groups. Whatever the order, no two jobs of one group hold a resource at once, nobody runs
free beside a job of its group that is inside an iteration, and once everybody behaves everybody gets on.
"""

import random
from collections import deque
from dataclasses import dataclass, field

import pytest

from cluster_exp.protocol.turns import Arbiter, Discipline, Go, Granted, JobKey, Look, Message, Process, Stop

GROUPS = (1, 2)
STEPS = 150


@dataclass
class Actor:
    """A process that behaves. `emitted` is what the arbiter has said so far, `inbox` what it has not heard yet."""

    process: Process
    world: int
    joined: bool = False
    inbox: deque[Message] = field(default_factory=deque)
    waits: bool = False  # for an answer
    turns: bool = False
    inside: bool = False
    stage: int = 0  # next one
    holding: int | None = None
    look: bool = True
    told: bool = False
    iterations: int = 0


@dataclass
class Job:
    """What the outside observer knows of a job."""

    world: int
    member_of: int | None  # as the master said last
    in_force: int | None = None  # as of its last Go
    free: set[int] = field(default_factory=set)  # ranks inside an iteration without turns
    turning: set[int] = field(default_factory=set)  # ranks inside an iteration with turns
    held: dict[int, int] = field(default_factory=dict)  # rank -> stage
    doomed: bool = False  # lost a process


class World:
    def __init__(self, seed: int, discipline: Discipline, sparse: float) -> None:
        """`sparse`: probability that a process leaves a stage out."""
        self.rng = random.Random(seed)
        self.sparse = sparse
        self.discipline = discipline
        self.arbiter = Arbiter()
        self.actors: dict[Process, Actor] = {}
        self.jobs: dict[JobKey, Job] = {}
        self.offsets: dict[int, dict[JobKey, int]] = {group: {} for group in GROUPS}
        self.version = 0
        self.count = 0

    # What the arbiter says, seen at the instant at which it says it

    def hear(self, messages: list[Message]) -> None:
        for message in messages:
            actor, job = self.actors[message.to], self.jobs[message.to.job]
            actor.inbox.append(message)
            match message:
                case Go(turns=turns):
                    job.in_force = job.member_of
                    (job.turning if turns else job.free).add(message.to.rank)
                case Granted():
                    job.held[message.to.rank] = actor.stage
                case Stop() | Look():
                    pass
        self.check()

    def check(self) -> None:
        for group in GROUPS:
            jobs = {key: job for key, job in self.jobs.items() if job.in_force == group}
            holders: dict[int, JobKey] = {}
            for key, job in jobs.items():
                for stage in job.held.values():
                    assert holders.setdefault(stage, key) == key, f"two jobs hold stage {stage}"
            free = [key for key, job in jobs.items() if job.free]
            turning = [key for key, job in jobs.items() if job.turning and not job.free]
            assert len(free) <= 1
            assert not free or not turning, "a job runs free beside one that takes turns"

    # What processes do

    def movable(self) -> list[Actor]:
        return [actor for actor in self.actors.values() if actor.inbox or not actor.waits]

    def step(self, actor: Actor) -> None:
        if actor.inbox and (actor.waits or self.rng.random() < 0.5):
            self.read(actor, actor.inbox.popleft())
        elif not actor.waits:
            self.act(actor)

    def read(self, actor: Actor, message: Message) -> None:
        match message:
            case Go(turns=turns):
                assert actor.waits
                assert not actor.inside
                actor.waits, actor.inside, actor.turns, actor.stage, actor.look = False, True, turns, 0, turns
            case Granted():
                assert actor.waits
                assert actor.holding is None
                actor.waits, actor.holding = False, actor.stage
            case Stop():
                assert actor.waits
                assert not actor.inside
                actor.waits, actor.told = False, True
            case Look():
                actor.look = True

    def act(self, actor: Actor) -> None:
        process, job = actor.process, self.jobs[actor.process.job]
        while actor.inside and actor.turns and actor.holding is None and self.rng.random() < self.sparse:
            actor.stage += 1  # it leaves this one out
        if not actor.joined:
            actor.joined = True
            self.hear(self.arbiter.join(process, actor.world))
        elif actor.told:
            self.depart(process)
        elif actor.holding is not None:
            actor.holding, actor.stage = None, actor.stage + 1
            del job.held[process.rank]
            self.hear(self.arbiter.give(process))
        elif actor.inside and actor.turns and actor.stage < 4:
            actor.waits = True
            self.hear(self.arbiter.take(process, actor.stage))
        else:
            self.reach_boundary(actor, job)

    def reach_boundary(self, actor: Actor, job: Job) -> None:
        actor.iterations += actor.inside
        if actor.inside and not actor.look and actor.world == 1:
            return
        actor.waits, actor.inside = True, False
        job.free.discard(actor.process.rank)
        job.turning.discard(actor.process.rank)
        self.hear(self.arbiter.ask(actor.process, leave=self.rng.random() < 0.02))

    def depart(self, process: Process) -> None:
        """A process is gone; with the last one the job is forgotten."""
        self.vanish(process)
        if not any(other.job == process.job for other in self.actors):
            self.remove(process.job)

    def vanish(self, process: Process) -> None:
        job = self.jobs[process.job]
        del self.actors[process]
        job.free.discard(process.rank)
        job.turning.discard(process.rank)
        job.held.pop(process.rank, None)
        self.hear(self.arbiter.leave(process))

    def remove(self, key: JobKey) -> None:
        for process in [process for process in self.actors if process.job == key]:
            self.vanish(process)
        del self.jobs[key]
        self.hear(self.arbiter.forget(key))
        for group in GROUPS:
            if self.offsets[group].pop(key, None) is not None and self.rng.random() < 0.7:
                self.announce(group)

    # What the master says

    def announce(self, group: int, *, shuffle: bool = False) -> None:
        members = self.offsets[group]
        if not members:
            return
        if shuffle:
            keys = self.rng.sample(sorted(members), len(members))
            members = dict(zip(keys, self.rng.sample(range(4), len(keys)), strict=True))
            self.offsets[group] = members
        self.version += 1
        discipline = self.discipline
        self.hear(self.arbiter.set_group(group, self.version, list(members.items()), 3, discipline))

    def put(self, key: JobKey, group: int) -> None:
        others = {other: offset for other, offset in self.offsets[group].items() if other != key}
        if len(others) == 4:
            return
        for members in self.offsets.values():
            members.pop(key, None)
        self.offsets[group][key] = self.rng.choice(sorted(set(range(4)) - set(others.values())))
        self.jobs[key].member_of = group
        self.announce(group, shuffle=self.rng.random() < 0.3)

    def take_out(self, key: JobKey) -> None:
        for group, members in self.offsets.items():
            if key in members and len(members) > 1:
                del members[key]
                self.jobs[key].member_of = None
                self.announce(group)

    def arrive(self) -> None:
        group = self.rng.choice(GROUPS)
        if len(self.offsets[group]) == 4:
            return
        self.count += 1
        key, world = (f"job{self.count}", 1), self.rng.choice([1, 1, 1, 2, 3])
        self.jobs[key] = Job(world, None)
        for rank in range(world):
            self.actors[Process(key, rank)] = Actor(Process(key, rank), world)
        self.put(key, group)

    def disturb(self) -> None:
        keys = sorted(self.jobs)
        what = self.rng.choice(["arrive", "arrive", "shuffle", "stop", "crash", "lose", "out", "move"])
        if what == "arrive" or not keys:
            self.arrive()
            return
        key = self.rng.choice(keys)
        match what:
            case "shuffle":
                self.announce(self.rng.choice(GROUPS), shuffle=True)
            case "stop":
                self.hear(self.arbiter.stop(key))
            case "crash":
                self.remove(key)
            case "lose":
                processes = sorted((p for p in self.actors if p.job == key), key=lambda p: p.rank)
                self.jobs[key].doomed = True
                self.depart(self.rng.choice(processes))
            case "out":
                self.take_out(key)
            case "move":
                self.put(key, self.rng.choice(GROUPS))

    def clear_incomplete(self) -> None:
        """A worker ends the rest of a job that lost a process before all had come."""
        for key in sorted(self.jobs):
            if self.jobs[key].doomed and any(not a.iterations for p, a in self.actors.items() if p.job == key):
                self.remove(key)

    def behave(self) -> None:
        """Everybody behaves: who is there does two more iterations, or leaves as told."""
        self.clear_incomplete()
        goals = {process: actor.iterations + 2 for process, actor in self.actors.items()}
        for _ in range(6000):
            behind = [p for p, goal in goals.items() if p in self.actors and self.actors[p].iterations < goal]
            if not behind:
                return
            movable = self.movable()
            assert movable, f"all wait: {self.actors}"
            self.step(self.rng.choice(movable))
        raise AssertionError(f"no progress: {[self.actors[process] for process in behind]}")


@pytest.mark.parametrize("discipline", list(Discipline))
@pytest.mark.parametrize("seed", range(200))
def test_no_disturbance_makes_turns_overlap_or_stand_still(seed: int, discipline: Discipline) -> None:
    world = World(seed, discipline, sparse=0.3 if seed % 2 else 0.0)
    for _ in range(STEPS):
        if world.rng.random() < 0.12:
            world.disturb()
        movable = world.movable()
        if movable:
            world.step(world.rng.choice(movable))
    world.behave()
