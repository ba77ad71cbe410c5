"""Orders to one worker: in order, each with a deadline, repeated a limited number of times."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import grpc
import grpc.aio

from cluster_exp.protocol.messages import Order
from cluster_exp.runtime import codec
from cluster_exp.runtime.rpc import worker_pb2 as rpc
from cluster_exp.runtime.rpc.worker_pb2_grpc import WorkerServiceStub
from cluster_exp.runtime.security.access import Access, Role
from cluster_exp.runtime.security.channels import open_channel

DEADLINE_S = 5.0
_ATTEMPTS = 4
_MAX_TOGETHER = 100  # orders of one call
_FIRST_WAIT_S = 0.1
_AGAIN = frozenset(
    {
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
    }
)
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Trouble:
    """Where a link reports what did not work."""

    refused: Callable[[Order, str], None]  # the worker will not carry out this order
    silent: Callable[[str], None]  # the worker does not answer


@dataclass(frozen=True, slots=True)
class _Queued:
    order: Order
    after: asyncio.Event | None  # send it only when this is set
    sent: asyncio.Event


class WorkerLink:
    """A channel to one worker and the orders that wait to be sent over it; those that wait together go together."""

    def __init__(self, name: str, address: str, trouble: Trouble, access: Access | None = None) -> None:
        self._name = name
        self._trouble = trouble
        self._channel = open_channel(address, access, Role.ADMIN)
        self._stub = WorkerServiceStub(self._channel)
        self._queue: deque[_Queued] = deque()
        self._filled = asyncio.Event()
        self._task = asyncio.create_task(self._run(), name=f"orders to {name}")

    def send(self, order: Order, after: asyncio.Event | None = None) -> asyncio.Event:
        """Queues an order behind the earlier ones; the result is set when the worker has it, or never will."""
        queued = _Queued(order, after, asyncio.Event())
        self._queue.append(queued)
        self._filled.set()
        return queued.sent

    async def shutdown(self, reason: str, deadline_s: float = DEADLINE_S) -> bool:
        """Tells the worker to stop its trainers and leave; returns whether it heard."""
        try:
            await self._stub.Shutdown(rpc.ShutdownRequest(reason=reason), timeout=deadline_s)
        except grpc.aio.AioRpcError as error:
            _log.warning("node=%s shutdown not delivered: %s %s", self._name, error.code(), error.details())
            return False
        return True

    async def close(self) -> None:
        """Drops the orders that were not sent and closes the channel."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        for queued in self._queue:
            queued.sent.set()
        await self._channel.close(None)

    async def _run(self) -> None:
        while True:
            while not self._queue:
                self._filled.clear()
                await self._filled.wait()
            first = self._queue[0].after
            if first is not None:
                await first.wait()
            ready = self._take_ready()
            try:
                await self._deliver([queued.order for queued in ready])
            finally:
                for queued in ready:
                    queued.sent.set()

    def _take_ready(self) -> list[_Queued]:
        """The orders up to the first that has to wait for another worker."""
        ready: list[_Queued] = []
        while self._queue and len(ready) < _MAX_TOGETHER:
            after = self._queue[0].after
            if after is not None and not after.is_set():
                break
            ready.append(self._queue.popleft())
        return ready

    async def _deliver(self, orders: Sequence[Order]) -> None:
        request = codec.orders_to(orders)
        wait_s = _FIRST_WAIT_S
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                reply = await self._stub.Carry(request, timeout=DEADLINE_S)
            except grpc.aio.AioRpcError as error:
                reason = f"{error.code().name} {error.details()}"
                if error.code() not in _AGAIN:
                    for order in orders:
                        self._trouble.refused(order, reason)
                    return
                _log.info("node=%s attempt=%d %s", self._name, attempt, reason)
            else:
                for refusal in reply.refused:
                    if refusal.order < len(orders):
                        self._trouble.refused(orders[refusal.order], refusal.reason)
                return
            await asyncio.sleep(wait_s)
            wait_s *= 2
        self._trouble.silent(f"no answer to {_ATTEMPTS} calls: {reason}")
