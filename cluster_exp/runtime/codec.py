"""Protobuf messages to records and back: the only place that knows both.

Every `*_from` function checks each field that arrives and raises `FieldError` naming the first that is bad.
"""

import math
from collections.abc import Callable, Iterable

from cluster_exp.domain.actions import GroupMember, TurnGroup
from cluster_exp.domain.allotment import NodeShare
from cluster_exp.domain.job import JobSpec, JobStatus
from cluster_exp.domain.profile import StageProfile
from cluster_exp.domain.resources import MAX_GROUP_SIZE, NUM_RESOURCES
from cluster_exp.protocol.messages import (
    JobView,
    LaunchOrder,
    NodeView,
    PreemptOrder,
    Registration,
    ReportBatch,
    ReportKind,
    TrainerReport,
    TrainerState,
    TrainerStatus,
    TurnsOrder,
    Welcome,
)
from cluster_exp.runtime import fields
from cluster_exp.runtime.fields import FieldError
from cluster_exp.runtime.rpc import common_pb2 as common
from cluster_exp.runtime.rpc import master_pb2 as master
from cluster_exp.runtime.rpc import worker_pb2 as worker

_MAX_GPUS = 1_000_000
_MAX_ITERATIONS_PER_TURN = 1_000_000_000
_MAX_PRIORITY = 1_000
_JOB_STATES = {status: master.JobState.Value(f"JOB_STATE_{status.name}") for status in JobStatus}
_STATUSES = {state: status for status, state in _JOB_STATES.items()}


# Jobs


def profile_to(profile: StageProfile) -> common.StageProfile:
    """The message of a stage profile."""
    return common.StageProfile(
        iteration_s=profile.iteration_s,
        storage_s=profile.storage_s,
        cpu_s=profile.cpu_s,
        gpu_s=profile.gpu_s,
        network_s=profile.network_s,
    )


def profile_from(message: common.StageProfile, where: str) -> StageProfile:
    """A stage profile; some stage takes time."""
    profile = StageProfile(
        iteration_s=fields.number(f"{where}.iteration_s", message.iteration_s, positive=True),
        storage_s=fields.number(f"{where}.storage_s", message.storage_s),
        cpu_s=fields.number(f"{where}.cpu_s", message.cpu_s),
        gpu_s=fields.number(f"{where}.gpu_s", message.gpu_s),
        network_s=fields.number(f"{where}.network_s", message.network_s),
    )
    if not profile.busy_s > 0 or not math.isfinite(profile.busy_s):
        raise FieldError(f"{where} (sum of stages)", profile.busy_s, "a finite number above 0")
    return profile


def job_to(job: JobSpec) -> common.JobSpec:
    """The message of a job."""
    message = common.JobSpec(
        job_id=job.job_id,
        num_gpu=job.num_gpu,
        iterations=job.iterations,
        submit_s=job.submit_s,
        duration_s=job.duration_s,
        model=job.model,
        batch_size=job.batch_size,
        profile=profile_to(job.profile),
        user=job.user,
        queue=job.queue,
        priority=job.priority,
        gpu_type=job.gpu_type,
        gpu_fraction=job.gpu_fraction,
    )
    if not math.isnan(job.gpu_memory_mib):
        message.gpu_memory_mib = job.gpu_memory_mib
    return message


