"""The command lines and environments with which trainers are started."""

import os
import sys
from dataclasses import dataclass
from pathlib import Path

import cluster_exp
from cluster_exp.protocol.messages import LaunchOrder


@dataclass(frozen=True, slots=True)
class TrainerPlace:
    """Where a trainer process stands."""

    rank: int  # index of its node among the job's nodes
    worker: str  # `unix:PATH` of its node's turn server: reports go there
    arbiter: str  # `unix:PATH` or `tcp:HOST:PORT` of the turn server that hands out its turns
    time_scale: float  # simulated seconds per second


def package_path() -> dict[str, str]:
    """The environment variable with which another Python finds this very package, installed or not."""
    root = str(Path(cluster_exp.__file__).resolve().parents[1])
    others = os.environ.get("PYTHONPATH")
    return {"PYTHONPATH": f"{root}{os.pathsep}{others}" if others else root}


def emulated_command(order: LaunchOrder, place: TrainerPlace) -> tuple[list[str], dict[str, str]]:
    """Arguments and environment variables of an emulated trainer: one process a node."""
    job, profile, share = order.job, order.job.profile, order.shares[place.rank]
    argv = [sys.executable, "-m", "cluster_exp.runtime.emulated"]
    for name, seconds in (
        ("iteration", profile.iteration_s),
        ("storage", profile.storage_s),
        ("cpu", profile.cpu_s),
        ("gpu", profile.gpu_s),
        ("network", profile.network_s),
    ):
        argv += [f"--{name}-s", repr(seconds)]
    argv += ["--time-scale", repr(place.time_scale)]
    return argv, {
        **package_path(),
        "CLUSTER_EXP_JOB_ID": job.job_id,
        "CLUSTER_EXP_GENERATION": str(order.generation),
        "CLUSTER_EXP_RANK": str(place.rank),
        "CLUSTER_EXP_WORLD": str(len(order.shares)),
        "CLUSTER_EXP_WORKER": place.worker,
        "CLUSTER_EXP_ARBITER": place.arbiter,
        "CLUSTER_EXP_ITERATIONS": str(job.iterations),
        "CLUSTER_EXP_ITERATIONS_DONE": str(order.iterations_done),
        "CLUSTER_EXP_GPUS": ",".join(f"{share.node}/{gpu}" for gpu in share.gpus),
    }
