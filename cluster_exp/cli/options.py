"""From the words of the command line to the parts of a run; every mistake is found here, before anything starts."""

import argparse
import difflib
import logging
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from cluster_exp.cli.origin import origin_of
from cluster_exp.core.placement import PLACEMENTS
from cluster_exp.domain.cluster import ClusterSpec
from cluster_exp.domain.errors import InputError
from cluster_exp.domain.job import JobSpec
from cluster_exp.domain.memory import MemoryRules
from cluster_exp.domain.policy import Policy
from cluster_exp.inputs.clusters import read_cluster
from cluster_exp.inputs.profiles import ProfileTable, default_profiles, read_profiles
from cluster_exp.inputs.restart import default_restart_costs
from cluster_exp.inputs.traces import read_trace
from cluster_exp.inputs.workloads import read_workloads
from cluster_exp.interleave.contention import CONTENTIONS
from cluster_exp.interleave.speed import SPEED_MODELS
from cluster_exp.policies.registry import make_policy
from cluster_exp.protocol.messages import Limits
from cluster_exp.protocol.retries import LONGEST_WAIT_S
from cluster_exp.results.history import read_history
from cluster_exp.results.journal import Detail
from cluster_exp.results.run_directory import check_free, check_holds_no_run
from cluster_exp.runtime.fields import FieldError, address
from cluster_exp.runtime.security.access import Access, check_address, load_access
from cluster_exp.sim.faults.spec import FaultSpec, parse_faults
from cluster_exp.sim.performance import StartCost
from cluster_exp.sim.simulate import COST_MODELS, LEARNED, SimulationOptions, check_contention

MODES = ("sim", "local", "testbed")
DEFAULT_TIME_SCALE = {"sim": 1.0, "local": 500.0, "testbed": 1.0}
LEAST_INTERVAL_S = 0.001  # shorter ones are lost in the rounding of long times
MOST_SEED = 2**63 - 1
_TRUE = "--true-contention"
COMMS = ("horovod", "torch")
MOST_COUNT = 2**53  # iterations, retries
MOST_TIME_SCALE = 1e9  # a trace of years then passes within a start
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ProgramOptions:
    """How the jobs of a live run are run, and run again."""

    workloads: Path | None  # which program trains which model; None = all trainers are emulated
    comm: str  # none, horovod or torch
    checkpoint_dir: Path | None  # None = below the run's directory
    checkpoint_every: int  # iterations; 0 = only when told to leave
    retries: int
    retry_wait_s: float  # wall time
    limits: Limits


@dataclass(frozen=True, slots=True)
class RunSpec:
    """A checked run of one or several policies."""

    policies: tuple[Policy, ...]
    jobs: tuple[JobSpec, ...]
    cluster: ClusterSpec
    mode: str
    out: Path | None
    rules: SimulationOptions
    start_cost_s: float | None  # None = by model, from the shipped table
    time_scale: float
    seed: int
    detail: Detail
    profile: bool  # simulated: measure where the time goes
    stage_logs: bool  # live: trainers write when each stage began and ended
    measures: bool  # live: decisions turn to measured stage times
    programs: ProgramOptions
    bind: str  # testbed: where the master listens
    access: Access | None  # testbed: TLS and tokens
    trace_path: str
    cluster_path: str
    faults: FaultSpec | None  # simulated: what breaks
    origin: Mapping[str, Any]  # of the command: what a state file keeps

    def directory(self, policy: Policy) -> Path:
        """Where a policy's run goes. Raises InputError without --out."""
        if self.out is None:
            raise InputError("is missing; name a new directory for the results", where="--out")
        return self.out if len(self.policies) == 1 else self.out / re.sub(r"[^\w.=-]", "_", policy.name)

    def start_cost(self) -> StartCost:
        """Seconds that a start of a job takes."""
        if self.start_cost_s is not None:
            seconds = self.start_cost_s
            return lambda job: seconds
        costs = default_restart_costs()
        return lambda job: costs.start_s(job.model, job.num_gpu)

    def described(self, policy: Policy) -> dict[str, Any]:
        """What run.json and the journal's header say of a run."""
        return {
            "policy": policy.name,
            "mode": self.mode,
            "trace": self.trace_path,
            "cluster": self.cluster_path,
            "cost_model": self.rules.cost_model,
            "speed_model": self.rules.speed_model,
            "contention": self.rules.contention,
            "true_contention": self.rules.true_contention,
            "gpu_memory_mib": self.rules.memory and self.rules.memory.gpu_mib,
            "assume_memory_mib": self.rules.memory and self.rules.memory.assumed_mib,
            "placement": self.rules.placement,
            "interval_s": self.rules.interval_s,
            "start_cost_s": self.start_cost_s,
            "time_scale": self.time_scale,
            "workloads": str(self.programs.workloads) if self.programs.workloads else None,
            "comm": self.programs.comm,
            "retries": self.programs.retries,
            "retry_wait_s": self.programs.retry_wait_s,
            "seed": self.seed,
            "faults": None if self.faults is None else str(self.faults),
        }


