"""The command lines and environments with which trainers are started."""

import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import cluster_exp
from cluster_exp.protocol.messages import Endpoint, LaunchOrder, Welcome
from cluster_exp.runtime.names import file_name
from cluster_exp.runtime.rendezvous import RankPlace, interface_of, rank_environment, rank_places

PYTHON = "{python}"  # in a job's command: the worker's own interpreter


@dataclass(frozen=True, slots=True)
class Command:
    """One process to start, which may start several ranks."""

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)  # besides the worker's own
    num_ranks: int = 1
    cwd: Path | None = None  # None = where logs lie


@dataclass(frozen=True, slots=True)
class TrainerPlace:
    """Where a node's part of a job stands."""

    share: int  # index of its node among the job's nodes
    worker: str  # `unix:PATH` of its node's turn server: reports go there
    arbiter: str  # address of the turn server that hands out its turns
    host: str  # address of this node, by which other nodes' ranks reach it
    log_dir: Path  # where stage logs go
    tls_dir: str = ""  # this node's keys, where the arbiter is called by TLS


def package_path() -> dict[str, str]:
    """The environment variable with which another Python finds this very package, installed or not."""
    root = str(Path(cluster_exp.__file__).resolve().parents[1])
    others = os.environ.get("PYTHONPATH")
    return {"PYTHONPATH": f"{root}{os.pathsep}{others}" if others else root}


def places_of_job(order: LaunchOrder) -> tuple[RankPlace, ...]:
    """The ranks of a real job, one a GPU, by node."""
    return rank_places([(str(share.node), len(share.gpus)) for share in order.shares])


def command_for(order: LaunchOrder, place: TrainerPlace, welcome: Welcome, endpoint: Endpoint | None) -> Command:
    """What starts a node's part of a job: one emulated trainer, or a rank for each of its GPUs.

    `endpoint` is where the ranks of the job meet; None for a job of one rank.

    Raises:
        InputError: no network interface of this node has its address.
    """
    if order.job.command:
        return _real(order, place, welcome, endpoint)
    return _emulated(order, place, welcome)


def _emulated(order: LaunchOrder, place: TrainerPlace, welcome: Welcome) -> Command:
    """An emulated trainer: one process a node."""
    profile, share = order.job.profile, order.shares[place.share]
    argv = [sys.executable, "-m", "cluster_exp.runtime.emulated"]
    for name, seconds in (
        ("iteration", profile.iteration_s),
        ("storage", profile.storage_s),
        ("cpu", profile.cpu_s),
        ("gpu", profile.gpu_s),
        ("network", profile.network_s),
    ):
        argv += [f"--{name}-s", repr(seconds)]
    argv += ["--time-scale", repr(welcome.time_scale)]
    gpus = ",".join(f"{share.node}/{gpu}" for gpu in share.gpus)
    identity = _identity(order, place, welcome, place.share, len(order.shares), gpus)
    return Command(tuple(argv), {**package_path(), **identity})


def _real(order: LaunchOrder, place: TrainerPlace, welcome: Welcome, endpoint: Endpoint | None) -> Command:
    """The job's own program, once for each GPU of this node."""
    argv = tuple(sys.executable if word == PYTHON else word for word in order.job.command)
    node = order.shares[place.share]
    ranks = [rank for rank in places_of_job(order) if rank.node == str(node.node)]
    interface = interface_of(place.host) if endpoint is not None else ""
    envs = []
    for rank, gpu in zip(ranks, node.gpus, strict=True):
        env = _identity(order, place, welcome, rank.rank, rank.size, f"{node.node}/{gpu}")
        env["CUDA_VISIBLE_DEVICES"] = str(gpu)
        if endpoint is not None:
            env |= rank_environment(endpoint, rank, interface=interface)
        envs.append(env)
    common = {**package_path(), **_checkpoints(order, welcome)}
    if len(envs) == 1:
        return Command(argv, {**common, **envs[0]}, cwd=Path.cwd())
    starter = (sys.executable, "-m", "cluster_exp.runtime.ranks", *argv)
    return Command(starter, {**common, **_as_variable(envs)}, num_ranks=len(envs), cwd=Path.cwd())


def _as_variable(envs: Sequence[Mapping[str, str]]) -> dict[str, str]:
    return {"CLUSTER_EXP_RANKS": json.dumps(envs)}


def _checkpoints(order: LaunchOrder, welcome: Welcome) -> dict[str, str]:
    rules = welcome.checkpoints
    if rules is None:
        return {}
    return {
        "CLUSTER_EXP_CHECKPOINT_DIR": str(Path(rules.directory) / file_name(order.job.job_id)),
        "CLUSTER_EXP_CHECKPOINT_EVERY": str(rules.every),
    }


def _identity(
    order: LaunchOrder, place: TrainerPlace, welcome: Welcome, rank: int, world: int, gpus: str
) -> dict[str, str]:
    env = {
        "CLUSTER_EXP_JOB_ID": order.job.job_id,
        "CLUSTER_EXP_GENERATION": str(order.generation),
        "CLUSTER_EXP_RANK": str(rank),
        "CLUSTER_EXP_WORLD": str(world),
        "CLUSTER_EXP_WORKER": place.worker,
        "CLUSTER_EXP_ARBITER": place.arbiter,
        "CLUSTER_EXP_ITERATIONS": str(order.job.iterations),
        "CLUSTER_EXP_ITERATIONS_DONE": str(order.iterations_done),
        "CLUSTER_EXP_GPUS": gpus,
    }
    if not place.arbiter.startswith("unix:"):
        env |= {"CLUSTER_EXP_TURNS_TOKEN": order.turns_token, "CLUSTER_EXP_TLS": place.tls_dir}
    if welcome.stage_logs:
        name = f"stages-{file_name(order.job.job_id)}-{order.generation}-{rank}.csv"
        env["CLUSTER_EXP_STAGE_LOG"] = str(place.log_dir / name)
    return env