def job_from(message: common.JobSpec, where: str = "job") -> JobSpec:
    """A job."""
    fraction = message.gpu_fraction if message.HasField("gpu_fraction") else 1.0
    memory_mib = math.nan
    if message.HasField("gpu_memory_mib"):
        memory_mib = fields.number(f"{where}.gpu_memory_mib", message.gpu_memory_mib)
    if abs(message.priority) > _MAX_PRIORITY:
        raise FieldError(f"{where}.priority", message.priority, f"-{_MAX_PRIORITY} to {_MAX_PRIORITY}")
    return JobSpec(
        job_id=fields.name(f"{where}.job_id", message.job_id),
        num_gpu=fields.count(f"{where}.num_gpu", message.num_gpu, 1, _MAX_GPUS),
        submit_s=fields.number(f"{where}.submit_s", message.submit_s),
        iterations=fields.count(f"{where}.iterations", message.iterations),
        duration_s=fields.number(f"{where}.duration_s", message.duration_s),
        model=fields.name(f"{where}.model", message.model, empty=True),
        batch_size=message.batch_size,
        profile=profile_from(message.profile, f"{where}.profile"),
        user=fields.name(f"{where}.user", message.user, empty=True),
        queue=fields.name(f"{where}.queue", message.queue, empty=True) or "default",
        priority=message.priority,
        gpu_type=fields.name(f"{where}.gpu_type", message.gpu_type, empty=True),
        gpu_fraction=fields.number(f"{where}.gpu_fraction", fraction, positive=True, most=1.0),
        gpu_memory_mib=memory_mib,
    )


def submission_from(message: master.SubmitJobRequest) -> tuple[str, tuple[JobSpec, ...]]:
    """The request id and the jobs of a submission; ids are distinct."""
    request_id = fields.name("request_id", message.request_id)
    fields.few("jobs", message.jobs, least=1)
    jobs = tuple(job_from(job, f"jobs[{i}]") for i, job in enumerate(message.jobs))
    seen: set[str] = set()
    for i, job in enumerate(jobs):
        if job.job_id in seen:
            raise FieldError(f"jobs[{i}].job_id", job.job_id, "each id once")
        seen.add(job.job_id)
    return request_id, jobs


def submission_to(request_id: str, jobs: Iterable[JobSpec]) -> master.SubmitJobRequest:
    """The message that submits jobs."""
    return master.SubmitJobRequest(request_id=request_id, jobs=[job_to(job) for job in jobs])


# Registration


def _status_to(status: TrainerStatus) -> common.TrainerStatus:
    message = common.TrainerStatus(
        job_id=status.job_id,
        generation=status.generation,
        state=common.TrainerState.Name(int(status.state)),
        pid=status.pid,
        iterations_done=status.iterations_done,
    )
    if status.last_report_age_s is not None:
        message.last_report_age_s = status.last_report_age_s
    return message


def _status_from(message: common.TrainerStatus, where: str) -> TrainerStatus:
    if int(message.state) not in set(TrainerState):
        raise FieldError(f"{where}.state", message.state, "STARTING, RUNNING or STOPPING")
    age_s = None
    if message.HasField("last_report_age_s"):
        age_s = fields.number(f"{where}.last_report_age_s", message.last_report_age_s)
    return TrainerStatus(
        job_id=fields.name(f"{where}.job_id", message.job_id),
        generation=fields.count(f"{where}.generation", message.generation, 1),
        state=TrainerState(message.state),
        pid=fields.count(f"{where}.pid", message.pid, 1),
        iterations_done=fields.count(f"{where}.iterations_done", message.iterations_done),
        last_report_age_s=age_s,
    )


def statuses_to(statuses: Iterable[TrainerStatus]) -> worker.QueryTrainersReply:
    """The answer to a trainer query."""
    return worker.QueryTrainersReply(trainers=[_status_to(status) for status in statuses])


def statuses_from(message: worker.QueryTrainersReply) -> tuple[TrainerStatus, ...]:
    """A node's trainers."""
    fields.few("trainers", message.trainers)
    return tuple(_status_from(entry, f"trainers[{i}]") for i, entry in enumerate(message.trainers))


def registration_to(registration: Registration) -> master.RegisterRequest:
    """The message that offers a node."""
    message = master.RegisterRequest(
        protocol_version=registration.protocol_version,
        node=registration.node,
        instance=registration.instance,
        worker_address=registration.worker_address,
        turns_address=registration.turns_address,
        num_gpu=registration.num_gpu,
        gpu_type=registration.gpu_type,
        trainers=[_status_to(status) for status in registration.trainers],
    )
    if registration.gpu_memory_mib is not None:
        message.gpu_memory_mib = registration.gpu_memory_mib
    return message


