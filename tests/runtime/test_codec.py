"""Messages to records and back; what is refused, and by which field's name."""

import math
import random
from dataclasses import replace

import pytest
from google.protobuf.message import DecodeError

from cluster_exp.domain.actions import GroupMember, TurnGroup
from cluster_exp.domain.allotment import NodeShare
from cluster_exp.domain.job import JobSpec
from cluster_exp.domain.measure import StageWindow
from cluster_exp.protocol.messages import (
    CheckpointRules,
    Endpoint,
    LaunchOrder,
    PreemptOrder,
    ReportBatch,
    ReportKind,
    TrainerReport,
    TrainerState,
    TrainerStatus,
    TurnsOrder,
    Welcome,
)
from cluster_exp.protocol.turns import Discipline
from cluster_exp.runtime import codec
from cluster_exp.runtime.fields import MAX_ITEMS, FieldError
from cluster_exp.runtime.rpc import common_pb2, master_pb2, worker_pb2
from tests.runtime.live_kit import PROFILE, job

TOKEN = "ab" * 32
SHARES = (NodeShare(0, (0, 1)), NodeShare(2, (3,)))


def launch() -> LaunchOrder:
    spec = replace(job("a", 3), command=("python", "train.py"))
    return LaunchOrder(spec, 2, SHARES, 10, 5, "127.0.0.1:1234", Endpoint("torch", "127.0.0.1", 4000), TOKEN)


def test_orders_come_back_as_they_were():
    spec = JobSpec("j ü/1", 3, 1.5, 7, 2.5, "vgg16", 16, PROFILE, "u", "q", 1, "v100", 0.5, 1000.0)
    order = LaunchOrder(spec, 2, SHARES, 7, 5, "127.0.0.1:1234", turns_token=TOKEN)
    assert codec.launch_from(codec.launch_to(order)) == order
    real = replace(spec, command=("{python}", "-m", "workloads.vgg16", ""))
    order = replace(order, job=real, endpoint=Endpoint("horovod", "10.0.0.1", 4000))
    assert codec.launch_from(codec.launch_to(order)) == order
    stop = PreemptOrder("a", 3)
    assert codec.preempt_from(codec.preempt_to(stop)) == stop
    turns = TurnsOrder(TurnGroup(4, 2, (GroupMember("a", 0, 1), GroupMember("b", 3, 2)), 1), 9)
    assert codec.turns_from(codec.turns_to(turns)) == turns


def test_reports_come_back_as_they_were():
    reasons = {ReportKind.FAILED: "why"}
    windows = {ReportKind.MEASURED: StageWindow(2, 1.0, 1, (0.1, 0.2, 0.3, 0.4), True)}
    reports = tuple(
        TrainerReport("a", 1, kind, 5, reasons.get(kind, ""), 4, windows.get(kind)) for kind in ReportKind
    )
    batch = ReportBatch("n0", "x", 3, reports)
    assert codec.batch_from(codec.batch_to(batch)) == batch
    statuses = (
        TrainerStatus("a", 1, TrainerState.RUNNING, 77, 5, 0.25),
        TrainerStatus("b", 2, TrainerState.STARTING, 78, 0),
    )
    assert codec.statuses_from(codec.statuses_to(statuses)) == statuses


def test_a_welcome_comes_back_as_it_was():
    welcome = Welcome(
        1, 2.0, 0.5, 10.0, Discipline.WORK_CONSERVING, True, "torch", CheckpointRules("/shared", "m", 7)
    )
    assert codec.welcome_from(codec.welcome_to(welcome)) == welcome
    for name, value in (("directory", "shared"), ("mark", ""), ("every", 2**60)):
        message = codec.welcome_to(welcome)
        setattr(message.checkpoints, name, value)
        with pytest.raises(FieldError, match=f"checkpoints.{name}"):
            codec.welcome_from(message)


def test_what_is_not_stated_stays_unstated():
    assert math.isnan(codec.job_from(codec.job_to(job("a"))).gpu_memory_mib)
    bare = common_pb2.JobSpec(job_id="a", num_gpu=1, profile=codec.profile_to(PROFILE))
    assert (codec.job_from(bare).queue, codec.job_from(bare).gpu_fraction) == ("default", 1.0)


def set_in(message, path: str, value) -> None:
    *parents, last = path.split(".")
    for name in parents:
        message = message[int(name)] if name.isdigit() else getattr(message, name)
    if last.isdigit():
        message[int(last)] = value
    else:
        setattr(message, last, value)


