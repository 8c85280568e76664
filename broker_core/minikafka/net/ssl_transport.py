"""TLS over a non-blocking socket: a transport that takes the place of the socket.

OpenSSL works in memory, and the transport moves its encrypted bytes. One thread may receive while another one
sends: OpenSSL's objects are not thread-safe, so a lock is held in each call, none of which blocks. A call
that cannot go on raises BlockingIOError, and ``reader_wants`` or ``writer_wants`` is the event of the socket
after which to repeat it: either direction of TLS may wait for either one of the socket.

``send`` counts bytes when the socket has taken them. Up to ``PIECE_BYTES`` may be encrypted and wait for the
socket then, and the next ``send`` must begin with the same data, which is not encrypted again.

A peer decides how much work its bytes are: OpenSSL goes through any number of key updates (TLS 1.3), or
refused renegotiations (TLS 1.2), in one call, until it finds data. So it gets the bytes in shares, one in a
call of ``recv_into``. Larger shares are for peers whose shares had data; too much else ends a turn. A client
that sends too many bytes without data is disconnected.

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
from collections.abc import Callable

from minikafka.base.errors import RemoteWireError
from minikafka.net.network_send import TlsFailed
from minikafka.net.tls_failures import presented_certificate, tls_failure

READ, WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE

HANDSHAKE_RECORD = 0x16
"""The first byte that a client with TLS sends."""
PIECE_BYTES = 32 * 1024
"""Data that is encrypted, and sent, at once."""

_RECORD_BYTES = 16_645
"""The size of the largest record of TLS 1.3."""
_FIRST_SHARE = 4 * 1024
"""Encrypted bytes in the first share, and in each one of a stranger: 151 key updates, 2.3 ms of computing."""
_LARGEST_SHARE = 2 * _RECORD_BYTES
"""The most for a read of at least ``_LARGE_READ``; others get one record."""
_LARGE_READ = 16 * 1024
_WASTE_BYTES = 2 * _RECORD_BYTES
"""The most that a client may send without data. A record whose end is missing counts."""
_UNSENT_BYTES = 16 * 1024
"""Answers of TLS itself, such as to key updates, for which a peer must make room before it is read again."""
_RECORD_OVERHEAD = {"TLSv1.3": 22}
_OVERHEAD = 100
"""Bytes around the data of a record of an earlier version, at most."""


class SslTransport:
    """One side of an encrypted connection. Thread-safe for one reader and one writer."""

    __slots__ = (
        "_data",
        "_ended",
        "_host",
        "_incoming",
        "_lock",
        "_open",
        "_outgoing",
        "_overhead",
        "_received",
        "_records",
        "_share",
        "_sock",
        "_ssl",
        "_taken",
        "_thin",
        "_unsent",
        "_waste",
        "gives_way",
        "is_stranger",
        "reader_wants",
        "writer_wants",
    )

    def __init__(
        self,
        sock: socket.socket,
        context: ssl.SSLContext,
        server_hostname: str | None = None,
        outgoing: ssl.MemoryBIO | None = None,
    ) -> None:
        """Take over ``sock``, which is connected and non-blocking. Raises OSError, ValueError.

        server_hostname: on the client's side, the name to send and, as ``context`` says, to verify. outgoing:
        memory that transports of one thread may share, as it is empty between calls: it keeps its largest
        size for ever.
        """
        self._sock = sock
        self._host = server_hostname
        self._incoming = ssl.MemoryBIO()
        self._outgoing = outgoing or ssl.MemoryBIO()
        self._ssl = context.wrap_bio(
            self._incoming,
            self._outgoing,
            server_side=server_hostname is None,
            server_hostname=server_hostname,
        )
        self._lock = threading.Lock()
        self._open = False
        """True between the handshake and the end."""
        self._ended: ssl.SSLError | None = None
        """The reason why nothing can be received any more."""
        self._unsent: bytes | memoryview = b""
        """Encrypted bytes for which the socket had no room."""
        self._taken = 0
        """Bytes of the writer's data among them."""
        self._share = _FIRST_SHARE if server_hostname is None else _RECORD_BYTES
        # Of the last share: its bytes, those of data in it, and the reads that gave them.
        self._received = self._data = self._records = 0
        self._waste = 0
        """Bytes that were neither data nor around it."""
        self._thin = 0
        """Bytes in this turn that were not data."""
        self.gives_way = False
        """True after a turn that ended with too many of them: others are to go first in the next one."""
        self._overhead = _OVERHEAD
        self.is_stranger = server_hostname is None
        """True for a client that has not authenticated: all of its waste counts, not only the last."""
        self.reader_wants = READ
        self.writer_wants = WRITE

    def handshake(self) -> None:
        """Continue the handshake to its end. Raises BlockingIOError, or OSError if it has failed."""
        try:
            with self._lock:
                self._shake_hands()
        except BlockingIOError:
            raise
        except ssl.SSLError as error:
            raise self._failed(error) from None
        except OSError as error:
            raise ConnectionResetError(tls_failure(error, self._host)) from None

    def _shake_hands(self) -> None:
        complete = False
        for may_receive in (True, False):
            try:
                self._ssl.do_handshake()
                complete = True
            except ssl.SSLWantReadError:
                pass
            except ssl.SSLError:
                with contextlib.suppress(OSError):
                    self._flush()  # an alert
                raise
            self.reader_wants = WRITE
            self._flush()
            self.reader_wants = READ
            if complete:
                break
            if not may_receive:
                raise BlockingIOError
            data = self._sock.recv(2 * _FIRST_SHARE)
            if not data:
                raise ConnectionResetError("the peer closed the connection")
            self._incoming.write(data)
        self._open = True
        self._received = self._incoming.pending
        self._overhead = _RECORD_OVERHEAD.get(self._ssl.version() or "", _OVERHEAD)

    def recv_into(self, buffer: memoryview, size: int = 0) -> int:
        """Receive up to ``size`` bytes (0: as many as fit); 0 is the end, with or without ``close_notify``.

        Raises BlockingIOError, OSError, and RemoteWireError for a client that sends too little data.
        """
        with self._lock:
            self._check()
            count = self._decrypt(buffer, size or buffer.nbytes) if self._has_more() else 0
            if not count and self._ended is None:
                if not self._receive(size or buffer.nbytes):
                    return 0
                count = self._decrypt(buffer, size or buffer.nbytes)
            if not count and self._ended is None:
                self.reader_wants = READ
                raise BlockingIOError
        if not count and not isinstance(self._ended, ssl.SSLZeroReturnError):
            assert self._ended is not None
            raise self._failed(self._ended)
        return count

    def is_pending(self) -> bool:
        """Return whether something has been received that the socket does not report any more."""
        with self._lock:
            return self._open and self._has_more()

    def _has_more(self) -> bool:
        return self._incoming.pending > 0 or self._ssl.pending() > 0 or self._ended is not None

    def _decrypt(self, buffer: memoryview, size: int) -> int:
        """Decrypt what has been received, up to ``size`` bytes. Return their number.

        Less than ``size``: all has been received, or TLS has ended.
        """
        read: Callable[[int, memoryview], int] = self._ssl.read  # type: ignore[assignment]
        incoming = self._incoming
        filled = records = 0
        try:
            while filled < size and self._ended is None:
                count = read(size - filled, buffer[filled:])
                if not count:
                    self._ended = ssl.SSLZeroReturnError()
                    break
                filled += count
                records += 1
                if not incoming.pending:
                    break
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as error:
            self._ended = error
        self._data += filled
        self._records += records
        if self._outgoing.pending:
            with contextlib.suppress(OSError):  # it is of no interest unless something is sent
                self._flush()
        return filled

    def _receive(self, size: int) -> int:
        """Give OpenSSL a share of what has arrived. Return its size: 0 at the end.

        ``size``: of the read. Raises BlockingIOError, OSError, RemoteWireError.
        """
        if len(self._unsent) - self._taken > _UNSENT_BYTES:
            self.reader_wants = WRITE
            self._flush()
        self.reader_wants = READ
        received, data = self._received, self._data
        wasted = received - data - self._records * self._overhead
        self._received = self._data = self._records = 0
        self._waste = max(0, self._waste + wasted) if self.is_stranger or not data else 0
        if self._waste > _WASTE_BYTES and self._host is None:
            raise RemoteWireError(f"it sent {self._waste} bytes of TLS without data, such as key updates")
        if self.is_stranger or wasted > data > 0:
            self._share = _FIRST_SHARE
        elif data:
            self._share = min(2 * self._share, _LARGEST_SHARE)
        self._thin = max(0, self._thin + received - data)
        if self._thin > _RECORD_BYTES:  # one may still be incomplete
            self._thin, self.gives_way = 0, True
            raise BlockingIOError
        share = self._sock.recv(self._share if size >= _LARGE_READ else min(self._share, _RECORD_BYTES))
        self._incoming.write(share)
        self._received = len(share)
        return self._received

    def send(self, data: memoryview) -> int:
        """Send the beginning of ``data``. Return its size.

        Raises BlockingIOError for 0, OSError, and RemoteWireError as ``recv_into``.
        """
        try:
            with self._lock:
                return self._send(data)
        except ssl.SSLError as error:
            raise self._failed(error) from None

    def _send(self, data: memoryview) -> int:
        self._check()
        sent, self.writer_wants = 0, WRITE
        try:
            self._flush()
            sent, self._taken = self._taken, 0
            while sent < len(data):
                self._taken = self._encrypt(data[sent : sent + PIECE_BYTES])
                self._flush()
                sent, self._taken = sent + self._taken, 0
        except BlockingIOError:
            pass
        except OSError as error:
            if not isinstance(error, ssl.SSLError):
                self._raise_alert()
            if isinstance(error, BrokenPipeError):
                raise BrokenPipeError(errno.EPIPE, "the peer closed the connection") from None
            raise
        if not sent and len(data):
            raise BlockingIOError
        return sent

    def _encrypt(self, piece: memoryview) -> int:
        """Encrypt ``piece``. Return its size. Raises BlockingIOError, OSError, RemoteWireError.

        OpenSSL encrypts nothing between the two records of a key update that its peer has split. A client's
        reader receives the second one; a server reads no request while it sends, so it is received here.
        """
        while True:
            try:
                return self._ssl.write(piece)
            except ssl.SSLWantReadError:
                self.writer_wants = READ
                self._drain()
            if self._host is not None:
                raise BlockingIOError
            if not self._receive(_LARGE_READ):
                raise BrokenPipeError

    def _drain(self) -> None:
        """Take what OpenSSL has encrypted out of the memory that others may share."""
        if self._outgoing.pending:
            data = self._outgoing.read()
            self._unsent = b"".join((self._unsent, data)) if self._unsent else data

    def _flush(self) -> None:
        """Send what is encrypted. Raises BlockingIOError, OSError."""
        self._drain()
        while self._unsent:
            count = self._sock.send(self._unsent)
            self._unsent = memoryview(self._unsent)[count:] if count < len(self._unsent) else b""

    def peer_certificate(self) -> bytes | None:
        """Return the verified certificate of the peer in DER; None if it has shown none."""
        with self._lock:
            return self._ssl.getpeercert(binary_form=True) if self._open else None

    def shutdown(self, how: int) -> None:
        """Send ``close_notify`` without waiting for the peer's, and shut the socket down. Raises OSError."""
        with self._lock:
            self._end()
        self._sock.shutdown(how)

    def discard(self, size: int) -> int:
        """Read encrypted bytes and drop them. Raises BlockingIOError, OSError."""
        return len(self._sock.recv(size))

    def getsockopt(self, level: int, option: int) -> int:
        """Return an option of the socket."""
        return self._sock.getsockopt(level, option)

    def setsockopt(self, level: int, option: int, value: bytes) -> None:
        """Set an option of the socket."""
        self._sock.setsockopt(level, option, value)

    def fileno(self) -> int:
        """Return the descriptor, for ``select`` and ``poll`` only."""
        return self._sock.fileno()

    def close(self) -> None:
        """Send ``close_notify`` if the peer may still read, and close the socket."""
        with self._lock:
            self._end()
        self._sock.close()

    def _end(self) -> None:
        if self._open:
            self._open = False
            with contextlib.suppress(OSError):
                self._ssl.unwrap()
            with contextlib.suppress(OSError):
                self._flush()

    def _check(self) -> None:
        if not self._open:
            raise ConnectionAbortedError("TLS has ended on this connection")

    def _failed(self, error: ssl.SSLError) -> TlsFailed:
        """Return the error for the caller. Without the lock: it may take a second."""
        return TlsFailed(tls_failure(error, self._host, self._presented))

    def _presented(self) -> bytes | None:
        return None if self._host is None else presented_certificate(self._sock, self._host)

    def _raise_alert(self) -> None:
        """Raise the error that an alert of the peer reports, which it may have sent before it left."""
        with contextlib.suppress(ssl.SSLWantReadError, ssl.SSLZeroReturnError):
            try:
                self._incoming.write(self._sock.recv(_LARGEST_SHARE))
            except OSError:
                return
            try:
                self._ssl.read(1)
            finally:
                self._drain()
