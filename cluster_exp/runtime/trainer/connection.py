"""A trainer's socket to a worker: lines out, lines in."""

import json
import select
import socket
from typing import Any

_READ_BYTES = 4096
_GRANTED_LINE = b'{"t":"granted"}'


class WorkerLostError(ConnectionError):
    """The worker hung up, or refused this trainer; the message says why."""


class Connection:
    """Blocking, line by line."""

    def __init__(self, address: str) -> None:
        """Connects to `unix:PATH` or `tcp:HOST:PORT`.

        Raises:
            WorkerLostError: nobody answers there.
            ValueError: the address has another form.
        """
        self._received = b""
        kind, _, rest = address.partition(":")
        try:
            if kind == "unix":
                self._sock = socket.socket(socket.AF_UNIX)
                self._sock.connect(rest)
            elif kind == "tcp":
                host, _, port = rest.rpartition(":")
                self._sock = socket.create_connection((host, int(port)))
                self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            else:
                raise ValueError(f"address {address!r} is neither unix:PATH nor tcp:HOST:PORT")
        except OSError as error:
            raise WorkerLostError(f"no worker at {address}: {error}") from error

    def send(self, kind: str, **fields: Any) -> None:
        """Sends one line. Raises WorkerLostError when the worker is gone."""
        self.send_line(json.dumps({"t": kind, **fields}, separators=(",", ":")).encode() + b"\n")

    def send_line(self, line: bytes) -> None:
        """Sends a line that is encoded already. Raises WorkerLostError when the worker is gone."""
        try:
            self._sock.sendall(line)
        except OSError:
            while True:  # until the worker's last words, or their lack, raise the error
                self.receive()

    def receive(self) -> dict[str, Any]:
        """Waits for one line. Raises WorkerLostError when the worker hangs up or refuses this trainer."""
        while b"\n" not in self._received:
            try:
                data = self._sock.recv(_READ_BYTES)
            except OSError as error:
                raise WorkerLostError(f"the worker is gone: {error}") from error
            if not data:
                raise WorkerLostError("the worker hung up")
            self._received += data
        line, _, self._received = self._received.partition(b"\n")
        if line == _GRANTED_LINE:
            return {"t": "granted"}
        message: dict[str, Any] = json.loads(line)
        if message["t"] == "refused":
            raise WorkerLostError(f"the worker refuses this trainer: {message['why']}")
        return message

    def waiting(self) -> bool:
        """Whether a line, or the worker's hanging up, can be read without waiting."""
        return b"\n" in self._received or bool(select.select([self._sock], [], [], 0)[0])

    def close(self) -> None:
        """Hangs up."""
        self._sock.close()
