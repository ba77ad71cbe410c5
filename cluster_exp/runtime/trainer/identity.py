"""Who a trainer is, how it says so, and what it writes about its stages."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from cluster_exp.domain.resources import Resource
from cluster_exp.runtime.trainer.connection import Connection

__all__ = ["STAGE_LOG_HEADER", "Identity", "greet", "stage_row"]

_WIRE_VERSION = 2
STAGE_LOG_HEADER = "job_id,generation,rank,gpus,iteration,resource,start_ns,end_ns,turn\n"


@dataclass(frozen=True, slots=True)
class Identity:
    """Who a trainer is, as its launcher told it."""

    job_id: str
    generation: int
    rank: int
    world: int
    worker: str  # address for reports
    arbiter: str  # address for turns
    iterations: int  # to do in all
    iterations_done: int  # in earlier launches
    gpus: str = ""  # node/gpu,node/gpu
    stage_log: str = ""  # path; empty = none
    checkpoint_dir: str = ""  # of this job, shared by all nodes; not made yet; empty = none
    checkpoint_every: int = 0  # iterations; 0 = only when told to leave
    token: str = field(default="", repr=False)  # that an arbiter on another node asks for
    tls_dir: str = ""  # this host's keys, for an arbiter that is called by TLS

    @classmethod
    def from_env(cls, env: Mapping[str, str]) -> "Identity | None":
        """Reads the launcher's variables; None outside a cluster.

        Raises:
            KeyError, ValueError: some variables are there and others are missing or no numbers.
        """
        if "CLUSTER_EXP_JOB_ID" not in env:
            return None
        return cls(
            job_id=env["CLUSTER_EXP_JOB_ID"],
            generation=int(env["CLUSTER_EXP_GENERATION"]),
            rank=int(env["CLUSTER_EXP_RANK"]),
            world=int(env["CLUSTER_EXP_WORLD"]),
            worker=env["CLUSTER_EXP_WORKER"],
            arbiter=env["CLUSTER_EXP_ARBITER"],
            iterations=int(env["CLUSTER_EXP_ITERATIONS"]),
            iterations_done=int(env["CLUSTER_EXP_ITERATIONS_DONE"]),
            gpus=env.get("CLUSTER_EXP_GPUS", ""),
            stage_log=env.get("CLUSTER_EXP_STAGE_LOG", ""),
            checkpoint_dir=env.get("CLUSTER_EXP_CHECKPOINT_DIR", ""),
            checkpoint_every=int(env.get("CLUSTER_EXP_CHECKPOINT_EVERY", "0")),
            token=env.get("CLUSTER_EXP_TURNS_TOKEN", ""),
            tls_dir=env.get("CLUSTER_EXP_TLS", ""),
        )


def greet(connection: Connection, identity: Identity, *, turns: bool, helper: int = 0) -> None:
    """Says hello: to take turns, or only to report; `helper`: number of a process that prefetches.

    Raises WorkerLostError when the worker is gone.
    """
    number = {"helper": helper} if helper else {}
    connection.send(
        "hello",
        v=_WIRE_VERSION,
        job=identity.job_id,
        generation=identity.generation,
        rank=identity.rank,
        world=identity.world,
        done=identity.iterations_done,
        turns=turns,
        token=identity.token if turns else "",
        **number,
    )


def stage_row(
    who: Identity, iteration: int, resources: Sequence[Resource], start_ns: int, end_ns: int, turn: bool
) -> str:
    """A line of a stage log (`STAGE_LOG_HEADER`)."""
    gpus = who.gpus.replace(",", " ")
    names = "+".join(resource.name.lower() for resource in sorted(resources))
    return f"{who.job_id},{who.generation},{who.rank},{gpus},{iteration},{names},{start_ns},{end_ns},{int(turn)}\n"