def registration_from(message: master.RegisterRequest) -> Registration:
    """An offered node; the protocol version is not judged here."""
    memory_mib = None
    if message.HasField("gpu_memory_mib"):
        memory_mib = fields.number("gpu_memory_mib", message.gpu_memory_mib)
    fields.few("trainers", message.trainers)
    return Registration(
        protocol_version=message.protocol_version,
        node=fields.name("node", message.node),
        instance=fields.name("instance", message.instance),
        worker_address=fields.address("worker_address", message.worker_address),
        turns_address=fields.address("turns_address", message.turns_address),
        num_gpu=fields.count("num_gpu", message.num_gpu, 1, _MAX_GPUS),
        gpu_type=fields.name("gpu_type", message.gpu_type, empty=True),
        gpu_memory_mib=memory_mib,
        trainers=tuple(_status_from(entry, f"trainers[{i}]") for i, entry in enumerate(message.trainers)),
    )


def welcome_to(welcome: Welcome) -> master.RegisterReply:
    """The answer to a registration."""
    return master.RegisterReply(
        node_id=welcome.node_id,
        time_scale=welcome.time_scale,
        report_interval_s=welcome.report_interval_s,
        lease_s=welcome.lease_s,
    )


def _interval_from(value: float) -> float:
    return fields.number("report_interval_s", value, positive=True, most=1.0)


def welcome_from(message: master.RegisterReply) -> Welcome:
    """The master's answer to a registration."""
    return Welcome(
        node_id=message.node_id,
        time_scale=fields.number("time_scale", message.time_scale, positive=True),
        report_interval_s=_interval_from(message.report_interval_s),
        lease_s=fields.number("lease_s", message.lease_s, positive=True),
    )


# Reports

_REPORT_BODIES: dict[ReportKind, Callable[[TrainerReport], common.JobSpec | object]] = {
    ReportKind.STARTED: lambda report: master.Started(),
    ReportKind.PROGRESS: lambda report: master.Progress(),
    ReportKind.FINISHED: lambda report: master.Finished(),
    ReportKind.PREEMPTED: lambda report: master.Preempted(),
    ReportKind.FAILED: lambda report: master.Failed(reason=report.reason[: fields.MAX_REASON]),
}


def batch_to(batch: ReportBatch) -> master.ReportRequest:
    """The message of a batch of reports."""
    message = master.ReportRequest(node=batch.node, instance=batch.instance, sequence=batch.sequence)
    for report in batch.reports:
        entry = message.reports.add(
            job_id=report.job_id, generation=report.generation, iterations_done=report.iterations_done
        )
        getattr(entry, report.kind.value).CopyFrom(_REPORT_BODIES[report.kind](report))
    return message


def batch_from(message: master.ReportRequest) -> ReportBatch:
    """A batch of reports."""
    fields.few("reports", message.reports)
    return ReportBatch(
        node=fields.name("node", message.node),
        instance=fields.name("instance", message.instance),
        sequence=fields.count("sequence", message.sequence, 1),
        reports=tuple(_report_from(entry, f"reports[{i}]") for i, entry in enumerate(message.reports)),
    )


def _report_from(message: master.TrainerReport, where: str) -> TrainerReport:
    what = message.WhichOneof("what")
    if what is None:
        raise FieldError(f"{where}.what", None, "started, progress, finished, preempted or failed")
    return TrainerReport(
        job_id=fields.name(f"{where}.job_id", message.job_id),
        generation=fields.count(f"{where}.generation", message.generation, 1),
        kind=ReportKind(what),
        iterations_done=fields.count(f"{where}.iterations_done", message.iterations_done),
        reason=fields.text(f"{where}.failed.reason", message.failed.reason) if what == "failed" else "",
    )


# Orders


def _share_to(share: NodeShare) -> common.NodeShare:
    return common.NodeShare(
        node=share.node, gpus=share.gpus, fraction=share.fraction, memory_mib=share.memory_mib
    )


