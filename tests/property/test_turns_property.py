"""Random interleavings of joins, leaves, crashes, stops and regroupings: no overlap, no standstill."""

import random
from dataclasses import dataclass, field

import pytest

from cluster_exp.protocol.turns import Arbiter, Discipline, Go, Granted, JobKey, Look, Message, Process, Stop


@dataclass
class Model:
    """A process that behaves: what it waits for, and what it holds."""

    process: Process
    world: int
    state: str = "new"  # new, asking, free, turns, waiting, holding, gone
    stage: int = 0
    last: int = 0  # the turn that it takes has the resources from `stage` to `last`
    loading: range = range(0)  # resources of the turn in which it waits for its helper, if it has one
    owed: bool = False  # waits, inside that turn, for a batch of its helper
    iterations: int = 0
    look: bool = False

    @property
    def loads(self) -> bool:
        """Whether its next turn is the one in which it waits for its helper."""
        return bool(self.loading) and self.stage == self.loading[0]


@dataclass
class Cluster:
    rng: random.Random
    discipline: Discipline
    arbiter: Arbiter = field(default_factory=Arbiter)
    models: dict[Process, Model] = field(default_factory=dict)
    groups: dict[int, dict[JobKey, int]] = field(default_factory=dict)
    versions: dict[int, int] = field(default_factory=dict)
    boundary: dict[JobKey, list[int]] = field(default_factory=dict)
    jobs: int = 0
    sparse: float = 0.0  # probability that a process leaves a stage out
    joint: float = 0.0  # probability that a turn has several resources, and that a job has helpers

    def deliver(self, messages: list[Message]) -> None:
        for message in messages:
            model = self.models[message.to]
            match message:
                case Go(turns=turns):
                    assert model.state == "asking"
                    model.state, model.stage, model.look = ("turns" if turns else "free"), 0, False
                case Stop():
                    assert model.state == "asking"
                    model.state = "told"
                case Granted():
                    assert model.state == "waiting"
                    model.state = "holding"
                    model.owed = model.loads and not model.process.helper
                case Look():
                    model.look = True
        self.check()

    def check(self) -> None:
        """Nobody shares a resource of a group; nobody is free beside somebody who is inside an iteration."""
        for members in self.groups.values():
            holding: dict[int, JobKey] = {}
            free: set[JobKey] = set()
            turning: set[JobKey] = set()
            for model in self.models.values():
                key = model.process.job
                if key not in members:
                    continue
                if model.state == "holding":
                    for resource in range(model.stage, model.last + 1):
                        assert holding.setdefault(resource, key) == key, "two jobs hold one resource"
                if model.state == "free":
                    free.add(key)
                if model.state == "holding" or (model.state in ("turns", "waiting") and not model.process.helper):
                    turning.add(key)
            assert len(free) <= 1
            assert not free or not turning - free, "a free job has company inside an iteration"

    def step(self, model: Model) -> bool:
        """Lets one process do what it can do by itself; false when it has to wait."""
        process = model.process
        match model.state:
            case "new" if process.helper:
                self.deliver(self.arbiter.join(process, model.world))
                model.state = "idle"
            case "idle":
                model.state = "waiting"
                self.deliver(self.arbiter.take(process, *range(model.stage, model.last + 1)))
            case "holding" if process.helper:
                model.state = "idle"
                self.models[Process(process.job, process.rank)].owed = False
                self.deliver(self.arbiter.give(process))
            case "new":
                model.state = "asking"
                self.deliver(self.arbiter.join(process, model.world))
                if self.models.get(process) is model and model.state == "asking":
                    self.deliver(self.arbiter.ask(process))
            case "free":
                model.iterations += 1
                if model.look or model.world > 1 or self.rng.random() < 0.1:
                    model.state = "asking"
                    self.deliver(self.arbiter.ask(process))
            case "turns":
                while model.stage < 4 and self.rng.random() < self.sparse:
                    model.stage += 1
                if model.stage == 4:
                    model.iterations += 1
                    model.state = "asking"
                    self.deliver(self.arbiter.ask(process))
                else:
                    model.state = "waiting"
                    most = 3 if self.rng.random() < self.joint else model.stage
                    model.last = self.rng.randint(model.stage, most)
                    if model.loads:
                        model.last = model.loading[-1]
                    self.deliver(self.arbiter.take(process, *range(model.stage, model.last + 1)))
            case "holding":
                model.state, model.stage = "turns", model.last + 1
                self.deliver(self.arbiter.give(process))
            case "told":
                self.remove(process.job)
            case _:
                return False
        return True

    def movable(self) -> list[Model]:
        """Who can act; a helper only once its rank is there."""
        return [
            model
            for model in self.models.values()
            if model.state not in ("asking", "waiting")
            and not model.owed
            and not (
                model.process.helper and self.models[Process(model.process.job, model.process.rank)].state == "new"
            )
        ]

    def remove(self, key: JobKey) -> None:
        for process in [process for process in self.models if process.job == key]:
            del self.models[process]
            self.deliver(self.arbiter.leave(process))
        for group_id, members in list(self.groups.items()):
            if key in members:
                del members[key]
                self.regroup(group_id, shuffle=False)
        self.deliver(self.arbiter.forget(key))

    def regroup(self, group_id: int, *, shuffle: bool) -> None:
        members = self.groups[group_id]
        if not members:
            del self.groups[group_id]
            return
        keys = list(members)
        if shuffle:
            self.rng.shuffle(keys)
        offsets = self.rng.sample(range(4), len(keys)) if shuffle else [members[key] for key in keys]
        self.groups[group_id] = dict(zip(keys, offsets, strict=True))
        self.versions[group_id] = self.versions.get(group_id, 0) + 1
        self.deliver(
            self.arbiter.set_group(
                group_id,
                self.versions[group_id],
                list(self.groups[group_id].items()),
                self.rng.randint(1, 9),
                self.discipline,
            )
        )

    def arrive(self) -> None:
        group_id = self.rng.randrange(2)
        members = self.groups.setdefault(group_id, {})
        if len(members) == 4:
            return
        self.jobs += 1
        key = (f"job{self.jobs}", 1)
        free = [offset for offset in range(4) if offset not in members.values()]
        members[key] = self.rng.choice(free)
        world = self.rng.choice([1, 1, 1, 2, 3])
        self.regroup(group_id, shuffle=self.rng.random() < 0.5)
        for rank in range(world):
            process = Process(key, rank)
            self.models[process] = Model(process, world)
            if self.rng.random() < self.joint:
                loading = self.rng.choice([range(1), range(1, 2), range(2)])
                self.models[process].loading = loading
                helper = Process(key, rank, 1)
                self.models[helper] = Model(helper, world, stage=loading[0], last=loading[-1])

    def disturb(self) -> None:
        what = self.rng.random()
        keys = sorted({process.job for process in self.models})
        if what < 0.4:
            self.arrive()
        elif what < 0.6 and self.groups:
            self.regroup(self.rng.choice(sorted(self.groups)), shuffle=True)
        elif what < 0.8 and keys:
            self.deliver(self.arbiter.stop(self.rng.choice(keys)))
        elif keys:
            self.remove(self.rng.choice(keys))  # a crash: at any point, whatever it holds

    def settle(self) -> None:
        """Everybody behaves: each job still there does two more iterations, or leaves when told."""
        goal = {process: model.iterations + 2 for process, model in self.models.items() if not process.helper}
        for _ in range(8000):
            behind = [self.models[process] for process in goal if process in self.models]
            behind = [model for model in behind if model.iterations < goal[model.process]]
            if not behind:
                return
            movable = self.movable()
            assert movable, {model.process: (model.state, model.stage) for model in self.models.values()}
            self.step(self.rng.choice(movable))
        raise AssertionError(f"no progress: {[(m.process, m.state, m.stage) for m in behind]}")


@pytest.mark.parametrize("discipline", list(Discipline))
@pytest.mark.parametrize(("sparse", "joint"), [(0.0, 0.0), (0.4, 0.0), (0.2, 0.4)])
@pytest.mark.parametrize("seed", range(100))
def test_turns_never_overlap_and_never_stand_still(
    seed: int, sparse: float, joint: float, discipline: Discipline
) -> None:
    cluster = Cluster(random.Random(seed), discipline, sparse=sparse, joint=joint)
    for _ in range(60):
        if cluster.rng.random() < 0.15:
            cluster.disturb()
        movable = cluster.movable()
        if movable:
            cluster.step(cluster.rng.choice(movable))
    cluster.settle()
