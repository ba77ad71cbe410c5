"""The turn server: a thread of the worker that talks to trainers over sockets and drives the arbiter.

It has a selector loop of its own, so that a turn is handed over without waiting for the worker's gRPC traffic.
"""

import logging
import os
import secrets
import selectors
import socket
import ssl
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from cluster_exp.domain.resources import RESOURCE_NAMES
from cluster_exp.protocol.turn_token import DIGITS, opens
from cluster_exp.protocol.turn_wire import GRANTED_LINE, MAX_LINE_BYTES, Line, WireError, encode, parse_trainer_line
from cluster_exp.protocol.turns import (
    Arbiter,
    Discipline,
    Go,
    Granted,
    JobKey,
    Look,
    Message,
    Process,
    Stop,
    Stuck,
    TurnError,
)
from cluster_exp.runtime.trainer_events import (
    TrainerDone,
    TrainerEvent,
    TrainerProgress,
    TrainerSaved,
    TrainerStarted,
    TrainerStopped,
    TrainerStuck,
)
from cluster_exp.runtime.turn_peers import Peer, PeerGoneError

__all__ = [
    "TrainerDone",
    "TrainerEvent",
    "TrainerProgress",
    "TrainerSaved",
    "TrainerStarted",
    "TrainerStopped",
    "TrainerStuck",
    "TurnServer",
]

_BACKLOG = 256
_WAKE_BYTES = 4096
_MOST_STRANGERS = 256  # connections that have not said hello
STAGE_LIMIT_S = 60.0
_CHECKS_PER_LIMIT = 8  # so a limit is kept to an eighth of it
_log = logging.getLogger(__name__)


_EVENTS: dict[str, Callable[[str, int, int, float, int], TrainerEvent]] = {
    "progress": TrainerProgress,  # a connection's first one: TrainerStarted
    "saved": TrainerSaved,
    "left": TrainerStopped,
    "done": TrainerDone,
}


