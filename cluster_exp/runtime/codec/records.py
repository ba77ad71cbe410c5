"""Records that both services use: jobs, profiles, shares of nodes, trainers."""

import math
from typing import Any, Literal

from cluster_exp.domain.allotment import NodeShare
from cluster_exp.domain.job import JobSpec
from cluster_exp.domain.profile import StageProfile
from cluster_exp.protocol.messages import TrainerState, TrainerStatus
from cluster_exp.runtime import fields
from cluster_exp.runtime.fields import FieldError
from cluster_exp.runtime.rpc import common_pb2 as common

MAX_GPUS = 1_000_000
_MAX_PRIORITY = 1_000


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


_MAY_BE_UNSTATED: tuple[Literal["gpu_memory_mib", "num_cpu", "memory_gib"], ...] = (
    "gpu_memory_mib",
    "num_cpu",
    "memory_gib",
)


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
        unprofiled=not job.profiled,
        command=job.command,
    )
    for name in _MAY_BE_UNSTATED:
        if not math.isnan(getattr(job, name)):
            setattr(message, name, getattr(job, name))
    return message


def job_from(message: common.JobSpec, where: str = "job") -> JobSpec:
    """A job."""
    fraction = message.gpu_fraction if message.HasField("gpu_fraction") else 1.0
    stated: dict[str, Any] = {
        name: fields.number(f"{where}.{name}", getattr(message, name))
        for name in _MAY_BE_UNSTATED
        if message.HasField(name)
    }
    if abs(message.priority) > _MAX_PRIORITY:
        raise FieldError(f"{where}.priority", message.priority, f"-{_MAX_PRIORITY} to {_MAX_PRIORITY}")
    return JobSpec(
        job_id=fields.name(f"{where}.job_id", message.job_id),
        num_gpu=fields.count(f"{where}.num_gpu", message.num_gpu, 1, MAX_GPUS),
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
        profiled=not message.unprofiled,
        command=fields.argv(f"{where}.command", message.command),
        **stated,
    )


def status_to(status: TrainerStatus) -> common.TrainerStatus:
    """The message of a trainer."""
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


def status_from(message: common.TrainerStatus, where: str) -> TrainerStatus:
    """A trainer."""
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


def share_to(share: NodeShare) -> common.NodeShare:
    """The message of a node's part."""
    return common.NodeShare(node=share.node, gpus=share.gpus, fraction=share.fraction, memory_mib=share.memory_mib)


def share_from(message: common.NodeShare, where: str) -> NodeShare:
    """A node's part of an allotment; GPU ids ascend."""
    fields.few(f"{where}.gpus", message.gpus, least=1)
    return NodeShare(
        node=message.node,
        gpus=fields.ascending(f"{where}.gpus", message.gpus),
        fraction=fields.number(f"{where}.fraction", message.fraction, positive=True, most=1.0),
        memory_mib=fields.number(f"{where}.memory_mib", message.memory_mib),
    )
