"""The links to all workers: orders wait here until what they follow from is safe on disk."""

import asyncio
from collections.abc import Callable, Sequence

from cluster_exp.domain.job import JobSpec
from cluster_exp.interleave.cycle import lockstep_cycle_s
from cluster_exp.protocol.assignments import IterationsPerTurn
from cluster_exp.protocol.messages import Order, Registration
from cluster_exp.protocol.outgoing import Delivery
from cluster_exp.runtime.emulated import batch_for
from cluster_exp.runtime.link import Trouble, WorkerLink
from cluster_exp.runtime.security.access import Access


def iterations_per_turn(jobs: Sequence[JobSpec], offsets: Sequence[int], time_scale: float) -> int:
    """How many iterations one emulated iteration of a group stands for, so that its cycle is long enough."""
    profiles = [job.profile for job in jobs]
    cycle_s = profiles[0].iteration_s if len(profiles) == 1 else lockstep_cycle_s(profiles, offsets)
    return batch_for(cycle_s, time_scale)


def per_turn_at(time_scale: float) -> IterationsPerTurn:
    """`iterations_per_turn` of a run."""
    return lambda jobs, offsets: iterations_per_turn(jobs, offsets, time_scale)


class Links:
    """One link a worker (`protocol.outgoing.Outgoing`). Orders leave at `flush`."""

    def __init__(
        self,
        refused: Callable[[int, Order, str], None],
        silent: Callable[[int, str], None],
        access: Access | None = None,
    ) -> None:
        """`refused` and `silent` are told what did not work, with the node's id; `access` is what workers ask for."""
        self._refused = refused
        self._silent = silent
        self._access = access
        self._links: dict[int, WorkerLink] = {}
        self._held: list[Delivery] = []
        self._waiting: set[WorkerLink] = set()
        self._closing: set[asyncio.Task[None]] = set()

    def connect(self, node: int, registration: Registration) -> None:
        """Makes a link to a worker, whose orders wait until it is heard; closes one to the node's former worker."""
        self.disconnect(node)
        trouble = Trouble(
            refused=lambda order, reason: self._refused(node, order, reason),
            silent=lambda reason: self._silent(node, reason),
            over=self._over,
            waits=self._waiting.add,
        )
        self._links[node] = WorkerLink(registration, trouble, self._access)

    def heard(self, node: int) -> None:
        """Lets the orders to a worker go."""
        if node in self._links:
            self._links[node].open()

    def disconnect(self, node: int) -> None:
        """Closes the link to a worker; what it was not sent is over."""
        link = self._links.pop(node, None)
        if link is not None:
            self._waiting.discard(link)
            task = asyncio.create_task(link.close())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    def send(self, delivery: Delivery) -> None:
        """Holds an order until the next flush."""
        self._held.append(delivery)

    def flush(self) -> None:
        """Lets the orders go that were held."""
        for delivery in self._held:
            link = self._links.get(delivery.node)
            if link is None:
                self._over(delivery)
            else:
                link.send(delivery)
        self._held.clear()

    async def shutdown(self, reason: str) -> None:
        """Tells all workers to leave and closes the links."""
        links = list(self._links.values())
        await asyncio.gather(*(link.shutdown(reason) for link in links))
        await self.close()

    async def close(self) -> None:
        """Closes the links."""
        for node in list(self._links):
            self.disconnect(node)
        await asyncio.gather(*self._closing)

    def _over(self, delivery: Delivery) -> None:
        """Notes that an order is with its worker, or never will be, and has those look that may wait for it."""
        delivery.over = True
        for link in self._waiting:
            link.wake()
        self._waiting.clear()
