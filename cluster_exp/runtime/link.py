"""Orders to one worker: in order, each with a deadline, repeated a limited number of times."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass

import grpc
import grpc.aio

from cluster_exp.protocol.messages import LaunchOrder, Order, PreemptOrder, TurnsOrder
from cluster_exp.runtime import codec
from cluster_exp.runtime.rpc import worker_pb2 as rpc
from cluster_exp.runtime.rpc.worker_pb2_grpc import WorkerServiceStub
from cluster_exp.runtime.services import CHANNEL_OPTIONS

DEADLINE_S = 5.0
_ATTEMPTS = 4
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
    """A channel to one worker and the orders that wait to be sent over it."""

    def __init__(self, name: str, address: str, trouble: Trouble) -> None:
        self._name = name
        self._trouble = trouble
        self._channel = grpc.aio.insecure_channel(address, options=CHANNEL_OPTIONS)
        self._stub = WorkerServiceStub(self._channel)
        self._queue: asyncio.Queue[_Queued] = asyncio.Queue()
        self._task = asyncio.create_task(self._run(), name=f"orders to {name}")

    def send(self, order: Order, after: asyncio.Event | None = None) -> asyncio.Event:
        """Queues an order behind the earlier ones; the result is set when the worker has it, or never will."""
        queued = _Queued(order, after, asyncio.Event())
        self._queue.put_nowait(queued)
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
        while not self._queue.empty():
            self._queue.get_nowait().sent.set()
        await self._channel.close(None)

    async def _run(self) -> None:
        while True:
            queued = await self._queue.get()
            try:
                if queued.after is not None:
                    await queued.after.wait()
                await self._deliver(queued.order)
            finally:
                queued.sent.set()

    async def _deliver(self, order: Order) -> None:
        wait_s = _FIRST_WAIT_S
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                await self._call(order)
                return
            except grpc.aio.AioRpcError as error:
                reason = f"{error.code().name} {error.details()}"
                if error.code() not in _AGAIN:
                    self._trouble.refused(order, reason)
                    return
                _log.info("node=%s attempt=%d %s", self._name, attempt, reason)
            await asyncio.sleep(wait_s)
            wait_s *= 2
        self._trouble.silent(f"no answer to {_ATTEMPTS} calls: {reason}")

    async def _call(self, order: Order) -> None:
        match order:
            case LaunchOrder():
                await self._stub.Launch(codec.launch_to(order), timeout=DEADLINE_S)
            case PreemptOrder():
                await self._stub.Preempt(codec.preempt_to(order), timeout=DEADLINE_S)
            case TurnsOrder():
                await self._stub.SetTurns(codec.turns_to(order), timeout=DEADLINE_S)
