"""A client's connection over a real socket: blocking for its callers, pipelined, thread-safe.

There is no background thread. A caller that waits for a response reads the socket for all callers until its
own response is there; then another waiting caller continues. A writer that the peer blocks reads as well:
otherwise both sides could wait for each other to read.

The socket is non-blocking; waiting uses ``poll``. The first error is kept and raised to all callers, now and
later.

With TLS the handshake is part of making a connection, and has the same time as TCP before it.

A peer that closes a connection before its first answer is asked whether only one side uses TLS
(``net.listener_probe``): then no retry helps, and the error is AuthenticationFailed.
"""

from __future__ import annotations

import contextlib
import copy
import select
import selectors
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING

from minikafka.base.errors import (
    AuthenticationFailed,
    ForeignProtocol,
    NetworkError,
    NoResponse,
    PeerClosed,
    RemoteWireError,
    SslAuthenticationFailed,
    StorageError,
)
from minikafka.base.ids import host_port
from minikafka.net.interfaces import Connection, Connector, PendingResponse
from minikafka.net.network_send import NetworkSend, TlsFailed, connection_error, error_reason
from minikafka.wire.frame_parts import Part
from minikafka.wire.framing import MAX_FRAME_BYTES, FrameReader, encode_frame, foreign_protocol

if TYPE_CHECKING:
    import ssl

    from minikafka.net.ssl_transport import SslTransport
    from minikafka.security.sasl.login import ClientLogin
    from minikafka.security.ssl_config import SslConfig

__all__ = [
    "Connection",
    "Connector",
    "PendingResponse",
    "SocketConnection",
    "SocketConnector",
    "connect",
    "secured_connector",
]

_CLOSED_HERE = "the connection was closed by this client"
_READABLE = select.POLLIN | select.POLLHUP | select.POLLERR


class SocketConnector:
    """Makes connections over real sockets. See ``connect`` for the arguments."""

    def __init__(
        self,
        *,
        connect_timeout_ms: int = 10_000,
        request_timeout_ms: int = 30_000,
        max_response_bytes: int = MAX_FRAME_BYTES,
        send_buffer_bytes: int | None = None,
        receive_buffer_bytes: int | None = None,
        tls: Callable[[], ssl.SSLContext] | None = None,
    ) -> None:
        """tls: returns the TLS of a new connection; None for connections that are not encrypted."""
        self._connect_timeout_ms = connect_timeout_ms
        self._request_timeout_ms = request_timeout_ms
        self._max_response_bytes = max_response_bytes
        self._tls = tls
        self._probed_ms: dict[str, int] = {}
        """Peer -> when it was asked for its protocol."""
        self._buffers = ((socket.SO_SNDBUF, send_buffer_bytes), (socket.SO_RCVBUF, receive_buffer_bytes))

    def connect(self, host: str, port: int) -> SocketConnection:
        """Return a new connection. Raises NetworkError, and AuthenticationFailed if TLS refuses the peer."""
        peer = host_port(host, port)
        deadline_ms = _now_ms() + self._connect_timeout_ms
        try:
            sock = _connected(host, port, deadline_ms)
        except (OSError, OverflowError, UnicodeError) as error:
            reason = (
                f"no answer within {self._connect_timeout_ms} ms" if isinstance(error, TimeoutError) else None
            )
            raise NetworkError(f"cannot connect: {reason or error_reason(error)}", peer) from None
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for option, size in self._buffers:
                if size is not None:
                    sock.setsockopt(socket.SOL_SOCKET, option, size)
            transport = sock if self._tls is None else self._encrypted(sock, host, deadline_ms)
        except (OSError, ValueError) as error:  # ValueError: a name that TLS cannot send
            reason = self._mismatch(peer, host, port) if isinstance(error, ConnectionResetError) else ""
            sock.close()
            raise _broken(peer, "cannot connect", error, mismatch=reason) from None
        except BaseException:
            sock.close()
            raise
        return SocketConnection(
            transport,
            peer,
            self._request_timeout_ms,
            self._max_response_bytes,
            lambda: self._mismatch(peer, host, port),
        )

    def _mismatch(self, peer: str, host: str, port: int) -> str:
        """Return an error if only one of this client and its peer uses TLS; '' otherwise, or if unknown.

        Asked of a peer that has closed a connection, at most every ``_PROBE_MS``: it may just be stopping.
        """
        from minikafka.net import listener_probe

        now_ms = _now_ms()
        if now_ms - self._probed_ms.get(peer, -_PROBE_MS) < _PROBE_MS:
            return ""
        self._probed_ms[peer] = now_ms
        if self._tls is None:
            return listener_probe.TLS_NEEDED if listener_probe.speaks_tls((host, port)) else ""
        return listener_probe.TLS_MISSING if listener_probe.speaks_plainly((host, port)) else ""

    def _encrypted(self, sock: socket.socket, host: str, deadline_ms: int) -> SslTransport:
        """Return the transport after the handshake. Raises OSError, ValueError."""
        from minikafka.net.ssl_transport import SslTransport

        assert self._tls is not None, "the caller has looked"
        transport = SslTransport(sock, self._tls(), host)
        try:
            while True:
                try:
                    transport.handshake()
                    return transport
                except BlockingIOError:
                    if not _poll(transport, _events_of(transport.reader_wants), deadline_ms):
                        text = f"the TLS handshake was not complete within {self._connect_timeout_ms} ms"
                        raise TimeoutError(text) from None
        except BaseException:
            transport.close()
            raise

    def wait_any(self, pending: Sequence[PendingResponse], timeout_ms: int) -> bool:
        """See ``interfaces.Connector``."""
        deadline_ms = _now_ms() + timeout_ms
        ours = [response for response in pending if isinstance(response, _SocketPending)]
        while not any(response.done() for response in pending):
            left_ms = deadline_ms - _now_ms()
            if left_ms <= 0:
                return False
            _wait_readable(ours, left_ms)
        return True


