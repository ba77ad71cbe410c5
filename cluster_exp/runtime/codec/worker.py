"""Messages of the worker's service."""

from collections.abc import Iterable

from cluster_exp.domain.actions import GroupMember, TurnGroup
from cluster_exp.domain.resources import MAX_GROUP_SIZE, NUM_RESOURCES
from cluster_exp.protocol.messages import Endpoint, LaunchOrder, Order, PreemptOrder, TrainerStatus, TurnsOrder
from cluster_exp.protocol.turn_token import DIGITS
from cluster_exp.runtime import fields
from cluster_exp.runtime.codec.records import job_from, job_to, share_from, share_to, status_from, status_to
from cluster_exp.runtime.fields import FieldError
from cluster_exp.runtime.rpc import worker_pb2 as worker

_MAX_ITERATIONS_PER_TURN = 1_000_000_000


def statuses_to(statuses: Iterable[TrainerStatus]) -> worker.QueryTrainersReply:
    """The answer to a trainer query."""
    return worker.QueryTrainersReply(trainers=[status_to(status) for status in statuses])


def statuses_from(message: worker.QueryTrainersReply) -> tuple[TrainerStatus, ...]:
    """A node's trainers."""
    fields.few("trainers", message.trainers)
    return tuple(status_from(entry, f"trainers[{i}]") for i, entry in enumerate(message.trainers))


def launch_to(order: LaunchOrder) -> worker.LaunchOrder:
    """The message that starts a node's part of a job."""
    return worker.LaunchOrder(
        job=job_to(order.job),
        generation=order.generation,
        shares=[share_to(share) for share in order.shares],
        iterations_done=order.iterations_done,
        iterations_per_turn=order.iterations_per_turn,
        turns_address=order.turns_address,
        turns_token=order.turns_token,
        endpoint=None if order.endpoint is None else endpoint_to(order.endpoint),
    )


def launch_from(message: worker.LaunchOrder) -> LaunchOrder:
    """A job to start; its shares are by node and add up to its GPUs."""
    job = job_from(message.job)
    fields.few("shares", message.shares, least=1)
    shares = tuple(share_from(entry, f"shares[{i}]") for i, entry in enumerate(message.shares))
    fields.ascending("shares[].node", (share.node for share in shares))
    held = sum(len(share.gpus) for share in shares)
    if held != job.num_gpu:
        raise FieldError("shares (GPUs)", held, f"{job.num_gpu}, the job's GPUs, are")
    return LaunchOrder(
        job=job,
        generation=fields.count("generation", message.generation, 1),
        shares=shares,
        iterations_done=fields.count("iterations_done", message.iterations_done, 0, job.iterations),
        iterations_per_turn=_per_turn_from(message.iterations_per_turn),
        turns_address=fields.address("turns_address", message.turns_address),
        turns_token=fields.digits("turns_token", message.turns_token, DIGITS),
        endpoint=endpoint_from(message.endpoint) if message.HasField("endpoint") else None,
    )


def endpoint_to(endpoint: Endpoint) -> worker.Endpoint:
    """The message of a meeting place."""
    return worker.Endpoint(backend=endpoint.backend, address=endpoint.address, port=endpoint.port)


def endpoint_from(message: worker.Endpoint) -> Endpoint:
    """Where the ranks of a launch meet."""
    if message.backend not in ("horovod", "torch"):
        raise FieldError("endpoint.backend", message.backend, "horovod or torch")
    fields.address("endpoint", f"{message.address}:{message.port}")
    return Endpoint(message.backend, message.address, message.port)


def _per_turn_from(value: int) -> int:
    return fields.count("iterations_per_turn", value, 1, _MAX_ITERATIONS_PER_TURN)


def preempt_to(order: PreemptOrder) -> worker.PreemptOrder:
    """The message that stops a job."""
    return worker.PreemptOrder(job_id=order.job_id, generation=order.generation)


def preempt_from(message: worker.PreemptOrder) -> PreemptOrder:
    """A job to stop."""
    return PreemptOrder(
        job_id=fields.name("job_id", message.job_id),
        generation=fields.count("generation", message.generation, 1),
    )


def turns_to(order: TurnsOrder) -> worker.TurnsOrder:
    """The message that sets a group's turns."""
    group = order.group
    return worker.TurnsOrder(
        group_id=group.group_id,
        version=group.version,
        members=[
            worker.TurnMember(job_id=member.job_id, generation=member.generation, offset=member.offset)
            for member in group.members
        ],
        lead_node=group.lead_node,
        iterations_per_turn=order.iterations_per_turn,
    )


def turns_from(message: worker.TurnsOrder) -> TurnsOrder:
    """A group's turns; offsets are distinct."""
    fields.few("members", message.members, least=1, most=MAX_GROUP_SIZE)
    members = tuple(
        GroupMember(
            job_id=fields.name(f"members[{i}].job_id", entry.job_id),
            offset=fields.count(f"members[{i}].offset", entry.offset, 0, NUM_RESOURCES - 1),
            generation=fields.count(f"members[{i}].generation", entry.generation, 1),
        )
        for i, entry in enumerate(message.members)
    )
    if len({member.offset for member in members}) < len(members):
        raise FieldError("members[].offset", [member.offset for member in members], "distinct offsets")
    group = TurnGroup(
        group_id=fields.count("group_id", message.group_id),
        version=fields.count("version", message.version, 1),
        members=members,
        lead_node=message.lead_node,
    )
    return TurnsOrder(group, _per_turn_from(message.iterations_per_turn))


def orders_to(orders: Iterable[Order], instance: str) -> worker.OrdersRequest:
    """The message of orders, in their order, to the worker that registered as `instance`."""
    return worker.OrdersRequest(orders=[_order_to(order) for order in orders], instance=instance)


def _order_to(order: Order) -> worker.Order:
    match order:
        case LaunchOrder():
            return worker.Order(launch=launch_to(order))
        case PreemptOrder():
            return worker.Order(preempt=preempt_to(order))
        case TurnsOrder():
            return worker.Order(turns=turns_to(order))


def order_from(message: worker.Order) -> Order:
    """One order."""
    match message.WhichOneof("what"):
        case "launch":
            return launch_from(message.launch)
        case "preempt":
            return preempt_from(message.preempt)
        case "turns":
            return turns_from(message.turns)
    raise FieldError("what", None, "launch, preempt or turns")
