"""Orders to one worker: in order, each with a deadline, repeated a limited number of times."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import grpc
import grpc.aio

from cluster_exp.protocol.messages import LaunchOrder, Order, Registration
from cluster_exp.protocol.outgoing import Delivery
from cluster_exp.runtime import codec
from cluster_exp.runtime.fields import FieldError
from cluster_exp.runtime.rpc import worker_pb2 as rpc
from cluster_exp.runtime.rpc.worker_pb2_grpc import WorkerServiceStub
from cluster_exp.runtime.security.access import Access, Role
from cluster_exp.runtime.security.channels import open_channel

DEADLINE_S = 5.0
_ATTEMPTS = 4
MOST_TOGETHER = 100  # orders of one call
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
    """Whom a link tells how it fares."""

    refused: Callable[[Order, str], None]  # the worker will not carry out this order
    silent: Callable[[str], None]  # the worker does not answer
    over: Callable[[Delivery], None]  # an order is with its worker, or never will be
    waits: Callable[["WorkerLink"], None]  # it wants a `wake` when some order is over


class WorkerLink:
    """A channel to one worker and the orders that wait to be sent over it; those that wait together go together."""

    def __init__(self, registration: Registration, trouble: Trouble, access: Access | None = None) -> None:
        self._name, self._instance = registration.node, registration.instance
        self._trouble = trouble
        self._channel = open_channel(registration.worker_address, access, Role.ADMIN)
        self._stub = WorkerServiceStub(self._channel)
        self._queue: deque[Delivery] = deque()
        self._filled = asyncio.Event()
        self._open = asyncio.Event()
        self._task = asyncio.create_task(self._run(), name=f"orders to {self._name}")

    def send(self, delivery: Delivery) -> None:
        """Queues an order behind the earlier ones."""
        self._queue.append(delivery)
        self._filled.set()

    def open(self) -> None:
        """From now on orders go; before, they only wait."""
        self._open.set()

    def wake(self) -> None:
        """Looks again whether the next order may be sent."""
        self._filled.set()

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
            self._trouble.over(queued)
        await self._channel.close(None)

    async def _run(self) -> None:
        await self._open.wait()
        while True:
            ready = self._take_ready()
            if not ready:
                if self._queue:
                    self._trouble.waits(self)
                self._filled.clear()
                await self._filled.wait()
                continue
            try:
                for queued in ready:
                    if queued.lost:
                        self._trouble.refused(queued.order, "the worker of its first rank opened no meeting place")
                await self._deliver([queued for queued in ready if not queued.lost])
            finally:
                for queued in ready:
                    self._trouble.over(queued)

    def _take_ready(self) -> list[Delivery]:
        """The orders up to the first that has to wait for another worker."""
        ready: list[Delivery] = []
        while self._queue and len(ready) < MOST_TOGETHER and self._queue[0].ready:
            ready.append(self._queue.popleft())
        return ready

    async def _deliver(self, queued: Sequence[Delivery]) -> None:
        orders = [_whole(entry) for entry in queued]
        if not orders:
            return
        request = codec.orders_to(orders, self._instance)
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
                self._note(reply, queued)
                return
            await asyncio.sleep(wait_s)
            wait_s *= 2
        self._trouble.silent(f"no answer to {_ATTEMPTS} calls: {reason}")

    def _note(self, reply: rpc.OrdersReply, queued: Sequence[Delivery]) -> None:
        """Takes a worker's answer to its orders."""
        for refusal in reply.refused:
            if refusal.order < len(queued):
                self._trouble.refused(queued[refusal.order].order, refusal.reason)
        for opened in reply.opened:
            if opened.order < len(queued):
                try:
                    queued[opened.order].endpoint = codec.endpoint_from(opened.endpoint)
                except FieldError as error:
                    _log.warning("node=%s %s", self._name, error)


def _whole(delivery: Delivery) -> Order:
    """An order as it is sent: with the meeting place that it has to name."""
    if delivery.meeting is not None and isinstance(delivery.order, LaunchOrder):
        return replace(delivery.order, endpoint=delivery.meeting.endpoint)
    return delivery.order
