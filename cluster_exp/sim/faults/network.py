"""A network whose messages are lost, late, doubled and overtaken, in simulated time."""

import heapq
import itertools
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

from cluster_exp.sim.faults.spec import FaultSpec

TRANSIT_S = 0.005  # of a message that meets no fault
_LATEST_S = 25.0
Handler = Callable[[Callable[[Any], None]], None]  # takes a request; calls what it is given with the answer


class Agenda:
    """What is to happen, by time; things of one instant happen in the order in which they were entered."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()

    def after(self, delay_s: float, what: Callable[[], None]) -> None:
        """Enters something."""
        heapq.heappush(self._heap, (self.now_s + delay_s, next(self._numbers), what))

    def step(self) -> bool:
        """Does the next thing; returns False when there is none."""
        if not self._heap:
            return False
        self.now_s, _, what = heapq.heappop(self._heap)
        what()
        return True


class Network:
    """Calls between the master and the nodes. A call is a request and its answer, each of which may meet a fault."""

    def __init__(self, agenda: Agenda, draw: random.Random, spec: FaultSpec, injected: Counter[str]) -> None:
        """`injected` counts the faults by kind."""
        self.spec = spec
        self.cut: Counter[int] = Counter()  # nodes whose network is cut, and by how many faults
        self._agenda = agenda
        self._draw = draw
        self._injected = injected

    def call(
        self,
        node: int,
        handle: Handler,
        on_answer: Callable[[Any], None],
        on_silence: Callable[[], None],
        deadline_s: float,
    ) -> None:
        """Between the master and `node`: `on_answer` or, at the deadline, `on_silence` is called, once."""
        over = False

        def answered(answer: Any) -> None:
            nonlocal over
            if not over:
                over = True
                on_answer(answer)

        def deadline() -> None:
            nonlocal over
            if not over:
                over = True
                on_silence()

        def request() -> None:
            handle(lambda answer: self._carry(node, lambda: answered(answer)))

        self._carry(node, request)
        self._agenda.after(deadline_s, deadline)

    def _carry(self, node: int, arrive: Callable[[], None]) -> None:
        def arrives() -> None:
            if self.cut[node]:
                self._injected["messages cut off"] += 1
            else:
                arrive()

        draw, spec = self._draw, self.spec
        if spec.lost and draw.random() < spec.lost:
            self._injected["messages lost"] += 1
            return
        delay_s = TRANSIT_S
        if spec.late and draw.random() < spec.late:
            self._injected["messages late"] += 1
            delay_s = draw.uniform(1.0, _LATEST_S)
        self._agenda.after(delay_s, arrives)
        if spec.twice and draw.random() < spec.twice:
            self._injected["messages doubled"] += 1
            self._agenda.after(draw.uniform(TRANSIT_S, _LATEST_S), arrives)
