"""Orders to one worker: in order, each with a deadline, repeated a limited number of times."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import grpc
import grpc.aio

from cluster_exp.protocol.messages import Endpoint, LaunchOrder, Order
from cluster_exp.runtime import codec
from cluster_exp.runtime.fields import FieldError
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


@dataclass(slots=True)
class Delivery:
    """An order on its way to a worker."""

    over: asyncio.Event = field(default_factory=asyncio.Event)  # set when the worker has it, or never will
    endpoint: Endpoint | None = None  # where the ranks of a launch meet, if its worker opened it


NOTHING = Delivery()
NOTHING.over.set()


@dataclass(frozen=True, slots=True)
class _Queued:
    order: Order
    after: Sequence[Delivery]  # send it only when these are over
    meeting: Delivery | None  # the launch whose meeting place this order has to name
    delivery: Delivery = field(default_factory=Delivery)

    @property
    def ready(self) -> bool:
        return all(delivery.over.is_set() for delivery in self.after)

    @property
    def lost(self) -> bool:
        """Whether it waited for a meeting place that was not opened."""
        return self.meeting is not None and self.meeting.endpoint is None

    @property
    def whole(self) -> Order:
        """The order as it is sent."""
        if self.meeting is not None and isinstance(self.order, LaunchOrder):
            return replace(self.order, endpoint=self.meeting.endpoint)
        return self.order


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

    def send(self, order: Order, after: Sequence[Delivery] = (), meeting: Delivery | None = None) -> Delivery:
        """Queues an order behind the earlier ones.

        Args:
            order: what the worker is to do.
            after: orders to other workers that have to be over before.
            meeting: the launch of the same job on another node, whose answer says where the ranks meet.
        """
        queued = _Queued(order, (*after, meeting) if meeting else after, meeting)
        self._queue.append(queued)
        self._filled.set()
        return queued.delivery

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
            queued.delivery.over.set()
        await self._channel.close(None)

    async def _run(self) -> None:
        while True:
            while not self._queue:
                self._filled.clear()
                await self._filled.wait()
            for delivery in self._queue[0].after:
                await delivery.over.wait()
            ready = self._take_ready()
            try:
                for queued in ready:
                    if queued.lost:
                        self._trouble.refused(queued.order, "the worker of its first rank opened no meeting place")
                await self._deliver([queued for queued in ready if not queued.lost])
            finally:
                for queued in ready:
                    queued.delivery.over.set()

    def _take_ready(self) -> list[_Queued]:
        """The orders up to the first that has to wait for another worker."""
        ready: list[_Queued] = []
        while self._queue and len(ready) < _MAX_TOGETHER:
            if not self._queue[0].ready:
                break
            ready.append(self._queue.popleft())
        return ready

    async def _deliver(self, queued: Sequence[_Queued]) -> None:
        orders = [entry.whole for entry in queued]
        if not orders:
            return
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
                self._note(reply, queued)
                return
            await asyncio.sleep(wait_s)
            wait_s *= 2
        self._trouble.silent(f"no answer to {_ATTEMPTS} calls: {reason}")

    def _note(self, reply: rpc.OrdersReply, queued: Sequence[_Queued]) -> None:
        """Takes a worker's answer to its orders."""
        for refusal in reply.refused:
            if refusal.order < len(queued):
                self._trouble.refused(queued[refusal.order].order, refusal.reason)
        for opened in reply.opened:
            if opened.order < len(queued):
                try:
                    queued[opened.order].delivery.endpoint = codec.endpoint_from(opened.endpoint)
                except FieldError as error:
                    _log.warning("node=%s %s", self._name, error)
