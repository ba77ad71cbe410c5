"""Orders on their way to a worker: which go together, and what becomes of those that it refuses."""

import asyncio
from collections.abc import Sequence
from contextlib import asynccontextmanager
from itertools import chain

import grpc
import grpc.aio

from cluster_exp.protocol.messages import PROTOCOL_VERSION, Order, PreemptOrder, Registration
from cluster_exp.protocol.outgoing import Delivery
from cluster_exp.runtime import codec
from cluster_exp.runtime.links import Links
from cluster_exp.runtime.rpc import worker_pb2
from cluster_exp.runtime.rpc.worker_pb2_grpc import WorkerServiceServicer, add_WorkerServiceServicer_to_server
from tests.runtime.live_kit import until


class Recipient(WorkerServiceServicer):
    """Notes which orders came together, and refuses those of one job."""

    def __init__(self) -> None:
        self.calls: list[list[str]] = []
        self.open = asyncio.Event()  # calls wait until it is set
        self.failures = 0  # calls that are to fail first

    async def Carry(self, request, context):
        await self.open.wait()
        if self.failures:
            self.failures -= 1
            await context.abort(grpc.StatusCode.UNAVAILABLE, "not now")
        orders = [codec.order_from(message) for message in request.orders]
        self.calls.append([order.job_id for order in orders])
        refused = [
            worker_pb2.Refusal(order=i, reason="unwanted") for i, order in enumerate(orders) if order.job_id == "bad"
        ]
        return worker_pb2.OrdersReply(refused=refused)


@asynccontextmanager
async def link_to_recipient():
    recipient, refused, silent = Recipient(), [], []
    server = grpc.aio.server()
    add_WorkerServiceServicer_to_server(recipient, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    links = Links(lambda node, order, why: refused.append((order, why)), lambda node, why: silent.append(why))
    links.connect(0, Registration(PROTOCOL_VERSION, "n0", "first", f"127.0.0.1:{port}", "127.0.0.1:9", 1))
    links.heard(0)
    try:
        yield recipient, links, refused, silent
    finally:
        recipient.open.set()
        await links.close()
        await server.stop(None)


def stop(job_id: str) -> Order:
    return PreemptOrder(job_id, 1)


def send(links: Links, *orders: Order, after: Sequence[Delivery] = ()) -> list[Delivery]:
    deliveries = [Delivery(0, order, after) for order in orders]
    for delivery in deliveries:
        links.send(delivery)
    links.flush()
    return deliveries


async def over(deliveries: Sequence[Delivery]) -> None:
    await until(lambda: all(delivery.over for delivery in deliveries), "the orders to be over")


def run(scenario) -> None:
    asyncio.run(asyncio.wait_for(scenario, 30))


def test_orders_that_wait_together_go_together_and_in_order():
    async def scenario():
        async with link_to_recipient() as (recipient, links, refused, silent):
            first = send(links, stop("a"))
            await asyncio.sleep(0)  # the link takes it
            rest = send(links, *(stop(name) for name in ("b", "bad", "c")))
            recipient.open.set()
            await over([*first, *rest])
            assert list(chain(*recipient.calls)) == ["a", "b", "bad", "c"]
            assert len(recipient.calls) <= 2
            assert refused == [(stop("bad"), "unwanted")]
            assert silent == []

    run(scenario())


def test_an_order_that_waits_for_another_worker_holds_back_only_those_behind_it():
    async def scenario():
        async with link_to_recipient() as (recipient, links, _, _):
            recipient.open.set()
            known = Delivery(7, stop("x"))  # to a node without a worker
            sent = [*send(links, stop("a")), *send(links, stop("b"), after=[known]), *send(links, stop("c"))]
            await over(sent[:1])
            assert recipient.calls == [["a"]]
            assert not sent[2].over
            links.send(known)
            links.flush()
            await over(sent)
            assert recipient.calls == [["a"], ["b", "c"]]

    run(scenario())


def test_a_call_that_fails_is_repeated_as_it_was_and_one_that_never_works_counts_as_silence():
    async def scenario():
        async with link_to_recipient() as (recipient, links, _, silent):
            recipient.open.set()
            recipient.failures = 2
            await over(send(links, stop("a"), stop("b")))
            assert list(chain(*recipient.calls)) == ["a", "b"]
            recipient.failures = 100
            send(links, stop("c"))
            await until(lambda: silent, "the link to give up")
            assert "not now" in silent[0]

    run(scenario())
