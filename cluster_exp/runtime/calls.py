"""What reaches the master's loop: requests that wait for an answer, and news of orders."""

import asyncio
from collections import deque
from dataclasses import dataclass
from typing import Generic, TypeVar

from cluster_exp.domain.job import JobSpec
from cluster_exp.protocol.messages import JobView, NodeView, Order, Registration, ReportBatch, Welcome
from cluster_exp.protocol.refusal import RefusalKind, Refused

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Register:
    """A worker offers its node."""

    registration: Registration
    reply: asyncio.Future[Welcome]


@dataclass(frozen=True, slots=True)
class Report:
    """A worker's batch; the answer is the highest batch taken."""

    batch: ReportBatch
    reply: asyncio.Future[int]


@dataclass(frozen=True, slots=True)
class Submit:
    """Jobs to run; the answer is the simulated time at which they arrived."""

    request_id: str
    jobs: tuple[JobSpec, ...]
    reply: asyncio.Future[float]


@dataclass(frozen=True, slots=True)
class Cancel:
    """A job to end."""

    job_id: str
    reply: asyncio.Future[None]


@dataclass(frozen=True, slots=True)
class QueryJobs:
    """Which jobs are where; no ids = all jobs. The answer starts with the simulated time."""

    job_ids: tuple[str, ...]
    reply: asyncio.Future[tuple[float, list[JobView]]]


@dataclass(frozen=True, slots=True)
class QueryCluster:
    """Which nodes are there. The answer starts with the simulated time."""

    reply: asyncio.Future[tuple[float, list[NodeView]]]


@dataclass(frozen=True, slots=True)
class OrderRefused:
    """A worker will not carry out an order."""

    node: int
    order: Order
    reason: str


@dataclass(frozen=True, slots=True)
class WorkerSilent:
    """A worker does not answer any more."""

    node: int
    reason: str


def settle(reply: asyncio.Future[_T], value: _T) -> None:
    """Answers a call whose asker may be gone."""
    if not reply.done():
        reply.set_result(value)


def refuse(call: "Call", refused: Refused) -> None:
    """Turns a call down, if somebody waits for its answer."""
    if not isinstance(call, OrderRefused | WorkerSilent) and not call.reply.done():
        call.reply.set_exception(refused)


Call = Register | Report | Submit | Cancel | QueryJobs | QueryCluster | OrderRefused | WorkerSilent


@dataclass(frozen=True, slots=True)
class Arrival(Generic[_T]):
    """Something and when it came, in simulated seconds."""

    at_s: float
    what: _T


class CallQueue:
    """A bounded queue between servicers and the loop that owns the state; both run in one event loop."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._calls: deque[Arrival[Call]] = deque()
        self._filled = asyncio.Event()
        self._closed: str | None = None  # why it takes nothing more

    def __len__(self) -> int:
        return len(self._calls)

    def post(self, call: Call, at_s: float) -> None:
        """Appends a call.

        Raises:
            Refused: BUSY, when the queue is full or closed.
        """
        if self._closed is not None:
            raise Refused(RefusalKind.BUSY, self._closed)
        if len(self._calls) >= self._limit:
            raise Refused(RefusalKind.BUSY, f"{self._limit} requests are waiting; try again in a second")
        self._calls.append(Arrival(at_s, call))
        self._filled.set()

    def tell(self, call: OrderRefused | WorkerSilent, at_s: float) -> None:
        """Appends the runtime's own news, for which there is always room: there is one at most per order."""
        self._calls.append(Arrival(at_s, call))
        self._filled.set()

    def close(self, why: str) -> None:
        """Refuses the calls that are there and all that come."""
        self._closed = why
        for arrival in self._calls:
            refuse(arrival.what, Refused(RefusalKind.BUSY, why))
        self._calls.clear()

    def nudge(self) -> None:
        """Makes a `wait` return."""
        self._filled.set()

    async def wait(self, timeout_s: float, gather_s: float = 0.0) -> list[Arrival[Call]]:
        """All calls that are there, after at most `timeout_s` wall seconds; possibly none.

        Others get `gather_s` wall seconds to join the first one.
        """
        if not self._calls:
            try:
                async with asyncio.timeout(timeout_s):
                    await self._filled.wait()
            except TimeoutError:
                return []
        if gather_s:
            await asyncio.sleep(gather_s)
        self._filled.clear()
        calls = list(self._calls)
        self._calls.clear()
        return calls
