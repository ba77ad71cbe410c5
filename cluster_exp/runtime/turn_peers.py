"""The turn server's end of a trainer's socket. It never waits, and encrypts where it is asked to."""

import selectors
import socket
import ssl
from contextlib import suppress

from cluster_exp.protocol.turns import Process

_READ_BYTES = 16_384  # what one TLS record holds
_MAX_UNSENT_BYTES = 65_536


class PeerGoneError(ConnectionError):
    """The trainer hung up, or does not read what it is sent."""


class Peer:
    """One trainer's socket, and who it is."""

    def __init__(self, sock: socket.socket, tls: ssl.SSLContext | None = None) -> None:
        """With `tls` nothing is read or sent before the handshake is over."""
        sock.setblocking(False)
        self.local = sock.family == socket.AF_UNIX
        if not self.local:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock = sock
        self._tls: ssl.SSLSocket | None = None
        if tls is not None:
            self.sock = self._tls = tls.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)
        self.shaken = tls is None  # whether it can be spoken to
        self._unsent = b""
        self._blocked = False  # waits until it can be written to
        self.received = b""  # the beginning of a line
        self.process: Process | None = None  # who it is, once it said hello
        self.turns = False  # whether it takes turns here, or only reports
        self.started = False
        self.dismissed = False  # prefetches for nobody any more
        self.watched = self.events  # what the selector waits for

    @property
    def events(self) -> int:
        """What the selector has to wait for."""
        return selectors.EVENT_READ | (selectors.EVENT_WRITE if self._blocked else 0)

    def read(self) -> bytes:
        """What has come; empty when nothing has. Raises PeerGoneError."""
        try:
            if not self.shaken and self._tls is not None:
                self._blocked = False
                self._tls.do_handshake()
                self.shaken = True
            data = self.sock.recv(_READ_BYTES)
            while self._tls is not None and self._tls.pending():  # the selector does not see these
                data += self._tls.recv(_READ_BYTES)
        except (BlockingIOError, ssl.SSLWantReadError):
            return b""
        except ssl.SSLWantWriteError:
            self._blocked = True
            return b""
        except OSError as error:
            raise PeerGoneError(str(error)) from None
        if not data:
            raise PeerGoneError("hung up")
        return data

    def send(self, data: bytes) -> None:
        """Sends, or keeps what cannot be sent yet. Raises PeerGoneError."""
        self._unsent += data
        self.flush()

    def flush(self) -> None:
        """Sends what is left. Raises PeerGoneError."""
        sent = 0
        try:
            if self._unsent and self.shaken:
                sent = self.sock.send(self._unsent)
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            pass
        except OSError as error:
            raise PeerGoneError(str(error)) from None
        self._unsent = self._unsent[sent:]
        self._blocked = bool(self._unsent)
        if len(self._unsent) > _MAX_UNSENT_BYTES:
            raise PeerGoneError("does not read what it is sent")

    def say_last(self, data: bytes) -> None:
        """Sends if that is possible at once."""
        if self.shaken:
            with suppress(OSError):
                self.sock.send(data)

    def close(self) -> None:
        """Hangs up."""
        self.sock.close()
