"""A short run of one job alone, to measure its stage times and peak memory."""

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import reduce
from pathlib import Path

from cluster_exp.domain.measure import StageWindow
from cluster_exp.domain.profile import StageProfile
from cluster_exp.runtime.commands import package_path
from cluster_exp.runtime.rendezvous import LOOPBACK, open_rendezvous, rank_environment, rank_places
from cluster_exp.runtime.turn_server import TrainerEvent, TrainerProgress, TurnServer

_JOB_ID = "profile"
_LOG_TAIL_BYTES = 2_000
_POLL_S = 0.02
_WINDOWS_TO_DROP_ONE = 3  # a rank with so many windows is taken without its first: it may hold a slow start


class ProfilingError(RuntimeError):
    """The program could not be measured; the message is one line."""


@dataclass(frozen=True, slots=True)
class ProfilingRun:
    """What is started, and for how long."""

    argv: tuple[str, ...]  # of each rank
    num_gpu: int = 1  # ranks, each with a GPU of its own
    iterations: int = 50  # at least 3: the first one does not count
    backend: str = "torch"  # how several ranks exchange gradients
    timeout_s: float = 600.0  # wall time of the whole run


@dataclass(frozen=True, slots=True)
class Measurement:
    """One iteration alone, as the mean over ranks and iterations."""

    profile: StageProfile  # wall seconds
    iterations: int  # over which the mean is, of all ranks together
    gpu_memory_mib: float | None  # largest peak of a rank; None = none of them uses a GPU


def measure(run: ProfilingRun, log: Path) -> Measurement:
    """Runs the program to its end on this machine, its output going to `log`.

    Raises:
        ProfilingError: a rank failed, took too long, or marked no stages.
        InputError, BackendMissingError: there is no such backend here.
        OSError: the program cannot be started, or the log not written.
    """
    events: list[TrainerEvent] = []  # appended to by the server's thread
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="cluster-exp-"))
        server = TurnServer(Path(folder) / "turns", events.append)
        server.start()
        stack.callback(server.close)
        server.set_group(1, 1, [((_JOB_ID, 1), 0)], 1)
        server.expect(_JOB_ID, 1)
        output = stack.enter_context(log.open("ab"))
        processes: list[subprocess.Popen[bytes]] = []
        stack.callback(_end, processes)
        for env in _environments(run, server.address, stack):
            processes.append(
                subprocess.Popen(
                    run.argv,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    env={**os.environ, **env},
                    process_group=0,
                )
            )
        _wait(processes, run.timeout_s, log)
    return summed_up(events, run.num_gpu)


def summed_up(events: Sequence[TrainerEvent], num_ranks: int) -> Measurement:
    """What the ranks reported, as one. Raises ProfilingError where a rank reported nothing."""
    windows: list[StageWindow] = []
    for rank in range(num_ranks):
        of_rank = [
            event.window
            for event in events
            if isinstance(event, TrainerProgress) and event.rank == rank and event.window is not None
        ]
        if not any(sum(window.stages_s) for window in of_rank):
            raise ProfilingError(
                f"rank {rank} reported no stage times: does the program mark any? (docs/profiles.md)"
            )
        windows += of_rank[1:] if len(of_rank) >= _WINDOWS_TO_DROP_ONE else of_rank
    whole = reduce(StageWindow.joined, windows)
    return Measurement(whole.mean(), whole.iterations, whole.gpu_memory_mib)


def _environments(run: ProfilingRun, address: str, stack: ExitStack) -> list[Mapping[str, str]]:
    places = rank_places([("n0", run.num_gpu)])
    meeting = stack.enter_context(open_rendezvous(run.backend, places, LOOPBACK)) if len(places) > 1 else None
    return [
        {
            **package_path(),
            "CLUSTER_EXP_JOB_ID": _JOB_ID,
            "CLUSTER_EXP_GENERATION": "1",
            "CLUSTER_EXP_RANK": str(place.rank),
            "CLUSTER_EXP_WORLD": str(place.size),
            "CLUSTER_EXP_WORKER": address,
            "CLUSTER_EXP_ARBITER": address,
            "CLUSTER_EXP_ITERATIONS": str(run.iterations),
            "CLUSTER_EXP_ITERATIONS_DONE": "0",
            "CLUSTER_EXP_GPUS": f"0/{place.rank}",
            "CUDA_VISIBLE_DEVICES": _visible(place.rank),
            **(rank_environment(meeting.endpoint, place) if meeting else {}),
        }
        for place in places
    ]


def _visible(rank: int) -> str:
    """The rank's GPU: among those that this process may use, where that is restricted."""
    mine = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    return mine[rank] if rank < len(mine) else str(rank)


def _wait(processes: Sequence[subprocess.Popen[bytes]], timeout_s: float, log: Path) -> None:
    deadline_s = time.monotonic() + timeout_s
    while True:
        codes = [process.poll() for process in processes]
        failed = [rank for rank, code in enumerate(codes) if code]
        if failed:
            code = codes[failed[0]]
            raise ProfilingError(f"rank {failed[0]} ended with code {code}: {_tail(log)}")
        if None not in codes:
            return
        if time.monotonic() > deadline_s:
            raise ProfilingError(f"not done within {timeout_s:g} s: {_tail(log)}")
        time.sleep(_POLL_S)


def _end(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """Ends what still runs, with whatever it started."""
    for process in processes:
        if process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _tail(log: Path) -> str:
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - _LOG_TAIL_BYTES))
        lines = file.read().decode(errors="replace").split("\n")
    return " / ".join(line.strip() for line in lines if line.strip())[-500:] or "it wrote nothing"