def secured_connector(
    ssl: SslConfig | None,
    login: ClientLogin | None,
    *,
    connections: str,
    client_id: str,
    connect_timeout_ms: int = 10_000,
    request_timeout_ms: int = 30_000,
    send_buffer_bytes: int | None = None,
    receive_buffer_bytes: int | None = None,
) -> Connector:
    """Return what makes connections with TLS and SASL; None for ``ssl`` or ``login``: without it.

    The files of key stores are read again when they have changed. connections: what they are for, for
    messages. connect_timeout_ms: the limit for TCP, TLS and SASL together. Raises ConfigErrors for key stores
    that cannot be used.
    """
    tls = None
    if ssl is not None:
        from minikafka.net.tls import CurrentTls  # a client without TLS needs no key stores

        tls = CurrentTls(ssl, connections).context
    sockets = SocketConnector(
        connect_timeout_ms=connect_timeout_ms,
        request_timeout_ms=request_timeout_ms,
        send_buffer_bytes=send_buffer_bytes,
        receive_buffer_bytes=receive_buffer_bytes,
        tls=tls,
    )
    if login is None:
        return sockets
    from minikafka.net.authentication import SecureConnector

    return SecureConnector(
        sockets,
        login,
        is_encrypted=ssl is not None,
        client_id=client_id,
        connect_timeout_ms=connect_timeout_ms,
    )


def connect(
    host: str, port: int, *, connect_timeout_ms: int = 10_000, request_timeout_ms: int = 30_000
) -> SocketConnection:
    """Return a new connection. The addresses of ``host`` are tried for ``connect_timeout_ms`` in all."""
    connector = SocketConnector(connect_timeout_ms=connect_timeout_ms, request_timeout_ms=request_timeout_ms)
    return connector.connect(host, port)


