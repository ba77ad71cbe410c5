"""Starts the processes, submits the jobs, and notes when each was launched and ended."""

import asyncio
import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from cluster_exp.domain.cluster import ClusterSpec, NodeSpec
from cluster_exp.domain.job import JobSpec
from cluster_exp.domain.profile import StageProfile
from cluster_exp.runtime import codec
from cluster_exp.runtime.rpc.master_pb2_grpc import MasterServiceStub
from cluster_exp.runtime.services import CHANNEL_OPTIONS
from control_plane_kit.hosts import HostPlan, News, host_main
from control_plane_kit.master import Address, MasterPlan, Sample, master_main

ITERATION_S = 0.8  # a little less than workers wait between reports: each report has news of each job
LATE_JOB_S = 2.4  # how long a job runs that takes the place of an earlier one
_MARGIN_S = 2.0  # for the last of the first jobs to start
_LATE = 0.15  # how much longer than planned it may take to submit them all
_PROFILE = StageProfile(ITERATION_S, 0.1, 0.2, 0.4, 0.1)
_DEADLINE_S = 60.0
_AGAIN_S = 0.2
_STOP_S = 10.0  # for everybody to leave when told
_AGAIN = frozenset(
    {
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        grpc.StatusCode.CANCELLED,  # gRPC's own answer when too many calls wait
    }
)


class RunError(RuntimeError):
    """The run cannot go on; the message is one line."""


@dataclass(frozen=True, slots=True)
class Size:
    """How large the benchmark is."""

    workers: int
    gpus: int  # of each worker
    jobs: int
    seconds: float  # for which all GPUs are to be busy
    rate: float  # jobs submitted per second
    hosts: int  # processes that hold the workers
    policy: str

    @property
    def together(self) -> int:
        """Jobs that run at the same time."""
        return min(self.jobs, self.workers * self.gpus)

    @property
    def first_iterations(self) -> int:
        """Iterations of the jobs that fill the cluster: enough to run together for `seconds`."""
        fill_s = (1 + _LATE) * self.together / self.rate + _MARGIN_S
        return round((fill_s + self.seconds) / ITERATION_S)


@dataclass(slots=True)
class Log:
    """What happened, by the monotonic clock."""

    due_s: dict[str, float] = field(default_factory=dict)  # when a job was to be submitted
    launched_s: dict[str, float] = field(default_factory=dict)  # when its trainer was started first
    launches: int = 0
    ended: dict[str, int] = field(default_factory=dict)  # iterations done by jobs whose trainer did all
    first_end_s: float = float("inf")
    samples: list[Sample] = field(default_factory=list)


