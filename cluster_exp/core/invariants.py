"""What must hold after every event."""

from collections.abc import Mapping

import numpy as np

from cluster_exp.core.groups import RunningGroup
from cluster_exp.core.places import Nodes
from cluster_exp.core.state import JobTable
from cluster_exp.domain.columns import IntColumn
from cluster_exp.domain.errors import InvariantError
from cluster_exp.domain.memory import MemoryRules
from cluster_exp.domain.plan import GroupColumns, Plan
from cluster_exp.domain.resources import MAX_GROUP_SIZE, NUM_RESOURCES

_TOLERANCE = 1e-9  # of a sum of shares


def check_holders(jobs: JobTable, nodes: Nodes, groups: Mapping[int, RunningGroup]) -> None:
    """Raises InvariantError unless GPUs, jobs and groups belong to one another as they should.

    A job that holds GPUs has as many as it asked for, on nodes that are up; what the groups on a GPU ask of it sums
    to at most the whole GPU; every job that holds GPUs is in exactly one group, of at most four.
    """
    sizes = nodes.sizes
    asked: dict[tuple[int, int], dict[int, float]] = {}  # (node, GPU) -> group -> share of the GPU
    for slot in jobs.holders:
        job = jobs.live[slot]
        if job.allotment is None:
            raise InvariantError(f"job {job.spec.job_id} is {job.history[-1].name} without GPUs")
        if job.allotment.num_gpu != job.spec.num_gpu:
            raise InvariantError(f"job {job.spec.job_id} has {job.allotment.num_gpu} of {job.spec.num_gpu} GPUs")
        group = int(jobs.int_column("group")[slot])
        if group not in groups or slot not in groups[group].members:
            raise InvariantError(f"job {job.spec.job_id} is not in its group {group}")
        for share in job.allotment.shares:
            for gpu in share.gpus:
                if gpu >= sizes.get(share.node, 0):
                    raise InvariantError(f"job {job.spec.job_id} holds GPU {share.node}/{gpu}, which is not there")
                groups_there = asked.setdefault((share.node, gpu), {})
                groups_there[group] = max(share.fraction, groups_there.get(group, 0.0))
    for (node, gpu), shares in asked.items():
        if sum(shares.values()) > 1.0 + _TOLERANCE:
            raise InvariantError(f"groups {sorted(shares)} together hold more than GPU {node}/{gpu}")
    members = [slot for group in groups.values() for slot in group.members]
    if sorted(members) != sorted(jobs.holders):
        raise InvariantError("a job holds GPUs outside a group, or is in two groups")
    if any(len(group.members) > MAX_GROUP_SIZE for group in groups.values()):
        raise InvariantError(f"a group has more than {MAX_GROUP_SIZE} jobs")


def check_plan(policy: str, plan: Plan, wanted: GroupColumns, jobs: JobTable) -> None:
    """Raises InvariantError, which names the policy, for a plan that cannot be.

    Groups have one to four members with distinct offsets in 0..3; each job is live and in one group. A job whose
    profile is a guess is alone.
    """
    status = jobs.int_column("status")
    seen = np.zeros(status.size, dtype=bool)
    if wanted.jobs.size:
        if wanted.jobs.min() < 0 or wanted.jobs.max() >= status.size:
            raise InvariantError(f"{policy} plans a slot that is none: {wanted.jobs.tolist()}")
        seen[wanted.jobs] = True
    if np.count_nonzero(seen) != wanted.jobs.size or (status[wanted.jobs] < 0).any():
        slot = next(slot for i, slot in enumerate(wanted.jobs.tolist()) if _wrong(i, slot, wanted, status))
        raise InvariantError(f"{policy} plans slot {slot} twice, or it holds no job, or one that has to wait")
    if not wanted.single:
        _check_turns(policy, plan, wanted)
    if jobs.guessed:
        _check_alone(policy, plan, jobs)
    if jobs.memory is not None and not wanted.single:
        _check_memory(policy, plan, jobs, jobs.memory)


def _check_alone(policy: str, plan: Plan, jobs: JobTable) -> None:
    """Raises InvariantError where a job whose profile is a guess shares GPUs with another."""
    groups_on: dict[tuple[int, int], int] = {}  # where the policy places: groups by GPU
    for group in plan.groups:
        for gpu in {gpu for allotment in group.allotments or () for gpu in allotment.gpus}:
            groups_on[gpu] = groups_on.get(gpu, 0) + 1
    for group in plan.groups:
        for slot in jobs.guessed.intersection(group.jobs):
            shared = any(groups_on[gpu] > 1 for allotment in group.allotments or () for gpu in allotment.gpus)
            if len(group.jobs) > 1 or shared:
                job_id = jobs.live[slot].spec.job_id
                raise InvariantError(f"{policy} lets job {job_id} share GPUs before it was measured: {group}")


def _check_memory(policy: str, plan: Plan, jobs: JobTable, memory: MemoryRules) -> None:
    """Raises InvariantError for a group whose members do not fit into a GPU's memory together."""
    classes = jobs.int_column("profile_class")
    for group in plan.groups:
        profiles = [jobs.profiles[classes[slot]] for slot in group.jobs]
        if not memory.fit(profiles):
            needed = sum(profile.memory_mib for profile in profiles)
            raise InvariantError(f"{policy} plans {needed:g} MiB on GPUs of {memory.gpu_mib:g} MiB: {group}")


def _check_turns(policy: str, plan: Plan, wanted: GroupColumns) -> None:
    size, offsets = wanted.size, wanted.offsets
    if offsets.size != wanted.jobs.size or not size.size == len(plan.groups):
        raise InvariantError(f"{policy} plans {wanted.jobs.size} jobs with {offsets.size} offsets")
    if size.size and not 1 <= size.min() <= size.max() <= MAX_GROUP_SIZE:
        group = plan.groups[int(np.flatnonzero((size < 1) | (size > MAX_GROUP_SIZE))[0])]
        raise InvariantError(f"{policy} plans a group of {len(group.jobs)} jobs: {group}")
    key = np.repeat(np.arange(size.size) * NUM_RESOURCES, size) + offsets
    used = np.zeros(size.size * NUM_RESOURCES, dtype=bool)
    if ((offsets >= 0) & (offsets < NUM_RESOURCES)).all():
        used[key] = True
        if np.count_nonzero(used) == offsets.size:
            return
    group = next(g for g in plan.groups if len({o for o in g.offsets if 0 <= o < NUM_RESOURCES}) < len(g.jobs))
    raise InvariantError(f"{policy} plans offsets that are not distinct in 0..3: {group}")


def _wrong(i: int, slot: int, wanted: GroupColumns, status: IntColumn) -> bool:
    return bool(status[slot] < 0 or slot in wanted.jobs[:i])