def _connected(host: str, port: int, deadline_ms: int) -> socket.socket:
    """Return a socket to the first address of ``host`` that answers. Raises OSError of the last one.

    Each address has an equal part of the time that is left: one that is silent leaves the others, and TLS and
    SASL after them, enough of it.
    """
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    last = OSError("the host has no address")
    for left, (family, kind, protocol, _, address) in zip(range(len(found), 0, -1), found, strict=True):
        try:
            with contextlib.ExitStack() as unless_connected:
                sock = unless_connected.enter_context(socket.socket(family, kind, protocol))
                sock.settimeout(max(1, (deadline_ms - _now_ms()) // left) / 1000)
                sock.connect(address)
                unless_connected.pop_all()
                return sock
        except OSError as error:
            last = error
    raise last


class _SocketPending:
    """See ``interfaces.PendingResponse``."""

    __slots__ = ("connection", "error", "frame", "made_ms", "max_bytes")

    def __init__(self, connection: SocketConnection, max_bytes: int) -> None:
        self.connection = connection
        self.max_bytes = max_bytes
        self.made_ms = _now_ms()
        self.frame: memoryview | None = None
        self.error: NetworkError | AuthenticationFailed | None = None

    def settled(self) -> bool:
        """Return whether the response or an error is present."""
        return self.frame is not None or self.error is not None

    def done(self) -> bool:
        if not self.settled():
            self.connection.receive_arrived()
        return self.settled()

    def result(self, timeout_ms: int | None = None) -> memoryview:
        if not self.settled():
            self.connection.wait_for(self, timeout_ms)
        if self.error is not None:
            # A new instance each time: several threads may raise it, and each adds its own traceback.
            raise copy.copy(self.error)
        assert self.frame is not None
        return self.frame


_PROBE_MS = 10_000
INITIAL_RESPONSE_BYTES = 64 << 20
"""Up to this size memory for a response is allocated at once, more as data arrives."""


class SocketConnection:
    """See ``interfaces.Connection``."""

    def __init__(
        self,
        sock: socket.socket | SslTransport,
        peer: str,
        request_timeout_ms: int,
        max_response_bytes: int,
        mismatch: Callable[[], str] = lambda: "",
    ) -> None:
        """mismatch: returns an error if only one of the two sides uses TLS, as its peer has closed it."""
        self.peer = peer
        self._sock = sock
        self._tls = None if isinstance(sock, socket.socket) else sock
        self._request_timeout_ms = request_timeout_ms
        self._max_response_bytes = max_response_bytes
        self._mismatch = mismatch
        self._reader = FrameReader(max_response_bytes, first_allocation=INITIAL_RESPONSE_BYTES)
        # Held while a frame is written and queued, so that both have the same order.
        self._writing = threading.Lock()
        # Guards the fields below. Notified of a response, a free reader role, and the end.
        self._state = threading.Condition()
        self._pending: deque[_SocketPending] = deque()
        self._has_reader = False
        self._has_writer = False
        self._error: NetworkError | AuthenticationFailed | None = None
        self._has_received = False
        self.session_end_ms: int | None = None

    @property
    def closed(self) -> bool:
        if self._error is None and not self._pending:
            if self.session_end_ms is not None and self.session_end_ms <= _now_ms():
                return True
            self.receive_arrived()
        return self._error is not None

    def request(self, parts: Sequence[Part], max_response_bytes: int | None = None) -> PendingResponse:
        limit = self._max_response_bytes
        pending = _SocketPending(
            self, limit if max_response_bytes is None else min(limit, max_response_bytes)
        )
        self._write(encode_frame(parts), pending)
        return pending

    def send(self, parts: Sequence[Part]) -> None:
        self._write(encode_frame(parts), None)

    def close(self, drain_ms: int = 0) -> None:
        if drain_ms <= 0:
            self._fail(NetworkError(_CLOSED_HERE, self.peer))
            return
        deadline_ms = _now_ms() + drain_ms
        with self._writing:  # so that no request follows
            with self._state:
                newest = list(self._pending)[-1:]
            while not all(pending.done() for pending in newest) and _now_ms() < deadline_ms:
                _wait_readable(newest, deadline_ms - _now_ms())
            self._fail(NetworkError(_CLOSED_HERE, self.peer))

    def abort(self) -> None:
        with contextlib.suppress(OSError):  # the peer may have been quicker
            # The close then resets the connection and drops what is not sent.
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close()

    def receive_arrived(self) -> None:
        """Read what has arrived, without waiting; nothing when another thread is reading."""
        if self.acquire_reader():
            try:
                while self._receive_frame():
                    pass
            finally:
                self.release_reader()

    def wait_for(self, pending: _SocketPending, timeout_ms: int | None) -> None:
        """Wait until ``pending`` has its response or error."""
        timeout_ms = self._request_timeout_ms if timeout_ms is None else timeout_ms
        deadline_ms = pending.made_ms + timeout_ms
        while not pending.settled():
            left_ms = deadline_ms - _now_ms()
            if left_ms <= 0:
                if not pending.done():  # it may have arrived while the caller waited for others
                    self._fail(NoResponse(timeout_ms, self.peer))
                return
            with self._state:
                if self._has_reader and not pending.settled():
                    self._state.wait(left_ms / 1000)
                    continue
            if self.acquire_reader():
                try:
                    while not pending.settled() and self._wait(self.readable_events(), deadline_ms):
                        self._receive_frame()
                finally:
                    self.release_reader()

    def _write(self, frame: list[Part], pending: _SocketPending | None) -> None:
        with self._writing:
            if not self._pending:
                self.receive_arrived()  # detects a closed connection before sending
            with self._state:
                self._check()
                self._has_writer = True
                if pending is not None:
                    self._pending.append(pending)
            try:
                self._write_all(NetworkSend(frame))
            finally:
                with self._state:
                    self._has_writer = False
                    self._close_when_unused()
            if pending is None or not pending.settled():
                self._check()

    def _write_all(self, outgoing: NetworkSend) -> None:
        deadline_ms = _now_ms() + self._request_timeout_ms
        try:
            while self._error is None:
                if outgoing.write(self._sock):
                    deadline_ms = _now_ms() + self._request_timeout_ms
                if outgoing.done:
                    return
                if _now_ms() >= deadline_ms:
                    text = f"read nothing of a request for {self._request_timeout_ms} ms"
                    self._fail(NetworkError(text, self.peer))
                self._wait_writable(deadline_ms)
        except (OSError, StorageError) as error:
            self._fail(self._broken("cannot send", error))
        except BaseException:
            # For example Ctrl-C: half a frame may be sent, and nothing can follow it.
            self._fail(NetworkError("sending was interrupted", self.peer))
            raise
        finally:
            outgoing.close()

    def _wait_writable(self, deadline_ms: int) -> None:
        """Wait until the socket is writable, and read meanwhile unless another thread does."""
        wanted = select.POLLOUT if self._tls is None else _events_of(self._tls.writer_wants)
        if not self.acquire_reader():
            self._wait(wanted, deadline_ms)
            return
        try:
            if self._wait(wanted | self.readable_events(), deadline_ms) & self.readable_events():
                self._receive_frame()
        finally:
            self.release_reader()

    def _wait(self, events: int, deadline_ms: int) -> int:
        """Return the ready events of the socket: 0 after the deadline or when the connection has ended."""
        if self._error is not None:
            return 0
        if events & select.POLLIN and self.is_pending():
            return select.POLLIN
        return _poll(self._sock, events, deadline_ms)

    def _receive_frame(self) -> bool:
        """Read up to the end of a frame. Return whether a frame was complete. Only in the reader role."""
        try:
            while self._error is None:
                with self._reader.space() as space:
                    count = self._sock.recv_into(space)
                if count == 0:
                    unanswered = "before it answered" if self._pending else "while idle"
                    text = f"the peer closed the connection {unanswered}"
                    foreign = foreign_protocol((self._reader.frame_bytes or 0).to_bytes(4, "big"))
                    if foreign:
                        self._fail(self._broken("cannot receive", ForeignProtocol(text, foreign)))
                    elif mismatch := self._early_mismatch():
                        self._fail(SslAuthenticationFailed(f"{self.peer}: {mismatch}"))
                    else:
                        self._fail(PeerClosed(text, self.peer))
                    return False
                if not self._reader.inside_frame and self._pending:
                    self._reader.max_bytes = self._pending[0].max_bytes
                frame = self._reader.filled(count)
                if frame is not None:
                    self._settle(frame)
                    return True
        except BlockingIOError:
            return False
        except (OSError, RemoteWireError) as error:
            self._fail(self._broken("cannot receive", error))
        except BaseException:
            self._fail(NetworkError("receiving was interrupted", self.peer))
            raise
        return False

    def _settle(self, frame: memoryview) -> None:
        with self._state:
            if not self._pending:
                self._fail(NetworkError("unexpected response without a request", self.peer))
                return
            self._has_received = True
            self._pending.popleft().frame = frame
            self._state.notify_all()

    def readable_events(self) -> int:
        """Return the events of the socket after which something may be received."""
        return _READABLE if self._tls is None else _events_of(self._tls.reader_wants) | _READABLE

    def is_pending(self) -> bool:
        """Return whether bytes have been received that ``poll`` does not report."""
        return self._tls is not None and self._tls.is_pending()

    def fileno(self) -> int:
        """Return the descriptor for ``poll``, which is valid while the reader role is held."""
        return self._sock.fileno()

    def acquire_reader(self) -> bool:
        """Take the reader role. Return False when another thread has it, or the connection has ended."""
        with self._state:
            if self._has_reader or self._error is not None:
                return False
            self._has_reader = True
            return True

    def release_reader(self) -> None:
        """Release the reader role and notify waiting threads."""
        with self._state:
            self._has_reader = False
            self._close_when_unused()
            self._state.notify_all()

    def _broken(self, doing: str, error: Exception) -> NetworkError | AuthenticationFailed:
        mismatch = self._early_mismatch() if isinstance(error, ConnectionError) else ""
        return _broken(self.peer, doing, error, mismatch=mismatch, is_first=not self._has_received)

    def _early_mismatch(self) -> str:
        """Return ``mismatch`` for a peer that has ended the connection before its first answer."""
        return self._mismatch() if self._tls is None and self._pending and not self._has_received else ""

    def _fail(self, error: NetworkError | AuthenticationFailed) -> None:
        """End the connection: the first error wins, and all waiting callers get it."""
        with self._state:
            if self._error is None:
                self._error = error
                while self._pending:
                    self._pending.popleft().error = error
                with contextlib.suppress(OSError):  # the peer may have been quicker
                    # Ends a ``poll`` or ``recv`` of another thread, which closing the descriptor would not.
                    self._sock.shutdown(socket.SHUT_RDWR)
                self._close_when_unused()
                self._state.notify_all()

    def _close_when_unused(self) -> None:
        """Close the descriptor once no thread is in a call on it, as its number may then be reused."""
        if self._error is not None and not self._has_reader and not self._has_writer:
            self._sock.close()

    def _check(self) -> None:
        """Raise the error that ended the connection, if one did."""
        if self._error is not None:
            raise copy.copy(self._error)


def _broken(
    peer: str, doing: str, error: Exception, *, mismatch: str = "", is_first: bool = True
) -> NetworkError | AuthenticationFailed:
    """Return the error of a broken connection.

    ``is_first``: nothing has been received. If TLS has failed then, or the peer speaks another protocol, the
    two sides do not accept each other, and a retry would not help. (A TLS 1.3 broker refuses a certificate
    after the client's own handshake.)
    """
    if is_first and isinstance(error, ForeignProtocol):
        from minikafka.net.listener_probe import TLS_NEEDED

        mismatch = TLS_NEEDED if error.protocol == "TLS" else f"the peer speaks {error.protocol}, not Kafka"
    if mismatch or (is_first and isinstance(error, TlsFailed)):
        return SslAuthenticationFailed(f"{peer}: {mismatch or error_reason(error)}")
    return connection_error(peer, doing, error)


_SHARED_POLL_MS = 10
"""The maximum wait while other threads read some connections: they may receive our response."""


def _wait_readable(pending: Collection[_SocketPending], timeout_ms: int) -> None:
    """Wait until one of ``pending`` may be settled."""
    connections = {response.connection for response in pending}
    held = [connection for connection in connections if connection.acquire_reader()]
    try:
        # Until now other threads may have read these connections: no socket reports what they have received.
        if any(response.settled() for response in pending) or any(
            connection.is_pending() for connection in held
        ):
            return
        poller = select.poll()
        for connection in held:
            poller.register(connection, connection.readable_events())
        poller.poll(timeout_ms if len(held) == len(connections) else min(timeout_ms, _SHARED_POLL_MS))
    finally:
        for connection in held:
            connection.release_reader()


def _events_of(wanted: int) -> int:
    """Return the events to poll for one of a selector."""
    return _READABLE if wanted == selectors.EVENT_READ else select.POLLOUT


def _poll(sock: socket.socket | SslTransport, events: int, deadline_ms: int) -> int:
    """Return the ready events: 0 after the deadline."""
    poller = select.poll()
    poller.register(sock, events)
    ready = poller.poll(max(0, deadline_ms - _now_ms()))
    return ready[0][1] if ready else 0


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000