def choose(option: str, name: str, allowed: Iterable[str]) -> str:
    """`name`, if it is allowed. Raises InputError with the nearest allowed one."""
    names = list(allowed)
    if name in names:
        return name
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.0)
    raise InputError(f"{name!r} given; nearest is {near[0]!r}; allowed: {', '.join(names)}", where=option)


def at_least(option: str, value: float, least: float) -> float:
    """`value`, if it is finite and not too small. Raises InputError."""
    if math.isfinite(value) and value >= least:
        return value
    raise InputError(f"{value} given; allowed: from {least:g} on", where=option)


def run_spec(arguments: argparse.Namespace, *, resumes: bool = False) -> RunSpec:
    """Checks all options and reads the inputs; with `resumes`, the results' directory may hold the run already.

    Raises:
        InputError: the first mistake.
    """
    for option in ("policy", "trace", "cluster"):
        if not getattr(arguments, option):
            raise InputError("is missing", where=f"--{option}")
    mode = choose("--mode", arguments.mode, MODES)
    names = [name.strip() for name in arguments.policy.split(",")]
    if "" in names:
        raise InputError(f"{arguments.policy!r} leaves a name empty; allowed: NAME[,NAME...]", where="--policy")
    if len(set(names)) < len(names):
        raise InputError(f"{arguments.policy!r} names a policy twice", where="--policy")
    policies = tuple(make_policy(name, read_history) for name in names)
    cluster = read_cluster(arguments.cluster)
    rules = _rules(arguments, mode, cluster)
    trace = read_trace(
        arguments.trace,
        _profiles(arguments.profiles),
        cluster,
        drop_unfit=arguments.drop_unfit,
        admit_unprofiled=arguments.admit_unprofiled,
    )
    for warning in trace.warnings:
        _log.warning("%s", warning)
    start_cost_s = arguments.start_cost
    programs = _programs(arguments, mode)
    bind, access = _network(arguments, mode)
    spec = RunSpec(
        policies=policies,
        jobs=_with_programs(trace.jobs, programs, mode),
        cluster=cluster,
        mode=mode,
        out=arguments.out,
        rules=rules,
        start_cost_s=None if start_cost_s is None else at_least("--start-cost", start_cost_s, 0.0),
        time_scale=_time_scale(arguments.time_scale, mode, real=programs.workloads is not None),
        seed=_seed(arguments.seed),
        detail=Detail(choose("--journal", arguments.journal, [detail.value for detail in Detail])),
        profile=arguments.profile,
        stage_logs=arguments.stage_logs,
        measures=_measures(arguments, mode),
        programs=programs,
        bind=bind,
        access=access,
        trace_path=str(arguments.trace),
        cluster_path=str(arguments.cluster),
        faults=_faults(arguments.faults, mode, rules),
        origin=origin_of(arguments),
    )
    if not arguments.dry_run and not resumes:
        for policy in policies:
            check_free(spec.directory(policy))
        if spec.out is not None:
            check_holds_no_run(spec.out)
    return spec


