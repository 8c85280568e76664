"""A server's connection and its state.

    HANDSHAKE      the first one of a connection with TLS: the handshake is not complete
    READING        a request is awaited, or received into its own memory
    HELD           the request limits are reached (``net.request_limiter``): it is not read for a while
    IN_SERVICE     the handler has the request; nothing more is read
    DELAYED        the last response, after which the connection is closed, waits for its time
    SENDING        the response is being sent
    AWAITING_PART  a part of the response is being produced (``wire.frame_parts.LazyPart``)
    THROTTLED      after a response that asked for it, nothing is read for a while; the connection may be idle
    LINGERING      after the last response: our side is closed; what the peer still sends is discarded until
                   it closes
    CLOSED         the end

The states that may follow a state; CLOSED may follow every one::

    HANDSHAKE      READING, LINGERING
    READING        HELD, IN_SERVICE, LINGERING
    HELD           READING, LINGERING
    IN_SERVICE     DELAYED, SENDING
    DELAYED        SENDING
    SENDING        READING, AWAITING_PART, THROTTLED, LINGERING
    AWAITING_PART  SENDING
    THROTTLED      READING, LINGERING
    LINGERING

The state also says what a selector reports (``Channel.interest``), unless TLS waits for something else.
While nothing is read, the connection stays registered for reading, which saves two system calls per request
in the usual case; it is removed when its peer sends ahead.

``Channel.sock`` is the plain socket until the first byte of a client with TLS has arrived: those that send
nothing cost no more than a connection without TLS.
"""

from __future__ import annotations

import select
import selectors
import socket
from enum import IntEnum, auto
from typing import TYPE_CHECKING, Any

from minikafka.base.clock import NEVER_MS
from minikafka.net.network_send import NetworkSend, peer_name
from minikafka.net.response_memory import STALL_BYTES, LargeResponse
from minikafka.security.principals import ANONYMOUS
from minikafka.wire.framing import FrameReader

if TYPE_CHECKING:
    from minikafka.net.interfaces import Endpoint, Exchange
    from minikafka.net.ssl_transport import SslTransport

WINDOW_BYTES = 4096
"""The read-ahead of a connection: small requests that arrive together are received together."""

READ, WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE


class ConnectionState(IntEnum):
    """See the module."""

    HANDSHAKE = auto()
    READING = auto()
    HELD = auto()
    IN_SERVICE = auto()
    DELAYED = auto()
    SENDING = auto()
    AWAITING_PART = auto()
    THROTTLED = auto()
    LINGERING = auto()
    CLOSED = auto()


(HANDSHAKE, READING, HELD, IN_SERVICE, DELAYED, SENDING, AWAITING_PART, THROTTLED, LINGERING, CLOSED) = (
    ConnectionState
)

_NEXT: dict[ConnectionState, frozenset[ConnectionState]] = {
    HANDSHAKE: frozenset({READING, LINGERING, CLOSED}),
    READING: frozenset({HELD, IN_SERVICE, LINGERING, CLOSED}),
    HELD: frozenset({READING, LINGERING, CLOSED}),
    IN_SERVICE: frozenset({DELAYED, SENDING, CLOSED}),
    DELAYED: frozenset({SENDING, CLOSED}),
    SENDING: frozenset({READING, AWAITING_PART, THROTTLED, LINGERING, CLOSED}),
    AWAITING_PART: frozenset({SENDING, CLOSED}),
    THROTTLED: frozenset({READING, LINGERING, CLOSED}),
    LINGERING: frozenset({CLOSED}),
    CLOSED: frozenset(),
}
_INTEREST = {
    HANDSHAKE: READ,
    READING: READ,
    HELD: 0,
    IN_SERVICE: READ,
    DELAYED: READ,
    SENDING: WRITE,
    AWAITING_PART: READ,
    THROTTLED: READ,
    LINGERING: READ,
    CLOSED: 0,
}
UNANSWERED = frozenset({IN_SERVICE, DELAYED, SENDING, AWAITING_PART})
"""A request was received, and its response is not sent."""
BETWEEN_REQUESTS = frozenset({READING, HELD, THROTTLED})
"""No request was received completely since the last response."""

AWAITS_CLIENT = frozenset({HANDSHAKE, READING, SENDING, THROTTLED})
"""The client has to send or to receive before anything else can happen."""


