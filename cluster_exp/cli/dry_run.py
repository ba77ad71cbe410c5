"""--dry-run: the first plan, before anything runs."""

from cluster_exp.cli.options import RunSpec
from cluster_exp.domain.actions import Launch, SetTurns
from cluster_exp.domain.allotment import Allotment
from cluster_exp.domain.cluster import ClusterSpec
from cluster_exp.domain.events import JobArrived, PlanDue, WorkerJoined
from cluster_exp.domain.policy import Policy
from cluster_exp.results.tables import table
from cluster_exp.sim.simulate import make_cost, make_scheduler


def print_first_plan(spec: RunSpec, policy: Policy) -> None:
    """Prints the groups that a policy would start when the first jobs have arrived."""
    scheduler = make_scheduler(policy, spec.rules, make_cost(policy, spec.rules, spec.start_cost()))
    first_s = spec.jobs[0].submit_s
    for node, node_spec in enumerate(spec.cluster.nodes):
        scheduler.handle(WorkerJoined(first_s, node, node_spec))
    arrived = [job for job in spec.jobs if job.submit_s == first_s]
    for job in arrived:
        scheduler.handle(JobArrived(first_s, job))
    actions = scheduler.handle(PlanDue(first_s))
    offsets = {
        member.job_id: member.offset
        for action in actions
        if isinstance(action, SetTurns)
        for member in action.group.members
    }
    rows = [
        (
            str(action.group_id),
            action.job.job_id,
            action.job.model,
            action.job.num_gpu,
            _place(action.allotment, spec.cluster),
            str(offsets[action.job.job_id]),
            action.reason,
        )
        for action in actions
        if isinstance(action, Launch)
    ]
    print(f"{policy.name}: first plan at {first_s:g} s, {len(arrived)} jobs there, {len(rows)} start")
    print(table(("group", "job", "model", "GPUs", "place", "turn offset", "reason"), rows))


def _place(allotment: Allotment, cluster: ClusterSpec) -> str:
    return " ".join(
        f"{cluster.nodes[share.node].name}:{','.join(str(gpu) for gpu in share.gpus)}" for share in allotment.shares
    )
