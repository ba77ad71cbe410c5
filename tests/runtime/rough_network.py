"""Stands between one worker and its master, and loses, delays, repeats and reorders what they say to each other."""

import asyncio
import random
from collections import Counter
from contextlib import asynccontextmanager, suppress

import grpc
import grpc.aio

from cluster_exp.runtime.rpc.master_pb2 import RegisterRequest

MASTER, WORKER = "/cluster_exp.runtime.rpc.MasterService/", "/cluster_exp.runtime.rpc.WorkerService/"
KINDS = ("lost", "answer lost", "delayed", "duplicated", "reordered")
LONGEST_DELAY_S = 0.4
SILENCE_S = 2.0  # how long a swallowed word's answer fails to come, beyond any deadline of the test


class RoughNetwork:
    """Two gRPC servers that carry each word as bytes: towards the master, and towards the worker behind it.

    `rate` is the share of the words that something happens to; `done` counts what happened, by kind.
    """

    def __init__(self, master: str, seed: int, rate: float) -> None:
        self.done: Counter[str] = Counter()
        self.calm = False  # from now on every word passes as it is
        self._draw = random.Random(seed)
        self._rate, self._bag = rate, []
        self._to_master = grpc.aio.insecure_channel(master)
        self._to_worker: grpc.aio.Channel | None = None
        self._late: set[asyncio.Task] = set()

    @asynccontextmanager
    async def up(self):
        """Serves while the block runs; yields the address that the worker takes for its master's."""
        ends = []
        for handler in (_Way(self._towards_master), _Way(self._towards_worker)):
            server = grpc.aio.server()
            server.add_generic_rpc_handlers((handler,))
            ends.append((server, server.add_insecure_port("127.0.0.1:0")))
            await server.start()
        (server, port), (behind, self._worker_side) = ends
        try:
            yield f"127.0.0.1:{port}"
        finally:
            for task in self._late:
                task.cancel()
            await asyncio.gather(*self._late, return_exceptions=True)
            for one in (server, behind):
                await one.stop(None)
            for channel in filter(None, (self._to_master, self._to_worker)):
                await channel.close(None)

    def _fate(self) -> str:
        if self.calm or self._draw.random() >= self._rate:
            return "carried"
        if not self._bag:  # each kind has its turn, in an order by chance
            self._bag = self._draw.sample(KINDS, len(KINDS))
        fate = self._bag.pop()
        self.done[fate] += 1
        return fate

    def _towards_master(self, method: str):
        if method == MASTER + "Report":
            return grpc.stream_stream_rpc_method_handler(self._report)
        if method == MASTER + "Register":
            return grpc.unary_unary_rpc_method_handler(self._register)
        return None

    def _towards_worker(self, method: str):
        async def carry(word: bytes, context) -> bytes:
            assert self._to_worker is not None
            return await self._carry(self._to_worker.unary_unary(method), word, context)

        return grpc.unary_unary_rpc_method_handler(carry) if method.startswith(WORKER) else None

    async def _register(self, word: bytes, context) -> bytes:
        offer = RegisterRequest.FromString(word)
        if self._to_worker is None:
            self._to_worker = grpc.aio.insecure_channel(offer.worker_address)
        offer.worker_address = f"127.0.0.1:{self._worker_side}"
        return await self._carry(self._to_master.unary_unary(MASTER + "Register"), offer.SerializeToString(), context)

    async def _carry(self, call, word: bytes, context) -> bytes:
        """One call, with what happens to it on its way."""
        fate = self._fate()
        try:
            if fate == "lost":
                await context.abort(grpc.StatusCode.UNAVAILABLE, "lost on the way")
            if fate == "delayed":
                await self._delay()
            if fate == "duplicated":
                await call(word, timeout=SILENCE_S)
            if fate == "reordered":  # an old copy comes when later words have been heard
                self._later(lambda: call(word, timeout=SILENCE_S))
            answer = await call(word, timeout=SILENCE_S)
        except grpc.aio.AioRpcError as error:
            await context.abort(error.code(), error.details() or "")
        if fate == "answer lost":
            await context.abort(grpc.StatusCode.UNAVAILABLE, "the answer was lost on the way")
        return answer

    async def _report(self, words, context):
        """The stream of batches: to lose a word is to break the stream before or after it, or to swallow it."""
        call = self._to_master.stream_stream(MASTER + "Report")()
        try:
            async for word in words:
                fate = self._fate()
                if fate == "lost":
                    if self._draw.random() < 0.5:
                        continue  # swallowed
                    await context.abort(grpc.StatusCode.UNAVAILABLE, "lost on the way")
                if fate == "delayed":
                    await self._delay()
                if fate == "reordered":
                    self._later(lambda word=word: self._report_once(word))
                for _ in range(2 if fate == "duplicated" else 1):
                    await call.write(word)
                    answer = await call.read()
                    if answer is grpc.aio.EOF:
                        await context.abort(await call.code(), await call.details())
                if fate == "answer lost":
                    await context.abort(grpc.StatusCode.UNAVAILABLE, "the answer was lost on the way")
                yield answer
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            await context.abort(await call.code(), await call.details())
        finally:
            call.cancel()

    async def _report_once(self, word: bytes) -> None:
        call = self._to_master.stream_stream(MASTER + "Report")(timeout=SILENCE_S)
        await call.write(word)
        await call.read()
        call.cancel()

    async def _delay(self) -> None:
        await asyncio.sleep(self._draw.random() * LONGEST_DELAY_S)

    def _later(self, say) -> None:
        async def wait() -> None:
            await self._delay()
            with suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
                await say()

        task = asyncio.create_task(wait())
        self._late.add(task)
        task.add_done_callback(self._late.discard)


class _Way(grpc.GenericRpcHandler):
    """Finds the handler of a method by its full name."""

    def __init__(self, find) -> None:
        self._find = find

    def service(self, details):
        return self._find(details.method)
