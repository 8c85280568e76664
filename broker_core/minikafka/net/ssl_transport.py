"""TLS over a non-blocking socket: a transport that takes the place of the socket.

One thread may receive while another one sends: OpenSSL's objects are not thread-safe, so a lock is held in
each call, none of which blocks. A call that cannot go on raises BlockingIOError, and ``reader_wants`` or
``writer_wants`` is the event of the socket after which to repeat it: either direction of TLS may wait for
either one of the socket.

``send`` takes all of its data or none, as OpenSSL does not count what it has encrypted of data for which the
socket has no room. Then the next ``send`` must have the same data, though it may be at another address.

The transport is no socket, so that nothing can be sent beside the encryption: it has no ``sendfile``, and
after its end no call reaches the socket. (An ``ssl.SSLSocket`` would do plain IO then.)
"""

from __future__ import annotations

import contextlib
import errno
import selectors
import socket
import ssl
import threading

from minikafka.net.network_send import TlsFailed
from minikafka.net.tls_failures import presented_certificate, tls_failure

READ, WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE

BLOCKED = (ssl.SSLWantReadError, ssl.SSLWantWriteError)
HANDSHAKE_RECORD = 0x16
"""The first byte that a client with TLS sends."""


class SslTransport:
    """One side of an encrypted connection. Thread-safe for one reader and one writer."""

    __slots__ = ("_host", "_lock", "_open", "_ssl", "reader_wants", "writer_wants")

    def __init__(
        self, sock: socket.socket, context: ssl.SSLContext, server_hostname: str | None = None
    ) -> None:
        """Take over ``sock``, which is connected and non-blocking. Raises OSError.

        ``server_hostname``: on the client's side, the name to send and, as ``context`` says, to verify.
        """
        self._ssl = context.wrap_socket(
            sock,
            server_side=server_hostname is None,
            server_hostname=server_hostname,
            do_handshake_on_connect=False,
        )
        self._host = server_hostname
        self._lock = threading.Lock()
        self._open = False
        """True between the handshake and the end."""
        self.reader_wants = READ
        self.writer_wants = WRITE

    def handshake(self) -> None:
        """Continue the handshake to its end. Raises BlockingIOError, or OSError if it has failed."""
        with self._lock:
            try:
                self._ssl.do_handshake()
            except BLOCKED as error:
                self.reader_wants = _event_of(error)
                raise BlockingIOError from None
            except OSError as error:
                if isinstance(error, ssl.SSLError) and not isinstance(error, ssl.SSLEOFError):
                    raise self._failed(error) from None
                raise ConnectionResetError(tls_failure(error, self._host)) from None
            self._open = True

    def recv_into(self, buffer: memoryview, size: int = 0) -> int:
        """Receive up to ``size`` bytes (0: as many as fit); 0 is the end, with or without ``close_notify``.

        Raises BlockingIOError, OSError.
        """
        with self._lock:
            self._check()
            try:
                return self._ssl.recv_into(buffer, size or buffer.nbytes)
            except BLOCKED as error:
                self.reader_wants = _event_of(error)
                raise BlockingIOError from None
            except ssl.SSLZeroReturnError:
                return 0
            except ssl.SSLError as error:
                raise self._failed(error) from None

    def pending(self) -> int:
        """Return the number of bytes that are decrypted already, for which the socket is not readable."""
        with self._lock:
            return self._ssl.pending() if self._open else 0

    def send(self, data: memoryview) -> int:
        """Send all of ``data``. Raises BlockingIOError, OSError."""
        with self._lock:
            self._check()
            try:
                return self._ssl.send(data)
            except BLOCKED as error:
                self.writer_wants = _event_of(error)
                raise BlockingIOError from None
            except OSError as error:
                if isinstance(error, ssl.SSLError) and not isinstance(error, ssl.SSLEOFError):
                    raise self._failed(error) from None
                self._raise_alert()
                if isinstance(error, ssl.SSLEOFError):  # OpenSSL's words are about its own source
                    raise BrokenPipeError(errno.EPIPE, "the peer closed the connection") from None
                raise

    def peer_certificate(self) -> bytes | None:
        """Return the verified certificate of the peer in DER; None if it has shown none."""
        with self._lock:
            return self._ssl.getpeercert(binary_form=True) if self._open else None

    def shutdown(self, how: int) -> None:
        """Send ``close_notify`` without waiting for the peer's, and shut the socket down. Raises OSError."""
        with self._lock:
            self._end()
        socket.socket.shutdown(self._ssl, how)

    def discard(self, size: int) -> int:
        """Read encrypted bytes and drop them. Raises BlockingIOError, OSError."""
        return len(socket.socket.recv(self._ssl, size))

    def getsockopt(self, level: int, option: int) -> int:
        """Return an option of the socket."""
        return self._ssl.getsockopt(level, option)

    def fileno(self) -> int:
        """Return the descriptor, for ``select`` and ``poll`` only."""
        return self._ssl.fileno()

    def close(self) -> None:
        """Send ``close_notify`` if the peer may still read, and close the socket."""
        with self._lock:
            self._end()
        self._ssl.close()

    def _end(self) -> None:
        if self._open:
            self._open = False
            with contextlib.suppress(OSError, ValueError):
                self._ssl.unwrap()

    def _check(self) -> None:
        if not self._open:
            raise ConnectionAbortedError("TLS has ended on this connection")

    def _failed(self, error: ssl.SSLError) -> TlsFailed:
        return TlsFailed(tls_failure(error, self._host, self._presented))

    def _presented(self) -> bytes | None:
        return None if self._host is None else presented_certificate(self._ssl, self._host)

    def _raise_alert(self) -> None:
        """Raise the error that an alert of the peer reports, which it may have sent before it left."""
        try:
            self._ssl.recv(1)
        except (*BLOCKED, ssl.SSLEOFError, ssl.SSLZeroReturnError):
            return
        except ssl.SSLError as error:
            raise self._failed(error) from None
        except OSError:
            return


def _event_of(error: ssl.SSLError) -> int:
    return READ if isinstance(error, ssl.SSLWantReadError) else WRITE
