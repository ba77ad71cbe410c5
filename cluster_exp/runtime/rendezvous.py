"""How the ranks of a job find each other: the worker's side, without ssh or mpirun.

The worker of a job's lead node (that of rank 0) opens a rendezvous and hands its endpoint to the workers of the other
nodes; each worker then starts its ranks as plain processes with their environment variables:

    places = rank_places([("n0", 2), ("n1", 2)])
    with open_rendezvous("horovod", places) as meeting:  # in the lead worker, from launch until all ranks have left
        for place in places_of("n0", places):
            env = rank_environment(meeting.endpoint, place)
            ...

A new launch of a job needs a new rendezvous. Trainers connect by `cluster_exp.runtime.trainer.comm.connect`.
"""

import fcntl
import math
import socket
import struct
import threading
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from http.server import HTTPServer
from types import TracebackType
from typing import Self
from urllib.parse import quote

from cluster_exp.domain.errors import InputError
from cluster_exp.protocol.messages import Endpoint
from cluster_exp.runtime.trainer.comm.base import DEFAULT_TIMEOUT_S, check_backend
from cluster_exp.runtime.trainer.comm.connect import missing

LOOPBACK = "127.0.0.1"
_SIOCGIFADDR = 0x8915  # the request for an interface's IPv4 address, as in <linux/sockios.h>


@dataclass(frozen=True, slots=True)
class RankPlace:
    """Where a rank stands among the job's others; the words are Horovod's."""

    node: str
    rank: int  # among all, from 0
    size: int  # ranks of the job
    local_rank: int  # among those of its node
    local_size: int
    cross_rank: int  # among those with the same local rank on other nodes
    cross_size: int


def rank_places(ranks_of_node: Sequence[tuple[str, int]]) -> tuple[RankPlace, ...]:
    """Numbers the ranks node by node in the order given.

    Args:
        ranks_of_node: (node, how many ranks) for each node of the job, its lead node first.

    Raises:
        ValueError: a node comes twice, or has no rank.
    """
    nodes = [node for node, _ in ranks_of_node]
    if len(set(nodes)) < len(nodes) or any(count < 1 for _, count in ranks_of_node):
        raise ValueError(f"{list(ranks_of_node)}: each node once, with at least one rank")
    size = sum(count for _, count in ranks_of_node)
    cross_sizes = Counter(local for _, count in ranks_of_node for local in range(count))
    seen: Counter[int] = Counter()
    places: list[RankPlace] = []
    for node, count in ranks_of_node:
        for local in range(count):
            places.append(RankPlace(node, len(places), size, local, count, seen[local], cross_sizes[local]))
            seen[local] += 1
    return tuple(places)


def places_of(node: str, places: Sequence[RankPlace]) -> tuple[RankPlace, ...]:
    """The ranks of one node."""
    return tuple(place for place in places if place.node == node)


def rank_environment(
    endpoint: Endpoint, place: RankPlace, *, interface: str = "lo", timeout_s: float = DEFAULT_TIMEOUT_S
) -> dict[str, str]:
    """The variables with which a rank finds the others; needs neither torch nor Horovod.

    Args:
        endpoint: from the lead worker.
        place: the rank's.
        interface: the node's network interface for the exchange; `interface_of` finds it by address.
        timeout_s: after how many seconds a rank that is waited for counts as lost. It covers the wait for another
            rank's turn on the network, so it has to be longer than the longest turn order.
    """
    common = {
        "CLUSTER_EXP_COMM": endpoint.backend,
        "CLUSTER_EXP_COMM_TIMEOUT_S": repr(timeout_s),
        "NCCL_SOCKET_IFNAME": interface,
    }
    if endpoint.backend == "torch":
        return {
            **common,
            "MASTER_ADDR": endpoint.address,
            "MASTER_PORT": str(endpoint.port),
            "RANK": str(place.rank),
            "WORLD_SIZE": str(place.size),
            "LOCAL_RANK": str(place.local_rank),
            "LOCAL_WORLD_SIZE": str(place.local_size),
            "GLOO_SOCKET_IFNAME": interface,
        }
    return {
        **common,
        "HOROVOD_HOSTNAME": _host_name(place),
        "HOROVOD_RANK": str(place.rank),
        "HOROVOD_SIZE": str(place.size),
        "HOROVOD_LOCAL_RANK": str(place.local_rank),
        "HOROVOD_LOCAL_SIZE": str(place.local_size),
        "HOROVOD_CROSS_RANK": str(place.cross_rank),
        "HOROVOD_CROSS_SIZE": str(place.cross_size),
        "HOROVOD_CONTROLLER": "gloo",
        "HOROVOD_CPU_OPERATIONS": "gloo",
        "HOROVOD_GLOO_RENDEZVOUS_ADDR": endpoint.address,
        "HOROVOD_GLOO_RENDEZVOUS_PORT": str(endpoint.port),
        "HOROVOD_GLOO_IFACE": interface,
        "HOROVOD_GLOO_TIMEOUT_SECONDS": str(max(1, math.ceil(timeout_s))),
        # What is added up together, and so the last bit, must not depend on who was ready when.
        "HOROVOD_FUSION_THRESHOLD": "0",
    }


