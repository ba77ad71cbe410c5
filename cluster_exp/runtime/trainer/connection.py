"""A trainer's socket to a worker: lines out, lines in."""

import json
import os
import select
import socket
import ssl
import weakref
from pathlib import Path
from typing import Any

_READ_BYTES = 4096
_open: "weakref.WeakSet[Connection]" = weakref.WeakSet()


def _forget_after_fork() -> None:
    """A child, of a data loader say, must not keep the connection open when this trainer is gone."""
    for connection in list(_open):
        connection.close()


os.register_at_fork(after_in_child=_forget_after_fork)
_GIVE_LINE = b'{"t":"give"}\n'
_GRANTED_LINE = b'{"t":"granted"}'


class WorkerLostError(ConnectionError):
    """The worker hung up, or refused this trainer; the message says why."""


class Connection:
    """Blocking, line by line."""

    def __init__(self, address: str, tls_dir: str = "") -> None:
        """Connects to `unix:PATH`, `tcp:HOST:PORT`, or with the keys in `tls_dir` to `tls:HOST:PORT`.

        Raises:
            WorkerLostError: nobody answers there, or not the one that the certificate names.
            ValueError: the address has another form.
        """
        self._received = b""
        self._take_lines: dict[tuple[int, ...], bytes] = {}
        self._tls: ssl.SSLSocket | None = None
        kind, _, rest = address.partition(":")
        try:
            if kind == "unix":
                self._sock = socket.socket(socket.AF_UNIX)
                self._sock.connect(rest)
            elif kind in ("tcp", "tls"):
                host, _, port = rest.rpartition(":")
                self._sock = socket.create_connection((host.strip("[]"), int(port)))
                self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                if kind == "tls":
                    self._sock = self._tls = _client(Path(tls_dir)).wrap_socket(
                        self._sock, server_hostname=host.strip("[]")
                    )
            else:
                raise ValueError(f"address {address!r} is none of unix:PATH, tcp:HOST:PORT and tls:HOST:PORT")
        except OSError as error:
            raise WorkerLostError(f"no worker at {address}: {error}") from error
        _open.add(self)

    def send(self, kind: str, **fields: Any) -> None:
        """Sends one line. Raises WorkerLostError when the worker is gone."""
        self.send_line(_encode(kind, fields))

    def send_line(self, line: bytes) -> None:
        """Sends a line that is encoded already. Raises WorkerLostError when the worker is gone."""
        try:
            self._sock.sendall(line)
        except OSError:
            while True:  # until the worker's last words, or their lack, raise the error
                self.receive()

    def take_turn(self, resources: tuple[int, ...]) -> None:
        """Waits until all of these resources are this process's. Raises WorkerLostError."""
        line = self._take_lines.get(resources)
        if line is None:
            line = self._take_lines[resources] = _encode("take", {"r": sorted(resources)})
        self.send_line(line)
        while self.receive()["t"] != "granted":
            pass

    def give_turn(self) -> None:
        """Gives them back. Raises WorkerLostError."""
        self.send_line(_GIVE_LINE)

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
        if b"\n" in self._received or (self._tls is not None and self._tls.pending()):
            return True
        return bool(select.select([self._sock], [], [], 0)[0])

    def close(self) -> None:
        """Hangs up."""
        self._sock.close()


def _encode(kind: str, fields: dict[str, Any]) -> bytes:
    return json.dumps({"t": kind, **fields}, separators=(",", ":")).encode() + b"\n"


def _client(tls_dir: Path) -> ssl.SSLContext:
    """This host's end of TLS on both sides. Raises OSError for keys that cannot be used."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.load_verify_locations(tls_dir / "ca.pem")
    context.load_cert_chain(tls_dir / "cert.pem", tls_dir / "key.pem")
    return context
