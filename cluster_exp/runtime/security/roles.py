"""Which role may call which method; whoever presents no fitting token is turned away before a servicer sees it."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, Any, NoReturn

import grpc
import grpc.aio

from cluster_exp.runtime.security.access import Access, Role

_MASTER = "/cluster_exp.runtime.rpc.MasterService/"
_WORKER = "/cluster_exp.runtime.rpc.WorkerService/"
ALLOWED = {
    _MASTER + "Register": frozenset({Role.WORKER}),
    _MASTER + "Report": frozenset({Role.WORKER}),
    _MASTER + "SubmitJob": frozenset({Role.SUBMIT, Role.ADMIN}),
    _MASTER + "CancelJob": frozenset({Role.SUBMIT, Role.ADMIN}),
    _MASTER + "QueryJobs": frozenset({Role.SUBMIT, Role.OBSERVE, Role.ADMIN}),
    _MASTER + "QueryCluster": frozenset({Role.SUBMIT, Role.OBSERVE, Role.ADMIN}),
    _WORKER + "Carry": frozenset({Role.ADMIN}),
    _WORKER + "QueryTrainers": frozenset({Role.OBSERVE, Role.ADMIN}),
    _WORKER + "Shutdown": frozenset({Role.ADMIN}),
}
_BEARER = "Bearer "
_Context = grpc.aio.ServicerContext[Any, Any]
if TYPE_CHECKING:
    _Handler = grpc.RpcMethodHandler[Any, Any]
else:
    _Handler = grpc.RpcMethodHandler


class RoleInterceptor(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]  # generic in its stubs alone
    """Answers UNAUTHENTICATED without a known token, PERMISSION_DENIED with one of another role."""

    def __init__(self, access: Access) -> None:
        self._access = access

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[_Handler]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> _Handler:
        """The method's own handler, or one that refuses in its place. A method that `ALLOWED` lacks is nobody's."""
        handler = await continuation(handler_call_details)
        if handler is None:
            return handler
        method = handler_call_details.method
        role = self._role(handler_call_details)
        if role is None:
            return _refusal(
                handler, grpc.StatusCode.UNAUTHENTICATED, f"{method} asks for a token; none that is known"
            )
        allowed = ALLOWED.get(method, frozenset())
        if role not in allowed:
            names = ", ".join(sorted(one.value for one in allowed)) or "nobody"
            reason = f"{method} with a token of the role {role.value}; allowed: {names}"
            return _refusal(handler, grpc.StatusCode.PERMISSION_DENIED, reason)
        return handler

    def _role(self, details: grpc.HandlerCallDetails) -> Role | None:
        given = [value for key, value in details.invocation_metadata or () if key == "authorization"]
        if len(given) != 1 or not isinstance(given[0], str) or not given[0].startswith(_BEARER):
            return None
        return self._access.role_of(given[0].removeprefix(_BEARER))


def _refusal(handler: _Handler, code: grpc.StatusCode, reason: str) -> _Handler:
    async def one(request: object, context: _Context) -> NoReturn:
        await context.abort(code, reason)
        raise AssertionError("abort always raises")

    async def many(requests: object, context: _Context) -> AsyncIterator[object]:
        await context.abort(code, reason)
        yield

    if handler.response_streaming:
        make = (
            grpc.stream_stream_rpc_method_handler
            if handler.request_streaming
            else grpc.unary_stream_rpc_method_handler
        )
        return make(many, handler.request_deserializer, handler.response_serializer)
    make_one = (
        grpc.stream_unary_rpc_method_handler if handler.request_streaming else grpc.unary_unary_rpc_method_handler
    )
    return make_one(one, handler.request_deserializer, handler.response_serializer)