class Driver:
    """One run of the benchmark."""

    def __init__(self, size: Size, folder: Path, profile: Path | None, show: Callable[[Log], None]) -> None:
        self.log = Log()
        self._size = size
        self._folder = folder
        self._profile = profile
        self._show = show
        self._processes: list[BaseProcess] = []
        self._address: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._trouble: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._ready = asyncio.Event()
        self._room = asyncio.Semaphore(size.workers * size.gpus)  # free GPUs
        self._gone = asyncio.Event()

    async def run(self) -> None:
        """Runs it all; when it returns or raises no process is left. Raises RunError when it cannot go on."""
        with self._stopping_all():
            work = asyncio.create_task(self._work())
            done, _ = await asyncio.wait((work, self._trouble), return_when=asyncio.FIRST_COMPLETED)
            if work not in done:
                work.cancel()
                await asyncio.gather(work, return_exceptions=True)
                raise RunError(self._trouble.result())
            await work

    async def _work(self) -> None:
        size = self._size
        names = [f"n{i}" for i in range(size.workers)]
        cluster = ClusterSpec(tuple(NodeSpec(name, size.gpus) for name in names))
        plan = MasterPlan(cluster, size.jobs, size.policy, self._folder / "run", self._profile, os.getpid())
        self._spawn("master", master_main, plan)
        address = await self._address
        for i in range(size.hosts):
            host = HostPlan(address, tuple(names[i :: size.hosts]), size.gpus, self._folder, os.getpid())
            self._spawn(f"host {i}", host_main, host)
        await self._ready.wait()
        async with grpc.aio.insecure_channel(address, options=CHANNEL_OPTIONS) as channel:
            await self._submit_all(MasterServiceStub(channel))
        await self._gone.wait()

    # Submitting

    async def _submit_all(self, stub: MasterServiceStub) -> None:
        """Submits at the rate, but never more than there are GPUs; a late submission counts from when it was due."""
        size, loop = self._size, asyncio.get_running_loop()
        sends: set[asyncio.Task[None]] = set()
        next_s = loop.time()
        for i in range(size.jobs):
            await asyncio.sleep(max(0.0, next_s - loop.time()))
            if self._room.locked():
                await self._room.acquire()
                next_s = loop.time()
            else:
                await self._room.acquire()
            iterations = size.first_iterations if i < size.together else round(LATE_JOB_S / ITERATION_S)
            job_id = f"job-{i}"
            self.log.due_s[job_id] = next_s
            task = asyncio.create_task(self._submit(stub, _job(job_id, iterations)))
            sends.add(task)
            task.add_done_callback(sends.discard)
            next_s += 1 / size.rate
        await asyncio.gather(*sends)

    async def _submit(self, stub: MasterServiceStub, job: JobSpec) -> None:
        message = codec.submission_to(job.job_id, [job])
        while True:
            try:
                await stub.SubmitJob(message, timeout=_DEADLINE_S)
                return
            except grpc.aio.AioRpcError as error:
                if error.code() not in _AGAIN:
                    self._fail(f"job {job.job_id} was not taken: {error.code().name} {error.details()}")
                    return
            await asyncio.sleep(_AGAIN_S)

    # What the others say

    def _spawn(self, name: str, target: Callable[..., None], plan: object) -> None:
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe(duplex=False)
        process = context.Process(target=target, args=(plan, theirs), name=name)
        resource_tracker.ensure_running()  # later it would unblock what is blocked here
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # inherited: Ctrl-C is for this process only
        try:
            process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        theirs.close()
        self._processes.append(process)
        asyncio.get_running_loop().add_reader(ours.fileno(), self._read, ours, process)

    def _read(self, pipe: Connection, process: BaseProcess) -> None:
        try:
            message: Any = pipe.recv()
        except (EOFError, OSError):
            asyncio.get_running_loop().remove_reader(pipe.fileno())
            pipe.close()
            process.join()
            if process.exitcode:
                self._fail(f"the process of {process.name} ended with code {process.exitcode}")
            if all(one.exitcode is not None for one in self._processes):
                self._gone.set()
            return
        match message:
            case Address(address=address):
                self._address.set_result(address)
            case Sample():
                self.log.samples.append(message)
                if message.running:
                    self._ready.set()
            case News():
                self._take_news(message)
        self._show(self.log)

    def _take_news(self, news: News) -> None:
        log = self.log
        if news.error:
            self._fail(news.error)
        for job_id, at_s in news.launched:
            log.launches += 1
            log.launched_s.setdefault(job_id, at_s)
        for job_id, done, at_s in news.ended:
            log.ended[job_id] = done
            log.first_end_s = min(log.first_end_s, at_s)
            self._room.release()

    def _fail(self, why: str) -> None:
        if not self._trouble.done():
            self._trouble.set_result(why)

    # Leaving

    @contextmanager
    def _stopping_all(self) -> Iterator[None]:
        """Whatever happens in the block, all processes are gone after it."""
        try:
            yield
        finally:
            for process in self._processes:
                process.terminate()
            deadline_s = time.monotonic() + _STOP_S
            for process in self._processes:
                process.join(max(0.0, deadline_s - time.monotonic()))
            for process in self._processes:
                if process.is_alive():
                    process.kill()
                    process.join()


def _job(job_id: str, iterations: int) -> JobSpec:
    return JobSpec(job_id, 1, 0.0, iterations, iterations * ITERATION_S, "emulated", 1, _PROFILE)