class Channel:
    """One connection. Only its processor's thread uses it, where nothing else is said."""

    __slots__ = (
        "answered",
        "authentication_deadline_ms",
        "close_reason",
        "counted",
        "endpoint",
        "events",
        "exchange",
        "host",
        "interest",
        "large_response",
        "last_active_ms",
        "memory",
        "name",
        "outgoing",
        "principal",
        "reader",
        "reserved",
        "resume_ms",
        "seen_bytes",
        "sock",
        "state",
        "throttle_ms",
        "timer_ms",
        "tls",
    )

    def __init__(
        self, sock: socket.socket, address: object, endpoint: Endpoint, max_request_bytes: int, now_ms: int
    ) -> None:
        self.sock: socket.socket | SslTransport = sock
        self.tls: SslTransport | None = None
        """``sock`` if it is encrypted."""
        self.host, self.name = peer_name(address)
        self.endpoint = endpoint
        self.memory: dict[str, Any] = {}
        self.principal = ANONYMOUS
        self.authentication_deadline_ms = NEVER_MS
        """The time to close the connection unless its client has authenticated; NEVER_MS once it has."""
        self.close_reason = ""
        """The reason to close the connection after its response; '' to keep it."""
        self.reader = FrameReader(max_request_bytes, window=WINDOW_BYTES)
        self.state = READING if endpoint.tls is None else HANDSHAKE
        self.exchange: Exchange | None = None
        """The request in service."""
        self.answered: Exchange | None = None
        """The request whose response is being sent, or was sent last."""
        self.outgoing: NetworkSend | None = None
        self.large_response: LargeResponse | None = None
        # The time for which the current response throttles, and the end of THROTTLED or DELAYED.
        self.throttle_ms = self.resume_ms = 0
        self.interest = _INTEREST[self.state]
        """The events that the selector has to report in this state."""
        self.events = 0
        """The events for which the socket is registered."""
        self.last_active_ms = now_ms
        self.timer_ms = NEVER_MS
        # The request limiter's account of this connection: whether its request is counted, the bytes
        # reserved for it, and the bytes received at the last check.
        self.counted = False
        self.reserved = 0
        self.seen_bytes: int | None = None

    def become(self, state: ConnectionState) -> None:
        """Change the state, and with it the interest."""
        assert state in _NEXT[self.state], f"{self.name}: {self.state.name} to {state.name}"
        self.state = state
        self.interest = _INTEREST[state]

    def encrypt(self, tls: SslTransport) -> None:
        """Use ``tls``, which has taken over the socket."""
        self.sock = self.tls = tls

    def peer_has_closed(self) -> bool:
        """Return whether the peer has closed its side, or the connection has ended. Any thread may call this.

        What the peer sent before may still be unread. Without POLLRDHUP (not on Linux) a peer that has closed
        only its side counts as connected.
        """
        descriptor = self.sock.fileno()
        if self.state is CLOSED or descriptor < 0:
            return True
        poller = select.poll()
        poller.register(descriptor, getattr(select, "POLLRDHUP", 0))
        return bool(poller.poll(0))

    def await_transport(self) -> None:
        """Have the selector report what the next call of a step waits for, after BlockingIOError."""
        if self.tls is not None and self.state in AWAITS_CLIENT:
            self.interest = self.tls.writer_wants if self.state is SENDING else self.tls.reader_wants

    def discard(self, size: int) -> int:
        """Read and drop bytes, encrypted or not. Return their number. Raises BlockingIOError, OSError."""
        sock = self.sock
        return len(sock.recv(size)) if isinstance(sock, socket.socket) else sock.discard(size)

    @property
    def is_readable(self) -> bool:
        """True when bytes have been received that the selector does not report."""
        return self.reader.ahead or (self.tls is not None and self.tls.is_pending())

    def mute(self) -> None:
        """Report nothing in this state, as the peer sends what is not read now."""
        self.interest = 0

    def stalled(self, *, memory_is_scarce: bool) -> str:
        """Return why a connection that holds scarce memory counts as stalled; '' if it does not.

        Called in intervals: the peer must have sent, or read, something since the last call.
        """
        if self.large_response is not None and self.large_response.is_stalled():
            return "it read too little of its response"
        if self.state is not READING or not self.reserved or not memory_is_scarce:
            self.seen_bytes = None
            return ""
        seen, self.seen_bytes = self.seen_bytes, self.reader.received_bytes
        stalls = seen is not None and self.seen_bytes - seen < STALL_BYTES
        return f"it sent less than {STALL_BYTES} bytes of its request" if stalls else ""
