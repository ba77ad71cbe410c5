"""How Muri forms groups: what it knows of kinds of groups, and its ways to choose who joins whom."""

from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from cluster_exp.domain.models import GroupSpeed, Order, SpeedModel
from cluster_exp.domain.profile import StageProfile
from cluster_exp.interleave.class_matching import ClassMatcher
from cluster_exp.interleave.efficiency import efficiency
from cluster_exp.interleave.matching import Pair

Kind = tuple[int, ...]  # profile classes of a group's members, ascending
_MOST_MATCHINGS = 100_000  # results that are kept


@dataclass(frozen=True, slots=True)
class Group:
    """Jobs that are to share GPUs."""

    kind: Kind
    jobs: tuple[int, ...]  # slots, parallel to `kind`
    home: int = -1  # the running group in which all the jobs are now; -1 = in none, or not in one

    def with_(self, other: "Group") -> "Group":
        """One group of both."""
        members = sorted(zip(self.kind + other.kind, self.jobs + other.jobs, strict=True), key=_kind_of)
        kind, jobs = zip(*members, strict=True)
        return Group(kind, jobs, self.home if self.home == other.home else -1)


def _kind_of(member: tuple[int, int]) -> int:
    return member[0]


@dataclass
class GroupTable:
    """Speeds, efficiencies and matchings of kinds of groups, each computed once; nothing in it depends on a job."""

    speed: SpeedModel
    turns: Order
    profiles: tuple[StageProfile, ...] = ()  # by profile class
    _matcher: ClassMatcher = field(default_factory=ClassMatcher, repr=False)
    _speeds: dict[Kind, GroupSpeed] = field(default_factory=dict, repr=False)
    _gammas: dict[Kind, float] = field(default_factory=dict, repr=False)
    _weights: dict[tuple[Kind, Kind], float] = field(default_factory=dict, repr=False)
    _matchings: dict[tuple[int, tuple[tuple[Kind, int], ...]], dict[tuple[Kind, Kind], int]] = field(
        default_factory=dict, repr=False
    )

    def learn(self, speed: SpeedModel, profiles: tuple[StageProfile, ...]) -> bool:
        """Takes more profile classes in; returns False when the table is about other ones, or another speed model."""
        known = min(len(self.profiles), len(profiles))
        if speed is not self.speed or self.profiles[:known] != profiles[:known]:
            return False
        if len(profiles) > known:
            self.profiles = profiles
        return True

    def group_speed(self, kind: Kind) -> GroupSpeed:
        """Speed in the best (or worst) order of turns."""
        if kind not in self._speeds:
            self._speeds[kind] = self.speed.group(self._profiles(kind), self.turns)
        return self._speeds[kind]

    def gamma(self, kind: Kind) -> float:
        """Interleaving efficiency."""
        if kind not in self._gammas:
            self._gammas[kind] = efficiency(self._profiles(kind), self.group_speed(kind).cycle_s)
        return self._gammas[kind]

    def slower_than_alone(self, kind: Kind) -> bool:
        """Whether the members would be faster one after another."""
        return self.group_speed(kind).cycle_s > sum(self.speed.alone_s(profile) for profile in self._profiles(kind))

    def matching(self, counts: Mapping[Kind, int], group_size: int) -> dict[tuple[Kind, Kind], int]:
        """How many groups of each two kinds to join: a maximum-weight matching, by efficiency."""
        key = (group_size, tuple(sorted(counts.items())))
        if key not in self._matchings:
            if len(self._matchings) >= _MOST_MATCHINGS:
                self._matchings.clear()
            self._matchings[key] = self._matched(key[1], group_size)
        return self._matchings[key]

    def _matched(self, counts: Sequence[tuple[Kind, int]], group_size: int) -> dict[tuple[Kind, Kind], int]:
        kinds = [kind for kind, _ in counts]
        weights = {
            (a, b): self._weight(kinds[a], kinds[b])
            for b in range(len(kinds))
            for a in range(b + 1)
            if len(kinds[a]) + len(kinds[b]) <= group_size
        }
        pairs = self._matcher.match([count for _, count in counts], weights)
        return {(kinds[a], kinds[b]): number for (a, b), number in pairs.items()}

    def _weight(self, left: Kind, right: Kind) -> float:
        key = (left, right)
        if key not in self._weights:
            self._weights[key] = self.gamma(tuple(sorted(left + right)))
        return self._weights[key]

    def _profiles(self, kind: Kind) -> tuple[StageProfile, ...]:
        return tuple(self.profiles[profile_class] for profile_class in kind)