@pytest.mark.parametrize(
    ("path", "value", "field"),
    [
        ("job.job_id", "", "job.job_id"),
        ("job.job_id", "a\nb", "job.job_id"),
        ("job.job_id", "x" * 300, "job.job_id"),
        ("job.num_gpu", 0, "job.num_gpu"),
        ("job.iterations", 2**60, "job.iterations"),
        ("job.duration_s", math.nan, "job.duration_s"),
        ("job.submit_s", -1.0, "job.submit_s"),
        ("job.profile.iteration_s", 0.0, "job.profile.iteration_s"),
        ("job.profile.gpu_s", math.inf, "job.profile.gpu_s"),
        ("job.gpu_fraction", 0.0, "job.gpu_fraction"),
        ("job.gpu_fraction", 1.5, "job.gpu_fraction"),
        ("job.priority", 2**30, "job.priority"),
        ("generation", 0, "generation"),
        ("iterations_done", 101, "iterations_done"),
        ("iterations_per_turn", 0, "iterations_per_turn"),
        ("turns_address", "host:70000", "turns_address"),
        ("turns_address", "host", "turns_address"),
        ("turns_token", "", "turns_token"),
        ("turns_token", "x" * 64, "turns_token"),
        ("shares.0.gpus.0", 1, "shares[0].gpus"),
        ("shares.0.fraction", 2.0, "shares[0].fraction"),
        ("shares.1.node", 0, "shares[].node"),
        ("job.num_gpu", 4, "shares (GPUs)"),
        ("job.command.0", "", "job.command[0]"),
        ("job.command.1", "a\0b", "job.command[1]"),
        ("job.command.1", "x" * 5000, "job.command[1]"),
        ("endpoint.backend", "mpi", "endpoint.backend"),
        ("endpoint.port", 0, "endpoint"),
        ("endpoint.address", "", "endpoint"),
    ],
)
def test_a_launch_with_a_bad_field_is_refused_by_its_name(path, value, field):
    message = codec.launch_to(launch())
    set_in(message, path, value)
    with pytest.raises(FieldError) as caught:
        codec.launch_from(message)
    assert caught.value.field == field
    assert "allowed" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("read", "message", "field"),
    [
        (codec.batch_from, master_pb2.ReportRequest(node="n0", instance="i"), "sequence"),
        (
            codec.batch_from,
            master_pb2.ReportRequest(
                node="n0", instance="i", sequence=1, reports=[master_pb2.TrainerReport(job_id="a", generation=1)]
            ),
            "reports[0].what",
        ),
        (
            codec.batch_from,
            master_pb2.ReportRequest(reports=[master_pb2.TrainerReport()] * (MAX_ITEMS + 1)),
            "reports (entries)",
        ),
        (codec.submission_from, master_pb2.SubmitJobRequest(request_id="r"), "jobs (entries)"),
        (
            lambda message: codec.submission_from(message),
            codec.submission_to("r", [job("a"), job("a")]),
            "jobs[1].job_id",
        ),
        (codec.turns_from, worker_pb2.TurnsOrder(version=1, iterations_per_turn=1), "members (entries)"),
        (
            codec.turns_from,
            worker_pb2.TurnsOrder(
                version=1,
                iterations_per_turn=1,
                members=[worker_pb2.TurnMember(job_id=name, generation=1, offset=1) for name in "ab"],
            ),
            "members[].offset",
        ),
        (
            codec.statuses_from,
            worker_pb2.QueryTrainersReply(trainers=[common_pb2.TrainerStatus()]),
            "trainers[0].state",
        ),
        (codec.welcome_from, master_pb2.RegisterReply(protocol_version=4), "time_scale"),
        (codec.job_view_from, master_pb2.JobView(), "state"),
    ],
)
def test_other_messages_with_a_bad_field_are_refused_by_its_name(read, message, field):
    with pytest.raises(FieldError) as caught:
        read(message)
    assert caught.value.field == field


def test_scrambled_messages_are_read_or_refused_but_never_crash():
    seed = 20_220_822
    draw = random.Random(seed)
    read = 0
    for _ in range(2_000):
        data = bytearray(codec.launch_to(launch()).SerializeToString())
        for _ in range(draw.randint(1, 4)):
            data[draw.randrange(len(data))] = draw.randrange(256)
        message = worker_pb2.LaunchOrder()
        try:
            message.ParseFromString(bytes(data))
        except DecodeError:
            continue
        try:
            codec.launch_from(message)
            read += 1
        except FieldError:
            continue
    assert read > 0
