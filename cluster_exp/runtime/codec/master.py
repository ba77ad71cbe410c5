"""Messages of the master's service."""

from collections.abc import Callable, Iterable

from cluster_exp.domain.job import JobSpec, JobStatus
from cluster_exp.domain.measure import StageWindow
from cluster_exp.protocol.messages import (
    CheckpointRules,
    JobView,
    Limits,
    NodeView,
    Registration,
    ReportBatch,
    ReportKind,
    TrainerReport,
    Welcome,
)
from cluster_exp.protocol.turn_token import DIGITS
from cluster_exp.protocol.turns import Discipline
from cluster_exp.runtime import fields
from cluster_exp.runtime.codec.records import (
    MAX_GPUS,
    job_from,
    job_to,
    share_from,
    share_to,
    status_from,
    status_to,
)
from cluster_exp.runtime.fields import FieldError
from cluster_exp.runtime.rpc import master_pb2 as master

_JOB_STATES = {status: master.JobState.Value(f"JOB_STATE_{status.name}") for status in JobStatus}
_STATUSES = {state: status for status, state in _JOB_STATES.items()}
_REPORT_BODIES: dict[ReportKind, Callable[[TrainerReport], object]] = {
    ReportKind.STARTED: lambda report: master.Started(),
    ReportKind.PROGRESS: lambda report: master.Progress(),
    ReportKind.FINISHED: lambda report: master.Finished(),
    ReportKind.PREEMPTED: lambda report: master.Preempted(),
    ReportKind.MEASURED: lambda report: _measured_to(report.window),
    ReportKind.FAILED: lambda report: master.Failed(reason=report.reason[: fields.MAX_REASON]),
}
_KINDS = {kind.value: kind for kind in ReportKind}


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
        trainers=[status_to(status) for status in registration.trainers],
        turns_key=registration.turns_key,
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
        num_gpu=fields.count("num_gpu", message.num_gpu, 1, MAX_GPUS),
        gpu_type=fields.name("gpu_type", message.gpu_type, empty=True),
        gpu_memory_mib=memory_mib,
        trainers=tuple(status_from(entry, f"trainers[{i}]") for i, entry in enumerate(message.trainers)),
        turns_key=fields.digits("turns_key", message.turns_key, DIGITS),
    )


def welcome_to(welcome: Welcome) -> master.RegisterReply:
    """The answer to a registration."""
    return master.RegisterReply(
        node_id=welcome.node_id,
        time_scale=welcome.time_scale,
        report_interval_s=welcome.report_interval_s,
        lease_s=welcome.lease_s,
        turns=welcome.turns.value,
        stage_logs=welcome.stage_logs,
        stage_limit_s=welcome.limits.stage_s,
        hang_limit_s=welcome.limits.hang_s,
        protocol_version=welcome.protocol_version,
        comm=welcome.comm,
        checkpoints=None if welcome.checkpoints is None else _checkpoints_to(welcome.checkpoints),
    )


def _checkpoints_to(rules: CheckpointRules) -> master.CheckpointRules:
    return master.CheckpointRules(directory=rules.directory, mark=rules.mark, every=rules.every)


def _checkpoints_from(message: master.CheckpointRules) -> CheckpointRules:
    directory = fields.text("checkpoints.directory", message.directory)
    if not directory.startswith("/") or "\0" in directory:
        raise FieldError("checkpoints.directory", directory, "an absolute path")
    return CheckpointRules(
        directory,
        fields.name("checkpoints.mark", message.mark),
        fields.count("checkpoints.every", message.every),
    )


def _comm_from(value: str) -> str:
    if value not in ("", "none", "horovod", "torch"):
        raise FieldError("comm", value, "none, horovod or torch")
    return value or "none"


def _interval_from(value: float) -> float:
    return fields.number("report_interval_s", value, positive=True, most=1.0)


def _turns_from(value: str) -> Discipline:
    known = {discipline.value: discipline for discipline in Discipline}
    if value not in known:
        raise FieldError("turns", value, " or ".join(known))
    return known[value]


def welcome_from(message: master.RegisterReply) -> Welcome:
    """The master's answer to a registration."""
    return Welcome(
        node_id=message.node_id,
        time_scale=fields.number("time_scale", message.time_scale, positive=True),
        report_interval_s=_interval_from(message.report_interval_s),
        lease_s=fields.number("lease_s", message.lease_s, positive=True),
        turns=_turns_from(message.turns),
        stage_logs=message.stage_logs,
        limits=Limits(
            fields.number("stage_limit_s", message.stage_limit_s),
            fields.number("hang_limit_s", message.hang_limit_s),
        ),
        protocol_version=message.protocol_version,
        comm=_comm_from(message.comm),
        checkpoints=_checkpoints_from(message.checkpoints) if message.HasField("checkpoints") else None,
    )


