"""Jobs whose ranks lie on several workers cannot wait for one another in a circle.

A small cluster is explored completely: every order in which its processes can act. A rank that exchanges gradients
goes on only when all ranks of its job do, as in an allreduce. Larger clusters are walked at random. That the check
can fail is shown by a mistake: ranks that ask the worker of their own node for turns.
"""

import pickle
import random
from dataclasses import dataclass

import pytest

from cluster_exp.protocol.turns import Arbiter, Discipline, Go, Granted, Message, Process

STAGES = 4
NETWORK = 3
MOST_STATES = 200_000


@dataclass
class Rank:
    """One process: what it does next."""

    job: str
    process: Process  # as its arbiter knows it
    arbiter: int  # whom it asks
    iterations: int  # still to do
    state: str = "ask"  # ask, asked, take, taken, in, exchanged, done
    stage: int = 0
    turns: bool = True
    sparse: bool = False  # leaves out some stages, other ones than the rank next to it

    def next_stage(self, stage: int) -> None:
        """Goes on at a stage, or at the first one after it that it has."""
        while self.sparse and stage < NETWORK and (self.process.rank + stage) % 2:
            stage += 1
        self.stage = stage


@dataclass
class World:
    """Arbiters, one a node, and the ranks of all jobs."""

    arbiters: list[Arbiter]
    ranks: list[Rank]

    def able(self) -> list[int]:
        """Ranks that can act by themselves."""
        return [i for i, rank in enumerate(self.ranks) if self._can(rank)]

    def _can(self, rank: Rank) -> bool:
        if rank.state == "in" and rank.stage == NETWORK:  # all ranks of the job have to be there
            mates = [mate for mate in self.ranks if mate.job == rank.job and mate.iterations == rank.iterations]
            return all(mate.state in ("in", "exchanged") and mate.stage == NETWORK for mate in mates)
        return rank.state in ("ask", "take", "in", "exchanged")

    def act(self, number: int) -> None:
        """Lets one rank do its next step."""
        rank = self.ranks[number]
        arbiter = self.arbiters[rank.arbiter]
        match rank.state:
            case "ask":
                rank.state = "asked"
                self.hear(rank.arbiter, arbiter.ask(rank.process))
            case "take":
                rank.state = "taken"
                self.hear(rank.arbiter, arbiter.take(rank.process, rank.stage))
            case "in" if rank.stage == NETWORK:
                rank.state = "exchanged"
            case "in" | "exchanged":
                self._finish_stage(rank, arbiter)

    def _finish_stage(self, rank: Rank, arbiter: Arbiter) -> None:
        rank.next_stage(rank.stage + 1)
        rank.state = "take"
        if rank.stage == STAGES:
            rank.stage, rank.iterations = 0, rank.iterations - 1
            rank.state = "ask" if rank.iterations else "done"
        if rank.turns:
            self.hear(rank.arbiter, arbiter.give(rank.process))
        if rank.state == "done":
            self.hear(rank.arbiter, arbiter.leave(rank.process))

    def hear(self, arbiter: int, messages: list[Message]) -> None:
        """Delivers what an arbiter says."""
        for message in messages:
            rank = next(one for one in self.ranks if (one.arbiter, one.process) == (arbiter, message.to))
            if isinstance(message, Go):
                # Without company an iteration takes no turns; its ranks meet in the exchange all the same.
                rank.turns = message.turns
                rank.state = "take" if message.turns else "in"
                rank.next_stage(0 if message.turns else NETWORK)
            elif isinstance(message, Granted):
                rank.state = "in"

    @property
    def over(self) -> bool:
        """Whether every rank did all its iterations."""
        return all(rank.state == "done" for rank in self.ranks)


def world(
    groups: list[list[int]],
    discipline: Discipline,
    iterations: int = 1,
    own_node: bool = False,
    sparse: bool = False,
) -> World:
    """Groups of jobs, each given by its number of ranks; rank r of a job lies on node r.

    All ranks of a job ask the worker of node 0; with `own_node`, the mistake, each asks that of its own node.
    """
    nodes = max(size for group in groups for size in group)
    made = World([Arbiter() for _ in range(nodes)], [])
    for group_id, group in enumerate(groups):
        keys = [(f"g{group_id}j{i}", 1) for i in range(len(group))]
        members = [(key, offset) for offset, key in enumerate(keys)]
        for arbiter in made.arbiters if own_node else made.arbiters[:1]:
            arbiter.set_group(group_id, 1, members, 1, discipline)
        for key, size in zip(keys, group, strict=True):
            for rank in range(size):
                process, asks = (Process(key, 0), rank) if own_node else (Process(key, rank), 0)
                made.ranks.append(Rank(key[0], process, asks, iterations, sparse=sparse))
    for rank in made.ranks:
        size = 1 if own_node else sum(mate.job == rank.job for mate in made.ranks)
        made.hear(rank.arbiter, made.arbiters[rank.arbiter].join(rank.process, size))
    return made


def explored(start: World) -> tuple[int, list[World]]:
    """How many states can be reached, and the first in which nobody can act though somebody is not done.

    Of two that can, the later one acts first, so that a search for a circle of waiting goes deep soon.
    """
    seen, stack, stuck = set(), [pickle.dumps(start)], []
    while stack and not stuck:
        packed = stack.pop()
        if packed in seen:
            continue
        seen.add(packed)
        assert len(seen) < MOST_STATES
        here: World = pickle.loads(packed)
        able = here.able()
        if not able and not here.over:
            stuck.append(here)
        for number in able:
            after: World = pickle.loads(packed)
            after.act(number)
            stack.append(pickle.dumps(after))
    return len(seen), stuck


@pytest.mark.parametrize("discipline", list(Discipline))
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("groups", [[[2, 2]], [[2, 1]], [[3, 2]]])
def test_no_order_of_events_stops_jobs_of_several_workers(discipline, groups, sparse):
    states, stuck = explored(world(groups, discipline, sparse=sparse))
    assert states > 50
    assert stuck == []


@pytest.mark.parametrize("discipline", list(Discipline))
@pytest.mark.parametrize("seed", range(20))
def test_random_orders_in_two_larger_groups_end(discipline, seed):
    draw = random.Random(seed)
    groups = [[draw.choice([1, 2, 4]) for _ in range(draw.choice([2, 3, 4]))] for _ in range(2)]
    here = world(groups, discipline, iterations=3, sparse=seed % 2 == 1)
    while able := here.able():
        here.act(draw.choice(able))
    assert here.over, (groups, here.ranks)


@pytest.mark.parametrize("discipline", list(Discipline))
def test_ranks_that_ask_the_workers_of_their_own_nodes_would_wait_in_a_circle(discipline):
    _, stuck = explored(world([[2, 2]], discipline, own_node=True))
    assert stuck, "the exploration finds what one arbiter for each job rules out"
    waiting = {rank.job for rank in stuck[0].ranks if rank.state in ("in", "taken")}
    assert len(waiting) == 2
