"""Which of a group's jobs get their turns now, by each discipline. Pure functions of what `turns_state` keeps.

A turn locks one resource or several, all of them or none; resources are given as masks, bit r = resource r.
"""

from collections.abc import Sequence

from cluster_exp.domain.resources import NUM_RESOURCES
from cluster_exp.protocol.turns_state import Group, JobKey, Message, Party, Phase


def lockstep(group: Group, parties: Sequence[Party], bound: dict[JobKey, int | None]) -> tuple[list[Message], bool]:
    """Serves whoever is due in the slot, or begins the next one.

    That needs everybody to have given back, and everyone who follows the slots to have said what comes next. Two who
    are due and want the same resource, because one of them wants several, have it one after the other, in turn order.

    Args:
        group: its offsets in turn order.
        parties: its members that are there.
        bound: jobs that leave the group at their next boundary.

    Returns:
        Messages, and whether somebody passed its stage, which may end the slot, or its iteration.
    """
    messages, passed = _serve_due(group, parties)
    if group.due or any(party.occupies for party in parties):
        return messages, passed
    if group.pending is not None:
        _realign(group, parties, bound)
    followers = [party for party in parties if party.aligned]
    if any(not party.ready for party in followers):
        return messages, passed
    # A newcomer joins at the slot of its stage. While new offsets wait, only former members begin an iteration.
    ready = [party for party in parties if party.ready and not party.aligned]
    newcomers = [p for p in ready if group.pending is None or p.stage != 0 or p.key in bound]
    going = [*followers, *newcomers]
    if not going:
        return messages, passed
    group.slot += 1
    if not followers:
        group.slot = (going[0].stage - group.offsets[going[0].key]) % NUM_RESOURCES
    taken: set[int] = set()
    for party in going:
        stage = (group.slot + group.offsets[party.key]) % NUM_RESOURCES
        if party.stage == stage and stage not in taken:
            taken.add(stage)
            party.aligned = True
            group.due.append(party.key)
    more, passed_too = _serve_due(group, parties)
    return messages + more, passed or passed_too


def _serve_due(group: Group, parties: Sequence[Party]) -> tuple[list[Message], bool]:
    """Grants those of the slot's turns that collide with none that is held."""
    messages: list[Message] = []
    passed = False
    if not group.due:
        return messages, passed
    there = {party.key: party for party in parties if party.ready and party.aligned}
    busy = _occupied(parties)
    waiting = []
    for key in group.due:
        party = there.get(key)
        if party is None:  # it left meanwhile
            continue
        if party.wanted & busy & ~party.occupies:
            waiting.append(key)
            continue
        messages += party.grant()
        busy |= party.occupies
        passed |= not party.holding
    group.due = waiting
    return messages, passed


def _realign(group: Group, parties: Sequence[Party], bound: dict[JobKey, int | None]) -> None:
    """Takes over the pending offsets once nobody is left who follows the old ones inside an iteration."""
    for party in parties:
        party.aligned &= party.stage % NUM_RESOURCES != 0
    if group.pending is not None and not any(p.aligned or p.key in bound for p in parties):
        group.offsets, group.pending = group.pending, None


def work_conserving(group: Group, parties: Sequence[Party]) -> list[Message]:
    """Gives each free resource to the next member, after its last holder in turn order, that waits for it.

    A member that waits is passed over by each other member once at most, also when it waits for several resources
    that are free by turns: whoever went before it once already has to let it go first.
    """
    messages: list[Message] = []
    waiting = [party for party in parties if party.ready]
    if not waiting:
        return messages
    busy = _occupied(parties)
    place = {key: i for i, key in enumerate(group.offsets)}
    for resource in range(NUM_RESOURCES):
        rivals = [party for party in waiting if party.wanted >> resource & 1]
        last = group.last.get(resource)
        first = place[last] + 1 if last in place else 0
        for party in sorted(rivals, key=lambda one: (place[one.key] - first) % len(place)):
            others = [other for other in waiting if other is not party and other.wanted & party.wanted]
            if party.wanted & busy & ~party.occupies or any(party.key in other.overtaken_by for other in others):
                continue
            waiting.remove(party)
            for other in others:
                other.overtaken_by.add(party.key)
            for each in range(NUM_RESOURCES):
                if party.wanted >> each & 1:
                    group.last[each] = party.key
            messages += party.grant()
            busy |= party.occupies
            break
    return messages


def helped(party: Party, others: Sequence[Party], steps: bool) -> list[Message]:
    """Grants what a job's prefetching processes ask for.

    They share in what their job holds. Beyond that they may use what nobody else holds or waits for, unless another
    job is inside an iteration and asks for no turns, or in lockstep (`steps`): there prefetching belongs into the
    job's slot.
    """
    inside = Phase.FREE in {other.phase for other in others} or (steps and any(other.inside for other in others))
    messages: list[Message] = []
    for process, wanted in list(party.help_wanted.items()):
        free = not any(other.occupies & wanted or (other.ready and other.wanted & wanted) for other in others)
        if not wanted & ~party.held_now or (free and not inside):
            messages.append(party.grant_help(process))
    return messages


def _occupied(parties: Sequence[Party]) -> int:
    busy = 0
    for party in parties:
        busy |= party.occupies
    return busy