def _profiles(path: str | None) -> ProfileTable:
    """The shipped profiles, and before them those of a file."""
    profiles = default_profiles()
    if path is not None:
        profiles.update(read_profiles(path))
    return profiles


def _measures(arguments: argparse.Namespace, mode: str) -> bool:
    """Whether decisions turn to what trainers measure; emulated ones repeat what they are told, so not by default."""
    if mode == "sim" and arguments.measured_profiles:
        raise InputError("nothing is measured in a simulation; with --mode allowed: local, testbed", where="--mode")
    real_or_unknown = arguments.workloads is not None or arguments.admit_unprofiled
    return mode != "sim" and bool(arguments.measured_profiles or (real_or_unknown and not arguments.stated_profiles))


def _memory(assumed_mib: float | None, cluster: ClusterSpec) -> MemoryRules | None:
    """What GPU memory allows, if the cluster states how much there is."""
    stated = [node.gpu_memory_mib for node in cluster.nodes if not math.isnan(node.gpu_memory_mib)]
    if assumed_mib is not None:
        at_least("--assume-memory", assumed_mib, 0.0)
        if not stated:
            raise InputError("the cluster's description states no gpu_memory_mib", where="--assume-memory")
    return MemoryRules(min(stated), assumed_mib) if stated else None


def _rules(arguments: argparse.Namespace, mode: str, cluster: ClusterSpec) -> SimulationOptions:
    rules = SimulationOptions(
        cost_model=choose("--cost-model", arguments.cost_model, COST_MODELS),
        speed_model=_chosen("--speed-model", arguments.speed_model, SPEED_MODELS),
        contention=_contention("--contention", arguments.contention),
        true_contention=_true_contention(arguments.true_contention),
        memory=_memory(arguments.assume_memory, cluster),
        placement=_chosen("--placement", arguments.placement, PLACEMENTS),
        interval_s=_interval_s(arguments.interval),
    )
    if mode != "sim" and rules.true_contention is not None:
        raise InputError(
            f"with --mode {mode} the cluster itself shows what is true; allowed: --mode sim", where=_TRUE
        )
    special = rules.true_contention is not None or rules.contention not in CONTENTIONS
    if special and rules.cost_model != "physical":
        raise InputError(f"{rules.contention!r} with {rules.cost_model!r}; allowed: physical", where="--cost-model")
    if mode != "sim" and rules.cost_model != "physical":
        raise InputError(
            f"{rules.cost_model!r} is an accounting of simulations; with --mode {mode} allowed: physical",
            where="--cost-model",
        )
    return rules


def _faults(text: str | None, mode: str, rules: SimulationOptions) -> FaultSpec | None:
    if text is None:
        return None
    if mode != "sim":
        raise InputError(f"breaks simulated clusters; --mode {mode} given, allowed: sim", where="--faults")
    if rules.cost_model != "physical":
        raise InputError(f"{rules.cost_model!r} with --faults; allowed: physical", where="--cost-model")
    return parse_faults(text)


def _contention(option: str, name: str) -> str:
    try:
        check_contention(name)
    except ValueError as error:
        near = difflib.get_close_matches(name, [*CONTENTIONS, LEARNED], n=1, cutoff=0.0)[0]
        raise InputError(f"{name!r} given; nearest is {near!r}; allowed: {error}", where=option) from None
    return name


def _true_contention(name: str | None) -> str | None:
    if name == LEARNED:
        raise InputError(f"{name!r} is what a scheduler believes; allowed is what a cluster does", where=_TRUE)
    return None if name is None else _contention(_TRUE, name)