def _share_from(message: common.NodeShare, where: str) -> NodeShare:
    fields.few(f"{where}.gpus", message.gpus, least=1)
    return NodeShare(
        node=message.node,
        gpus=fields.ascending(f"{where}.gpus", message.gpus),
        fraction=fields.number(f"{where}.fraction", message.fraction, positive=True, most=1.0),
        memory_mib=fields.number(f"{where}.memory_mib", message.memory_mib),
    )


def launch_to(order: LaunchOrder) -> worker.LaunchRequest:
    """The message that starts a node's part of a job."""
    return worker.LaunchRequest(
        job=job_to(order.job),
        generation=order.generation,
        shares=[_share_to(share) for share in order.shares],
        iterations_done=order.iterations_done,
        iterations_per_turn=order.iterations_per_turn,
        turns_address=order.turns_address,
    )


def launch_from(message: worker.LaunchRequest) -> LaunchOrder:
    """A job to start; its shares are by node and add up to its GPUs."""
    job = job_from(message.job)
    fields.few("shares", message.shares, least=1)
    shares = tuple(_share_from(entry, f"shares[{i}]") for i, entry in enumerate(message.shares))
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
    )


def _per_turn_from(value: int) -> int:
    return fields.count("iterations_per_turn", value, 1, _MAX_ITERATIONS_PER_TURN)


def preempt_to(order: PreemptOrder) -> worker.PreemptRequest:
    """The message that stops a job."""
    return worker.PreemptRequest(job_id=order.job_id, generation=order.generation)


def preempt_from(message: worker.PreemptRequest) -> PreemptOrder:
    """A job to stop."""
    return PreemptOrder(
        job_id=fields.name("job_id", message.job_id),
        generation=fields.count("generation", message.generation, 1),
    )


def turns_to(order: TurnsOrder) -> worker.SetTurnsRequest:
    """The message that sets a group's turns."""
    group = order.group
    return worker.SetTurnsRequest(
        group_id=group.group_id,
        version=group.version,
        members=[
            worker.TurnMember(job_id=member.job_id, generation=member.generation, offset=member.offset)
            for member in group.members
        ],
        lead_node=group.lead_node,
        iterations_per_turn=order.iterations_per_turn,
    )


def turns_from(message: worker.SetTurnsRequest) -> TurnsOrder:
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


# Views


def job_view_to(view: JobView) -> master.JobView:
    """The message of a job as a user sees it."""
    return master.JobView(
        job_id=view.job_id,
        state=master.JobState.Name(_JOB_STATES[view.status]),
        num_gpu=view.num_gpu,
        generation=view.generation,
        iterations=view.iterations,
        remaining_iterations=view.remaining_iterations,
        shares=[_share_to(share) for share in view.shares],
        reason=view.reason,
    )


def job_view_from(message: master.JobView) -> JobView:
    """A job as the master sees it."""
    if message.state not in _STATUSES:
        raise FieldError("state", message.state, "a job's state")
    return JobView(
        job_id=fields.name("job_id", message.job_id),
        status=_STATUSES[message.state],
        num_gpu=fields.count("num_gpu", message.num_gpu, 1, _MAX_GPUS),
        generation=fields.count("generation", message.generation),
        iterations=fields.count("iterations", message.iterations),
        remaining_iterations=fields.number("remaining_iterations", message.remaining_iterations),
        shares=tuple(_share_from(entry, f"shares[{i}]") for i, entry in enumerate(message.shares)),
        reason=message.reason,
    )


def node_view_to(view: NodeView) -> master.NodeView:
    """The message of a node as a user sees it."""
    message = master.NodeView(
        node=view.node,
        node_id=view.node_id,
        registered=view.registered,
        num_gpu=view.num_gpu,
        gpu_type=view.gpu_type,
        worker_address=view.worker_address,
        job_ids=view.job_ids,
    )
    if view.last_report_age_s is not None:
        message.last_report_age_s = view.last_report_age_s
    return message