# (what is known of kinds, groups of one job by GPU count, GPUs wanted beyond what there is, most jobs a group)
Grouping = Callable[[GroupTable, Mapping[int, Sequence[Group]], int, int], list[Group]]


def by_matching(
    table: GroupTable, buckets: Mapping[int, Sequence[Group]], excess: int, group_size: int
) -> list[Group]:
    """Rounds of maximum-weight matching (Muri, SIGCOMM'22, section 4.2); pairs merge only while GPUs are short."""
    groups = {num_gpu: list(present) for num_gpu, present in buckets.items()}
    for _ in range(group_size):
        if excess <= 0:
            break
        for num_gpu, present in groups.items():
            if excess <= 0:
                break
            merged: dict[int, Group] = dict(enumerate(present))
            for i, j in _pairs(table, present, group_size):
                if excess <= 0:
                    break
                merged[i] = merged[i].with_(merged.pop(j))
                excess -= num_gpu
            groups[num_gpu] = list(merged.values())
    return [group for present in groups.values() for group in present]


class _Pairing:
    """Turns numbers of pairs of kinds into pairs of groups; which groups of a kind are paired is free."""

    def __init__(self, groups: Sequence[Group], matching: Mapping[tuple[Kind, Kind], int]) -> None:
        self._groups = groups
        self._left: dict[Kind, dict[Kind, int]] = {}  # pairs still to be made, by both kinds
        for (a, b), number in matching.items():
            self._left.setdefault(a, {})[b] = number
            self._left.setdefault(b, {})[a] = number
        self.pairs: list[Pair] = []  # indices, the smaller one first
        self._paired: set[int] = set()

    def keep_together(self) -> None:
        """Pairs groups whose jobs share GPUs already."""
        at_home: dict[int, list[int]] = {}
        for j, group in enumerate(self._groups):
            if group.home < 0 or group.kind not in self._left:
                continue
            mates = at_home.setdefault(group.home, [])
            mate = next((i for i in mates if self._groups[i].kind in self._left.get(group.kind, ())), None)
            if mate is None:
                mates.append(j)
            else:
                mates.remove(mate)
                self._pair(mate, j)

    def fill_up(self) -> None:
        """Pairs the first of the others, each with the last that it may have, as Blossom does among equals."""
        unpaired: dict[Kind, deque[int]] = {kind: deque() for kind in self._left}
        for j, group in enumerate(self._groups):
            if group.kind in unpaired and j not in self._paired:
                unpaired[group.kind].append(j)
        for i, group in enumerate(self._groups):
            if i in self._paired or group.kind not in unpaired:
                continue
            unpaired[group.kind].popleft()
            last = max((unpaired[kind][-1] for kind in self._left[group.kind] if unpaired[kind]), default=None)
            if last is not None:
                unpaired[self._groups[last].kind].pop()
                self._pair(i, last)

    def _pair(self, i: int, j: int) -> None:
        self.pairs.append((i, j))
        self._paired |= {i, j}
        a, b = self._groups[i].kind, self._groups[j].kind
        for one, other in {(a, b), (b, a)}:
            self._left[one][other] -= 1
            if not self._left[one][other]:
                del self._left[one][other]


def _pairs(table: GroupTable, groups: Sequence[Group], group_size: int) -> list[Pair]:
    """A maximum-weight matching of the groups, as pairs of indices by the larger one."""
    pairing = _Pairing(groups, table.matching(Counter(group.kind for group in groups), group_size))
    pairing.keep_together()
    pairing.fill_up()
    return sorted(pairing.pairs, key=lambda pair: pair[1])


def by_chunks(table: GroupTable, buckets: Mapping[int, Sequence[Group]], excess: int, group_size: int) -> list[Group]:
    """Consecutive jobs of a bucket, whatever their stages: what matching is compared with in the paper."""
    groups: list[Group] = []
    for num_gpu, jobs in buckets.items():
        for at, job in enumerate(jobs):
            if at % group_size and excess > 0:
                groups[-1] = groups[-1].with_(job)
                excess -= num_gpu
            else:
                groups.append(job)
    return groups