def _network(arguments: argparse.Namespace, mode: str) -> tuple[str, Access | None]:
    """Where a testbed's master listens, and what protects it."""
    for option in ("bind", "tls", "token_file"):
        if getattr(arguments, option) is not None and mode != "testbed":
            raise InputError(f"is for --mode testbed; --mode {mode} given", where=f"--{option.replace('_', '-')}")
    access = load_access(arguments.tls, arguments.token_file)
    if arguments.bind is None:
        return "127.0.0.1:0", access
    host, _, port = arguments.bind.rpartition(":")
    try:
        address("--bind", f"{host}:1" if port == "0" else arguments.bind)
    except FieldError as error:
        raise InputError(str(error)) from None
    check_address("--bind", arguments.bind, access)
    return arguments.bind, access


def _chosen(option: str, name: str | None, allowed: Iterable[str]) -> str | None:
    return None if name is None else choose(option, name, allowed)


def _interval_s(given: float) -> float:
    if given == 0 or (math.isfinite(given) and given >= LEAST_INTERVAL_S):
        return given
    allowed = f"0 (at every event), or from {LEAST_INTERVAL_S:g} on"
    raise InputError(f"{given} given; allowed: {allowed}", where="--interval")


def _seed(given: int) -> int:
    if 0 <= given <= MOST_SEED:
        return given
    raise InputError(f"{given} given; allowed: from 0 to {MOST_SEED}", where="--seed")


def _programs(arguments: argparse.Namespace, mode: str) -> ProgramOptions:
    real = arguments.workloads is not None
    for option, given in (
        ("--workloads", real),
        ("--comm", arguments.comm),
        ("--checkpoint-dir", arguments.checkpoint_dir),
    ):
        if given and mode == "sim":
            raise InputError("a simulation runs no programs; with it allowed: --mode local or testbed", where=option)
        if given and not real:
            raise InputError("has no meaning without --workloads: emulated trainers need none", where=option)
    return ProgramOptions(
        workloads=arguments.workloads,
        comm=choose("--comm", arguments.comm or "horovod", COMMS) if real else "none",
        checkpoint_dir=arguments.checkpoint_dir,
        checkpoint_every=_whole("--checkpoint-every", arguments.checkpoint_every, MOST_COUNT),
        retries=_whole("--retries", arguments.retries, MOST_COUNT),
        retry_wait_s=_retry_wait_s(arguments.retry_wait),
        limits=Limits(
            at_least("--stage-limit", arguments.stage_limit, 0.0),
            at_least("--hang-limit", arguments.hang_limit, 0.0),
        ),
    )


def _retry_wait_s(given: float) -> float:
    if 0 <= given <= LONGEST_WAIT_S:
        return given
    raise InputError(f"{given} given; allowed: from 0 to {LONGEST_WAIT_S:g}", where="--retry-wait")


def _with_programs(jobs: tuple[JobSpec, ...], programs: ProgramOptions, mode: str) -> tuple[JobSpec, ...]:
    """The jobs with their commands, if they are real ones. Raises InputError when these cannot run here."""
    if programs.workloads is None:
        return jobs
    jobs = read_workloads(programs.workloads).applied(jobs)
    wide = next((job for job in jobs if job.command and job.num_gpu > 1), None)
    if wide is not None and mode == "local" and find_spec(programs.comm) is None:
        raise InputError(
            f"{programs.comm} is not installed, and job {wide.job_id} has {wide.num_gpu} ranks; "
            "allowed: torch, or horovod after `make horovod`",
            where="--comm",
        )
    return jobs


def _whole(option: str, given: int, most: int) -> int:
    if 0 <= given <= most:
        return given
    raise InputError(f"{given} given; allowed: from 0 to {most}", where=option)


def _time_scale(given: float | None, mode: str, *, real: bool) -> float:
    default = 1.0 if real else DEFAULT_TIME_SCALE[mode]  # programs take the time they take
    scale = default if given is None else given
    if 0 < scale <= MOST_TIME_SCALE:
        return scale
    raise InputError(f"{scale} given; allowed: above 0, at most {MOST_TIME_SCALE:g}", where="--time-scale")
