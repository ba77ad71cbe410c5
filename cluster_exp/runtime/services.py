"""The master's gRPC service: checks what arrives, hands it to the loop, sends its answer."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Any, TypeVar

import grpc
import grpc.aio

from cluster_exp.protocol.messages import JobView, NodeView, Welcome
from cluster_exp.protocol.refusal import RefusalKind, Refused
from cluster_exp.runtime import calls, codec, fields
from cluster_exp.runtime.fields import FieldError
from cluster_exp.runtime.rpc import master_pb2 as rpc
from cluster_exp.runtime.rpc.master_pb2_grpc import MasterServiceServicer

MAX_MESSAGE_BYTES = 8 * 2**20
SERVER_OPTIONS = (
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.so_reuseport", 0),
)
CHANNEL_OPTIONS = (
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.enable_http_proxy", 0),
    ("grpc.use_local_subchannel_pool", 1),  # a connection a channel, also for several workers of one process
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 2_000),
)
_CODES = {
    RefusalKind.INVALID: grpc.StatusCode.INVALID_ARGUMENT,
    RefusalKind.PRECONDITION: grpc.StatusCode.FAILED_PRECONDITION,
    RefusalKind.NOT_FOUND: grpc.StatusCode.NOT_FOUND,
    RefusalKind.TAKEN: grpc.StatusCode.ALREADY_EXISTS,
    RefusalKind.BUSY: grpc.StatusCode.RESOURCE_EXHAUSTED,
}
_RETRY_HINT = (("retry-after", "1"),)  # seconds; trailing metadata of RESOURCE_EXHAUSTED
_T = TypeVar("_T")
_Context = grpc.aio.ServicerContext[Any, Any]


async def answer(context: _Context, work: Callable[[], Awaitable[_T]]) -> _T:
    """The result of `work`; a refusal or an unusable field becomes the call's status."""
    try:
        return await work()
    except FieldError as error:
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
    except Refused as refused:
        hint = _RETRY_HINT if refused.kind is RefusalKind.BUSY else ()
        await context.abort(_CODES[refused.kind], str(refused), hint)
    raise AssertionError("abort always raises")


class MasterServicer(MasterServiceServicer):
    """Turns each request into one call of the master's loop. It holds no state and changes none."""

    def __init__(self, post: Callable[[calls.Call], None]) -> None:
        """`post` hands a call to the loop; it raises `Refused` when there is no room."""
        self._post = post

    async def Register(self, request: rpc.RegisterRequest, context: _Context) -> rpc.RegisterReply:
        """A worker offers its node."""

        async def work() -> rpc.RegisterReply:
            registration = codec.registration_from(request)
            reply: asyncio.Future[Welcome] = _future()
            self._post(calls.Register(registration, reply))
            return codec.welcome_to(await reply)

        return await answer(context, work)

    async def Report(
        self, requests: AsyncIterator[rpc.ReportRequest], context: _Context
    ) -> AsyncIterator[rpc.ReportReply]:
        """A worker's batches of reports, one after the other."""
        async for request in requests:
            yield await answer(context, partial(self._take_batch, request))

    async def _take_batch(self, request: rpc.ReportRequest) -> rpc.ReportReply:
        batch = codec.batch_from(request)
        reply: asyncio.Future[int] = _future()
        self._post(calls.Report(batch, reply))
        return rpc.ReportReply(acknowledged=await reply)

    async def SubmitJob(self, request: rpc.SubmitJobRequest, context: _Context) -> rpc.SubmitJobReply:
        """Jobs to run."""

        async def work() -> rpc.SubmitJobReply:
            request_id, jobs = codec.submission_from(request)
            reply: asyncio.Future[float] = _future()
            self._post(calls.Submit(request_id, jobs, reply))
            return rpc.SubmitJobReply(submit_s=await reply)

        return await answer(context, work)

    async def CancelJob(self, request: rpc.CancelJobRequest, context: _Context) -> rpc.CancelJobReply:
        """A job to end."""

        async def work() -> rpc.CancelJobReply:
            reply: asyncio.Future[None] = _future()
            self._post(calls.Cancel(fields.name("job_id", request.job_id), reply))
            await reply
            return rpc.CancelJobReply()

        return await answer(context, work)

    async def QueryJobs(self, request: rpc.QueryJobsRequest, context: _Context) -> rpc.QueryJobsReply:
        """Which jobs are where."""

        async def work() -> rpc.QueryJobsReply:
            fields.few("job_ids", request.job_ids)
            job_ids = tuple(fields.name(f"job_ids[{i}]", name) for i, name in enumerate(request.job_ids))
            reply: asyncio.Future[tuple[float, list[JobView]]] = _future()
            self._post(calls.QueryJobs(job_ids, reply))
            now_s, views = await reply
            return rpc.QueryJobsReply(now_s=now_s, jobs=[codec.job_view_to(view) for view in views])

        return await answer(context, work)

    async def QueryCluster(self, request: rpc.QueryClusterRequest, context: _Context) -> rpc.QueryClusterReply:
        """Which nodes are there."""

        async def work() -> rpc.QueryClusterReply:
            reply: asyncio.Future[tuple[float, list[NodeView]]] = _future()
            self._post(calls.QueryCluster(reply))
            now_s, views = await reply
            return rpc.QueryClusterReply(now_s=now_s, nodes=[codec.node_view_to(view) for view in views])

        return await answer(context, work)


def _future() -> asyncio.Future[_T]:
    return asyncio.get_running_loop().create_future()