class Rendezvous(ABC):
    """An open rendezvous, held by the lead worker; leaving its `with` block stops it."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint

    @abstractmethod
    def stop(self) -> None:
        """Frees the port and ends the thread, if there is one; a second call does nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def open_rendezvous(backend: str, places: Sequence[RankPlace], address: str = LOOPBACK) -> Rendezvous:
    """Opens the place where a launch's ranks meet, on a free port of `address` and on no other address.

    Raises:
        InputError: no such backend, or one that needs none.
        BackendMissingError: Horovod is not installed.
        OSError: this machine does not have the address.
    """
    check_backend(backend)
    if backend == "none":
        raise InputError(f"backend 'none' for a job of {len(places)} ranks; allowed: horovod, torch", where="--comm")
    return _HorovodServer(places, address) if backend == "horovod" else _ReservedPort(address)


def interface_of(address: str) -> str:
    """The name of this machine's network interface that has an address, or would have it (127.0.0.2 is on `lo`).

    Args:
        address: IPv4 address or host name.

    Raises:
        InputError: no interface has it.
    """
    number = socket.gethostbyname(address)
    if number.startswith("127."):
        number = LOOPBACK
    names = [name for _, name in socket.if_nameindex()]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        for name in names:
            try:
                request = fcntl.ioctl(sock, _SIOCGIFADDR, struct.pack("256s", name.encode()))
            except OSError:
                continue  # it has no IPv4 address
            if socket.inet_ntoa(request[20:24]) == number:
                return name
    raise InputError(f"no network interface has it; there are {', '.join(names)}", where=address)


class _HorovodServer(Rendezvous):
    """Horovod's key-value server with the host assignments, in a thread."""

    def __init__(self, places: Sequence[RankPlace], address: str) -> None:
        try:
            from horovod.runner.common.util.hosts import SlotInfo
            from horovod.runner.http.http_server import RendezvousHandler, RendezvousHTTPServer
        except ImportError as error:
            raise missing("horovod", error) from error
        # Horovod's own RendezvousServer listens on all addresses and leaves its port open.
        server = RendezvousHTTPServer((address, 0), RendezvousHandler, verbose=0)
        super().__init__(Endpoint("horovod", address, server.server_address[1]))
        slots = [
            SlotInfo(
                hostname=_host_name(place),
                rank=place.rank,
                local_rank=place.local_rank,
                cross_rank=place.cross_rank,
                size=place.size,
                local_size=place.local_size,
                cross_size=place.cross_size,
            )
            for place in places
        ]
        server.init(slots)
        self._server: HTTPServer | None = server
        self._thread = threading.Thread(target=server.serve_forever, args=(0.05,), name="rendezvous", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            server.shutdown()
            self._thread.join()
            server.server_close()


class _ReservedPort(Rendezvous):
    """A port that rank 0 will listen on, and that the system gives to nobody else until then.

    The socket here is bound but does not listen; with SO_REUSEADDR on both sides another can be bound and listen.
    """

    def __init__(self, address: str) -> None:
        self._socket = socket.socket(socket.AF_INET)
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._socket.bind((address, 0))
        except OSError:
            self._socket.close()
            raise
        super().__init__(Endpoint("torch", address, self._socket.getsockname()[1]))

    def stop(self) -> None:
        self._socket.close()


def _host_name(place: RankPlace) -> str:
    return quote(place.node, safe="")  # it becomes part of a path