class TurnServer:
    """Serves the trainers of one node, and those of other nodes whose job is arbitrated here.

    Args:
        socket_path: where the Unix socket is made; at most about 100 characters.
        on_event: called from the server's thread with what trainers report; it must not block.
        tcp_host: address for trainers of other nodes.
        discipline: how groups take turns.
        stage_limit_s: how long a stage may be kept before its holder is passed over; 0 = for ever.
        on_stuck: called like `on_event` for each process that is passed over.
        tls: how trainers of other nodes are spoken to; None = in clear.

    Who connects by TCP has to show the token of its launch (`protocol.turn_token`), derived from `key`.
    """

    def __init__(
        self,
        socket_path: Path,
        on_event: Callable[[TrainerEvent], None],
        tcp_host: str = "127.0.0.1",
        discipline: Discipline = Discipline.LOCKSTEP,
        stage_limit_s: float = STAGE_LIMIT_S,
        on_stuck: Callable[[TrainerStuck], None] | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.key = secrets.token_hex(DIGITS // 2)
        self._tls = tls
        self._socket_path = socket_path
        self._on_event = on_event
        self._tcp_host = tcp_host
        self._discipline = discipline
        self._stage_limit_s = stage_limit_s
        self._on_stuck = on_stuck
        self._check_s = stage_limit_s / _CHECKS_PER_LIMIT if stage_limit_s > 0 else None
        self._next_check_s = 0.0  # monotonic
        self._arbiter = Arbiter()
        self._by_process: dict[Process, Peer] = {}
        self._known: dict[str, int] = {}  # latest generation that may connect, by job
        self._peers: set[Peer] = set()
        self._strangers: dict[Peer, None] = {}  # those that have not said hello, the longest there first
        self._listeners: list[socket.socket] = []
        self._selector = selectors.DefaultSelector()
        self._waker, self._woken = socket.socketpair()
        self._requests: deque[Callable[[], list[Message]]] = deque()
        self._closing = False
        self._thread = threading.Thread(target=self._serve, name="turns", daemon=True)

    @property
    def address(self) -> str:
        """Address for the trainers of this node: `unix:PATH`."""
        return f"unix:{self._socket_path}"

    @property
    def tcp_address(self) -> str:
        """Address for trainers of other nodes: `HOST:PORT`, the port chosen by the system."""
        host, port = self._listeners[1].getsockname()[:2]
        return f"{host}:{port}"

    def start(self) -> None:
        """Listens and serves in a thread. Raises OSError when an address cannot be had."""
        unix = socket.socket(socket.AF_UNIX)
        unix.bind(str(self._socket_path))
        os.chmod(self._socket_path, 0o600)
        tcp = socket.create_server((self._tcp_host, 0), backlog=_BACKLOG)
        unix.listen(_BACKLOG)
        self._listeners = [unix, tcp]
        for listener in self._listeners:
            listener.setblocking(False)
            self._selector.register(listener, selectors.EVENT_READ, listener)
        self._woken.setblocking(False)
        self._selector.register(self._woken, selectors.EVENT_READ, None)
        self._thread.start()

    def close(self) -> None:
        """Hangs up on everybody, ends the thread and removes the socket. Calling it again does nothing."""
        if self._closing:
            return
        self._closing = True
        if self._thread.is_alive():
            self._waker.send(b"\0")
            self._thread.join()
        for sock in (*self._listeners, *(peer.sock for peer in self._peers)):
            sock.close()
        self._waker.close()
        self._woken.close()
        self._selector.close()
        self._socket_path.unlink(missing_ok=True)

    # Called from other threads

    def expect(self, job_id: str, generation: int) -> None:
        """Lets processes of this launch connect; those of its earlier launches are refused from now on."""
        self._known[job_id] = max(generation, self._known.get(job_id, 0))

    def use(self, discipline: Discipline, stage_limit_s: float) -> None:
        """From now on groups that are set take turns like this; no stage is kept for longer (0: no limit)."""
        self._discipline = discipline
        self._request(lambda: self._limit(stage_limit_s))

    def set_group(self, group_id: int, version: int, members: Sequence[tuple[JobKey, int]], batch: int) -> None:
        """Sets a group's members with their offsets, in turn order (`Arbiter.set_group`)."""
        self._request(lambda: self._arbiter.set_group(group_id, version, members, batch, self._discipline))

    def stop_job(self, job_id: str, generation: int) -> None:
        """Tells a launch to leave at its next boundary."""
        self._request(lambda: self._arbiter.stop((job_id, generation)))

    def forget_job(self, job_id: str, generation: int) -> None:
        """Drops all that is known of a launch that is over."""
        if self._known.get(job_id) == generation:
            del self._known[job_id]
        self._request(lambda: self._arbiter.forget((job_id, generation)))

    def _request(self, request: Callable[[], list[Message]]) -> None:
        self._requests.append(request)
        with suppress(OSError):  # closed meanwhile
            self._waker.send(b"\0")

    # The thread

    def _serve(self) -> None:
        try:
            self._serve_until_closed()
        except Exception:
            _log.exception("the turn server broke down: all its trainers are cut off")
            for sock in (*self._listeners, *(peer.sock for peer in self._peers)):
                sock.close()

    def _serve_until_closed(self) -> None:
        while not self._closing:
            ready = self._selector.select(self._check_s)
            while self._requests:  # first: who connects now may rely on what was asked for before
                self._send_all(self._requests.popleft()())
            for key, mask in ready:
                if isinstance(key.data, Peer):
                    self._serve_peer(key.data, mask)
                elif key.data is None:
                    self._woken.recv(_WAKE_BYTES)
                else:
                    self._accept(key.data)
            if self._check_s is not None and time.monotonic() >= self._next_check_s:
                self._next_check_s = time.monotonic() + self._check_s
                self._check_limit(time.monotonic())

    def _limit(self, stage_limit_s: float) -> list[Message]:
        self._stage_limit_s = stage_limit_s
        self._check_s = stage_limit_s / _CHECKS_PER_LIMIT if stage_limit_s > 0 else None
        return []

    def _check_limit(self, now_s: float) -> None:
        stuck, messages = self._arbiter.check_limit(now_s, self._stage_limit_s)
        for each in stuck:
            self._report_stuck(each, now_s)
        self._send_all(messages)

    def _report_stuck(self, stuck: Stuck, now_s: float) -> None:
        job_id, generation = stuck.job
        resource = " and ".join(name for i, name in enumerate(RESOURCE_NAMES) if stuck.resources >> i & 1)
        ranks = ", ".join(map(str, stuck.ranks))
        _log.warning(
            "job %s (rank %s) has kept %s for %.1f s and is passed over", job_id, ranks, resource, stuck.held_s
        )
        if self._on_stuck is not None:
            for rank in stuck.ranks:
                self._on_stuck(TrainerStuck(job_id, generation, rank, now_s, resource, stuck.held_s))

    def _accept(self, listener: socket.socket) -> None:
        with suppress(OSError):  # the trainer may be gone already
            sock, _ = listener.accept()
            peer = Peer(sock, None if sock.family == socket.AF_UNIX else self._tls)
            self._peers.add(peer)
            self._selector.register(peer.sock, peer.events, peer)
            self._strangers[peer] = None
            if len(self._strangers) > _MOST_STRANGERS:
                self._refuse(next(iter(self._strangers)), "too many connect and say nothing")

    def _serve_peer(self, peer: Peer, mask: int) -> None:
        if peer not in self._peers:
            return
        data = b""
        try:
            if mask & selectors.EVENT_WRITE:
                peer.flush()
            if mask & selectors.EVENT_READ or not peer.shaken:
                data = peer.read()
        except PeerGoneError:
            self._drop(peer)
            return
        self._watch(peer)
        if not data:
            return
        *lines, peer.received = (peer.received + data).split(b"\n")
        try:
            for line in lines:
                self._send_all(self._take_line(peer, line))
            if len(peer.received) > MAX_LINE_BYTES:
                raise WireError(f"a line is longer than {MAX_LINE_BYTES} bytes")
        except (WireError, TurnError) as error:
            self._refuse(peer, str(error))

    def _take_line(self, peer: Peer, data: bytes) -> list[Message]:
        if len(data) > MAX_LINE_BYTES:
            raise WireError(f"a line is longer than {MAX_LINE_BYTES} bytes")
        line = parse_trainer_line(data)
        if line.kind == "hello":
            return self._greet(peer, line)
        process = peer.process
        if process is None:
            raise WireError("hello comes first")
        match line.kind:
            case "ask":
                return self._arbiter.ask(process, line.leave)
            case "take":
                return self._arbiter.take(process, *line.resources)
            case "give":
                messages = self._arbiter.give(process)
                if peer.dismissed:
                    self._drop(peer)
                return messages
            case "dismiss":
                self._dismiss(process)
                return []
        if process.helper:
            raise WireError("a process that prefetches has nothing to report")
        event = _EVENTS[line.kind]
        if not peer.started and line.kind == "progress":
            peer.started, event = True, TrainerStarted
        who = (*process.job, process.rank, time.monotonic(), line.done)
        self._on_event(TrainerProgress(*who, line.window) if event is TrainerProgress else event(*who))
        return []

    def _greet(self, peer: Peer, line: Line) -> list[Message]:
        if peer.process is not None:
            raise WireError("hello comes once")
        process = Process((line.job_id, line.generation), line.rank, line.helper)
        if line.helper and not line.turns:
            raise WireError("a process that prefetches has nothing to report, and takes turns only")
        if not peer.local and not opens(self.key, line.job_id, line.generation, line.token):
            raise WireError(f"job {line.job_id} generation {line.generation}: its token is missing or wrong")
        known = self._known.get(line.job_id)
        if known != line.generation and not (line.turns and known is None and self._arbiter.knows(process.job)):
            expected = f"generation {known} is" if known else "no launch of it is"
            raise WireError(f"job {line.job_id} generation {line.generation} is not expected here, {expected}")
        messages = self._arbiter.join(process, line.world) if line.turns else []
        peer.process, peer.turns = process, line.turns
        if line.turns:
            self._by_process[process] = peer
        self._strangers.pop(peer, None)
        return messages

    def _dismiss(self, process: Process) -> None:
        """Hangs up on what prefetches for a rank, where it holds a turn when that is over."""
        if process.helper:
            return
        for other, peer in list(self._by_process.items()):
            if other.helper and (other.job, other.rank) == (process.job, process.rank):
                peer.dismissed = True
                if not self._arbiter.helps(other):
                    self._drop(peer)

    def _send_all(self, messages: Sequence[Message]) -> None:
        for message in messages:
            peer = self._by_process.get(message.to)
            if peer is None:
                continue
            match message:
                case Go(turns=turns, batch=batch):
                    self._send(peer, encode("go", turns=turns, batch=batch))
                case Stop():
                    self._send(peer, encode("stop"))
                case Granted():
                    self._send(peer, GRANTED_LINE)
                case Look():
                    self._send(peer, encode("look"))

    def _send(self, peer: Peer, data: bytes) -> None:
        try:
            peer.send(data)
        except PeerGoneError:
            self._drop(peer)
        else:
            self._watch(peer)

    def _watch(self, peer: Peer) -> None:
        """Has the selector wait for what the peer can go on with."""
        if peer.events != peer.watched:
            peer.watched = peer.events
            self._selector.modify(peer.sock, peer.events, peer)

    def _refuse(self, peer: Peer, why: str) -> None:
        _log.warning("a trainer is cut off: %s", why)
        if peer in self._peers:
            peer.say_last(encode("refused", why=why))
            self._drop(peer)

    def _drop(self, peer: Peer) -> None:
        """Forgets a connection; what its process held is free for the others."""
        if peer not in self._peers:
            return
        self._peers.discard(peer)
        self._strangers.pop(peer, None)
        self._selector.unregister(peer.sock)
        peer.close()
        if peer.process is not None and peer.turns:
            self._by_process.pop(peer.process, None)
            self._send_all(self._arbiter.leave(peer.process))
            self._dismiss(peer.process)
