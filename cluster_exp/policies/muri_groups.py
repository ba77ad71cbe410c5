"""How Muri forms groups: what it knows of kinds of groups, and its ways to choose who joins whom."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations_with_replacement

import numpy as np

from cluster_exp.domain.columns import FloatColumn, IntColumn
from cluster_exp.domain.models import GroupSpeed, Order, SpeedModel
from cluster_exp.domain.profile import StageProfile
from cluster_exp.domain.resources import NUM_RESOURCES
from cluster_exp.interleave.class_matching import ClassMatcher
from cluster_exp.interleave.efficiency import efficiency
from cluster_exp.interleave.fitting import WORTHLESS
from cluster_exp.interleave.large_matching import bounded_matching
from cluster_exp.policies.pairing import WIDTH, Pairing, merge

Kind = tuple[int, ...]  # profile classes of a group's members, ascending
_MOST_MATCHINGS = 100_000  # results that are kept
MOST_EXACT = 200  # kinds; a linear programme of more takes too long


@dataclass(frozen=True, slots=True)
class Groups:
    """Groups of jobs of one GPU count, in columns."""

    kind: IntColumn  # number in the `GroupTable`
    members: IntColumn  # slots, groups x WIDTH, sorted by profile class; -1 where there is none
    home: IntColumn  # number of the running group in which all the members are now; -1 = in none, or not in one

    @property
    def size(self) -> IntColumn:
        """Members by group."""
        size: IntColumn = np.count_nonzero(self.members >= 0, axis=1)
        return size

    def __getitem__(self, index: IntColumn) -> "Groups":
        return Groups(self.kind[index], self.members[index], self.home[index])


def present_kinds(kind: IntColumn) -> tuple[IntColumn, IntColumn, IntColumn]:
    """The kinds that there are, ascending; by group, its place among them; and how many groups each has."""
    number = np.bincount(kind)
    kinds = np.flatnonzero(number)
    place = np.empty(number.size, np.int64)
    place[kinds] = np.arange(kinds.size)
    return kinds, place[kind], number[kinds]


def joined(parts: Sequence[Groups]) -> Groups:
    """Several in one."""
    return Groups(
        np.concatenate([part.kind for part in parts]),
        np.concatenate([part.members for part in parts]),
        np.concatenate([part.home for part in parts]),
    )


@dataclass
class GroupTable:
    """Speeds, efficiencies and matchings of kinds of groups, each computed once; nothing in it depends on a job."""

    speed: SpeedModel
    turns: Order
    profiles: tuple[StageProfile, ...] = ()  # by profile class
    kinds: list[Kind] = field(default_factory=list, repr=False)
    _number_of: dict[Kind, int] = field(default_factory=dict, repr=False)
    _single: IntColumn = field(default_factory=lambda: np.empty(0, np.int64), repr=False)
    _matcher: ClassMatcher = field(default_factory=ClassMatcher, repr=False)
    _speeds: dict[int, GroupSpeed] = field(default_factory=dict, repr=False)
    _gammas: dict[int, float] = field(default_factory=dict, repr=False)
    _described: dict[int, str] = field(default_factory=dict, repr=False)
    _merged: dict[tuple[int, int], int] = field(default_factory=dict, repr=False)
    _matchings: dict[tuple[int, bytes, bytes], dict[tuple[int, int], int]] = field(default_factory=dict, repr=False)

    def learn(self, speed: SpeedModel, profiles: tuple[StageProfile, ...]) -> bool:
        """Takes more profile classes in; returns False when the table is about other ones, or another speed model."""
        if speed is not self.speed:
            return False
        if profiles is self.profiles:
            return True
        known = min(len(self.profiles), len(profiles))
        if self.profiles[:known] != profiles[:known]:
            return False
        if len(profiles) > known:
            self.profiles = profiles
        return True

    def number(self, kind: Kind) -> int:
        """The number of a kind, a new one if it is new."""
        if kind not in self._number_of:
            self._number_of[kind] = len(self.kinds)
            self.kinds.append(kind)
        return self._number_of[kind]

    def singles(self, profile_class: IntColumn) -> IntColumn:
        """Kinds of jobs alone."""
        if self._single.size < len(self.profiles):
            numbers = [self.number((profile_class,)) for profile_class in range(len(self.profiles))]
            self._single = np.array(numbers, dtype=np.int64)
        return self._single[profile_class]

    def merged(self, a: int, b: int) -> int:
        """The kind of a group of both."""
        key = (a, b)
        if key not in self._merged:
            self._merged[key] = self.number(tuple(sorted(self.kinds[a] + self.kinds[b])))
        return self._merged[key]

    def group_speed(self, kind: int) -> GroupSpeed:
        """Speed in the best (or worst) order of turns."""
        if kind not in self._speeds:
            self._speeds[kind] = self.speed.group(self._profiles(kind), self.turns)
        return self._speeds[kind]

    def gamma(self, kind: int) -> float:
        """Interleaving efficiency."""
        if kind not in self._gammas:
            self._gammas[kind] = efficiency(self._profiles(kind), self.group_speed(kind).cycle_s)
        return self._gammas[kind]

    def described(self, kind: int) -> str:
        """What plans say of such groups."""
        if kind not in self._described:
            cycle_s = self.group_speed(kind).cycle_s
            self._described[kind] = f"gamma={self.gamma(kind):.4f} cycle_s={cycle_s:.6g}"
        return self._described[kind]

    def slower_than_alone(self, kind: int) -> bool:
        """Whether the members would be faster one after another."""
        return self.group_speed(kind).cycle_s > sum(self.speed.alone_s(profile) for profile in self._profiles(kind))

    def matching(self, kinds: IntColumn, counts: IntColumn, group_size: int) -> dict[tuple[int, int], int]:
        """How many groups of each two kinds to join, by their places in `kinds`: a maximum-weight matching."""
        key = (group_size, kinds.tobytes(), counts.tobytes())
        if key not in self._matchings:
            if len(self._matchings) >= _MOST_MATCHINGS:
                self._matchings.clear()
            self._matchings[key] = self._matched(kinds.tolist(), counts.tolist(), group_size)
        return self._matchings[key]

    def _matched(self, kinds: Sequence[int], counts: Sequence[int], group_size: int) -> dict[tuple[int, int], int]:
        # Sorted by their members, so that the numbers that kinds happen to have decide nothing.
        by_members = sorted(range(len(kinds)), key=lambda i: self.kinds[kinds[i]])
        if len(kinds) > MOST_EXACT:
            return self._nearly_matched([kinds[i] for i in by_members], counts, by_members, group_size)
        sizes = [len(self.kinds[kinds[i]]) for i in by_members]
        weights = {
            (a, b): gamma
            for b in range(len(kinds))
            for a in range(b + 1)
            if sizes[a] + sizes[b] <= group_size
            and (gamma := self.gamma(self.merged(kinds[by_members[a]], kinds[by_members[b]]))) > WORTHLESS
        }
        pairs = self._matcher.match([counts[i] for i in by_members], weights)
        return {(by_members[a], by_members[b]): number for (a, b), number in pairs.items()}

    def _nearly_matched(
        self, kinds: Sequence[int], counts: Sequence[int], places: Sequence[int], group_size: int
    ) -> dict[tuple[int, int], int]:
        """The same for too many kinds to be exact: group by group, within a bound."""
        rows = np.repeat(np.arange(len(kinds)), [counts[place] for place in places])
        found = bounded_matching(self.efficiencies(kinds, group_size)[np.ix_(rows, rows)])
        numbers = Counter(zip(rows[found.first].tolist(), rows[found.second].tolist(), strict=True))
        return {(places[a], places[b]): number for (a, b), number in numbers.items()}

    def efficiencies(self, kinds: Sequence[int], group_size: int) -> FloatColumn:
        """Interleaving efficiency of each two kinds in one group, kinds x kinds; 0 where they are too many jobs."""
        members = [self.kinds[kind] for kind in kinds]
        sizes = np.array([len(kind) for kind in members])
        busy_s = np.array([profile.busy_s for profile in self.profiles])
        found = np.zeros((len(kinds), len(kinds)))
        for one, other in combinations_with_replacement(np.unique(sizes).tolist(), 2):
            if one + other > group_size:
                continue
            left, right = np.flatnonzero(sizes == one), np.flatnonzero(sizes == other)
            a, b = (side.ravel() for side in np.meshgrid(left, right, indexing="ij"))
            if one == other:
                a, b = a[a <= b], b[a <= b]
            both = np.array([members[i] + members[j] for i, j in zip(a.tolist(), b.tolist(), strict=True)])
            both.sort(axis=1)
            cycle_s = self.speed.cycles_s(self.profiles, both, self.turns)
            found[a, b] = found[b, a] = busy_s[both].sum(axis=1) / (NUM_RESOURCES * cycle_s)
        found[found < WORTHLESS] = 0.0
        return found

    def _profiles(self, kind: int) -> tuple[StageProfile, ...]:
        return tuple(self.profiles[profile_class] for profile_class in self.kinds[kind])


# (what is known of kinds, profile class by slot, groups of one job by GPU count, GPUs wanted beyond what there is,
# most jobs a group)
Grouping = Callable[[GroupTable, IntColumn, Mapping[int, Groups], int, int], list[Groups]]


def by_matching(
    table: GroupTable, profile_class: IntColumn, buckets: Mapping[int, Groups], excess: int, group_size: int
) -> list[Groups]:
    """Rounds of maximum-weight matching (Muri, SIGCOMM'22, section 4.2); pairs merge only while GPUs are short."""
    groups = dict(buckets)
    for _ in range(group_size):
        for num_gpu, present in groups.items():
            if excess <= 0:
                return list(groups.values())
            pairs = -(-excess // num_gpu)
            groups[num_gpu], merged = paired(table, profile_class, present, group_size, pairs)
            excess -= num_gpu * merged
    return list(groups.values())


def paired(
    table: GroupTable, profile_class: IntColumn, groups: Groups, group_size: int, most: int
) -> tuple[Groups, int]:
    """One round: a maximum-weight matching of the groups, of which the first `most` pairs merge; how many did."""
    kinds, local, counts = present_kinds(groups.kind)
    matching = table.matching(kinds, counts, group_size)
    if not matching:
        return groups, 0
    numbers = np.zeros((kinds.size, kinds.size), np.int64)
    merged_kind = np.zeros((kinds.size, kinds.size), np.int64)
    for (a, b), number in matching.items():
        numbers[a, b] = numbers[b, a] = number
        merged_kind[a, b] = merged_kind[b, a] = table.merged(int(kinds[a]), int(kinds[b]))
    first, second = np.empty(groups.kind.size, np.int64), np.empty(groups.kind.size, np.int64)
    homes = int(groups.home.max()) + 1
    found = min(most, Pairing(local, kinds.size, groups.home, homes, numbers.ravel()).pair(first, second))
    first, second = first[:found], second[:found]
    members, kind, new_home = groups.members.copy(), groups.kind.copy(), groups.home.copy()
    merge(found, first, second, members.ravel(), profile_class)
    kind[first] = merged_kind[local[first], local[second]]
    new_home[first] = np.where(new_home[first] == new_home[second], new_home[first], -1)
    left = np.ones(kind.size, dtype=bool)
    left[second] = False
    return Groups(kind[left], members[left], new_home[left]), found


def by_chunks(
    table: GroupTable, profile_class: IntColumn, buckets: Mapping[int, Groups], excess: int, group_size: int
) -> list[Groups]:
    """Consecutive jobs of a bucket, whatever their stages: what matching is compared with in the paper."""
    groups = []
    for num_gpu, jobs in buckets.items():
        chunks: list[list[int]] = []
        for at, slot in enumerate(jobs.members[:, 0].tolist()):
            if at % group_size and excess > 0:
                chunks[-1].append(slot)
                excess -= num_gpu
            else:
                chunks.append([slot])
        groups.append(_of_chunks(table, profile_class, chunks))
    return groups


def _of_chunks(table: GroupTable, profile_class: IntColumn, chunks: Sequence[Sequence[int]]) -> Groups:
    members = np.full((len(chunks), WIDTH), -1, np.int64)
    kinds = []
    for row, chunk in enumerate(chunks):
        slots = sorted(chunk, key=lambda slot: int(profile_class[slot]))
        members[row, : len(slots)] = slots
        kinds.append(table.number(tuple(int(profile_class[slot]) for slot in slots)))
    return Groups(np.array(kinds, dtype=np.int64), members, np.full(len(chunks), -1, np.int64))