def batch_to(batch: ReportBatch) -> master.ReportRequest:
    """The message of a batch of reports."""
    message = master.ReportRequest(
        node=batch.node, instance=batch.instance, sequence=batch.sequence, leaving=batch.leaving
    )
    for report in batch.reports:
        entry = message.reports.add(
            job_id=report.job_id,
            generation=report.generation,
            iterations_done=report.iterations_done,
            saved=report.saved,
        )
        getattr(entry, report.kind.value).CopyFrom(_REPORT_BODIES[report.kind](report))
    return message


def batch_from(message: master.ReportRequest) -> ReportBatch:
    """A batch of reports."""
    fields.few("reports", message.reports)
    reports = []
    for entry in message.reports:
        try:
            reports.append(_report_from(entry))
        except FieldError as error:
            raise error.inside(f"reports[{len(reports)}]") from None
    return ReportBatch(
        node=fields.name("node", message.node),
        instance=fields.name("instance", message.instance),
        sequence=fields.count("sequence", message.sequence, 1),
        reports=tuple(reports),
        leaving=message.leaving,
    )


def _report_from(message: master.TrainerReport) -> TrainerReport:
    what = message.WhichOneof("what")
    if what is None:
        raise FieldError("what", None, "started, progress, measured, finished, preempted or failed")
    return TrainerReport(
        fields.name("job_id", message.job_id),
        fields.count("generation", message.generation, 1),
        _KINDS[what],
        fields.count("iterations_done", message.iterations_done),
        fields.text("failed.reason", message.failed.reason) if what == "failed" else "",
        fields.count("saved", message.saved),
        _measured_from(message.measured) if what == "measured" else None,
    )


def _measured_to(window: StageWindow | None) -> master.Measured:
    if window is None:
        raise ValueError("a report of a measurement has a window")
    storage_s, cpu_s, gpu_s, network_s = window.stages_s
    return master.Measured(
        iterations=window.iterations,
        iterations_s=window.iterations_s,
        sampled=window.sampled,
        storage_s=storage_s,
        cpu_s=cpu_s,
        gpu_s=gpu_s,
        network_s=network_s,
        turns=window.turns,
        gpu_memory_mib=window.gpu_memory_mib,
    )


def _measured_from(message: master.Measured) -> StageWindow:
    iterations = fields.count("measured.iterations", message.iterations, 1)
    return StageWindow(
        iterations,
        fields.number("measured.iterations_s", message.iterations_s, positive=True),
        fields.count("measured.sampled", message.sampled, 1, iterations),
        (
            fields.number("measured.storage_s", message.storage_s),
            fields.number("measured.cpu_s", message.cpu_s),
            fields.number("measured.gpu_s", message.gpu_s),
            fields.number("measured.network_s", message.network_s),
        ),
        message.turns,
        fields.number("measured.gpu_memory_mib", message.gpu_memory_mib)
        if message.HasField("gpu_memory_mib")
        else None,
    )


def job_view_to(view: JobView) -> master.JobView:
    """The message of a job as a user sees it."""
    return master.JobView(
        job_id=view.job_id,
        state=master.JobState.Name(_JOB_STATES[view.status]),
        num_gpu=view.num_gpu,
        generation=view.generation,
        iterations=view.iterations,
        remaining_iterations=view.remaining_iterations,
        shares=[share_to(share) for share in view.shares],
        reason=view.reason,
    )


def job_view_from(message: master.JobView) -> JobView:
    """A job as the master sees it."""
    if message.state not in _STATUSES:
        raise FieldError("state", message.state, "a job's state")
    return JobView(
        job_id=fields.name("job_id", message.job_id),
        status=_STATUSES[message.state],
        num_gpu=fields.count("num_gpu", message.num_gpu, 1, MAX_GPUS),
        generation=fields.count("generation", message.generation),
        iterations=fields.count("iterations", message.iterations),
        remaining_iterations=fields.number("remaining_iterations", message.remaining_iterations),
        shares=tuple(share_from(entry, f"shares[{i}]") for i, entry in enumerate(message.shares)),
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
