"""Where a controller's orders go: gRPC links in the runtime, a simulated network in the simulator."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from cluster_exp.protocol.messages import Endpoint, Order, Registration


@dataclass(eq=False, slots=True)
class Delivery:
    """An order on its way to a worker."""

    node: int
    order: Order
    after: Sequence["Delivery"] = ()  # it may be sent only when these are over
    meeting: "Delivery | None" = None  # the launch whose meeting place this order has to name
    over: bool = False  # the worker has it, or never will
    endpoint: Endpoint | None = None  # where the ranks of a launch meet, if its worker opened it

    @property
    def ready(self) -> bool:
        """Whether it may be sent."""
        return all(delivery.over for delivery in self.after) and (self.meeting is None or self.meeting.over)

    @property
    def lost(self) -> bool:
        """Whether it waited for a meeting place that was not opened."""
        return self.meeting is not None and self.meeting.endpoint is None


class Outgoing(Protocol):
    """Takes orders, in order. They leave only after what they follow from is safe: the driver sees to that."""

    def connect(self, node: int, registration: Registration) -> None:
        """A worker is there from now on. Its orders wait until it was `heard`: only then does it know its node."""
        ...

    def heard(self, node: int) -> None:
        """A worker sent a batch: it has taken the answer to its registration, and orders may go."""
        ...

    def disconnect(self, node: int) -> None:
        """A worker is lost; its orders that were not sent are dropped."""
        ...

    def send(self, delivery: Delivery) -> None:
        """Takes an order. One to a node without a worker is over at once."""
        ...
