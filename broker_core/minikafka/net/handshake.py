"""The server's side of TLS handshakes.

A handshake takes up to a millisecond of computing. So none continues when its event comes: those of a turn
wait for its end, and there take no more time than the turn's other work, but one goes on in any case.
"""

from __future__ import annotations

import socket
import ssl
import time
from collections import deque
from collections.abc import Callable

from minikafka.base.errors import NetworkError
from minikafka.net.channel import READ, Channel, ConnectionState
from minikafka.net.network_send import TlsFailed
from minikafka.net.ssl_transport import HANDSHAKE_RECORD, SslTransport

_PEEK_BYTES = 4


class HandshakeFailed(NetworkError):
    """A client and this listener did not agree on TLS. The text is for the broker's log."""


class NothingSent(ConnectionResetError):
    """A peer left before its first byte, as a check that a port is open does: that is no fault."""


def continue_handshake(channel: Channel, outgoing: ssl.MemoryBIO) -> None:
    """Continue the handshake of a connection to its end.

    outgoing: memory of the channel's processor, for all of its connections (``SslTransport``).

    It begins with a look at the first bytes: OpenSSL does not say which other protocol a client speaks. It
    would also answer with an alert, whose first bytes a client without TLS takes for a length of 350 MB.

    Raises BlockingIOError when it has to wait for the peer, HandshakeFailed, OSError when the peer has left
    (NothingSent: without a byte).
    """
    tls = channel.tls
    if tls is None:
        context = channel.endpoint.tls
        assert context is not None
        assert isinstance(channel.sock, socket.socket)
        try:
            first = channel.sock.recv(_PEEK_BYTES, socket.MSG_PEEK)
        except ConnectionError:
            first = b""
        if not first:
            raise NothingSent("the peer disconnected before a TLS handshake")
        if first[0] != HANDSHAKE_RECORD:
            raise HandshakeFailed(_other_protocol(first, sasl=channel.endpoint.demands_authentication))
        tls = SslTransport(channel.sock, context.context, outgoing=outgoing)
        channel.encrypt(tls)
    try:
        tls.handshake()
    except TlsFailed as error:
        raise HandshakeFailed(str(error)) from None


def _other_protocol(first: bytes, *, sasl: bool) -> str:
    protocol = "SASL_SSL" if sasl else "SSL"
    if first.strip().isalpha() and first.isupper():
        return (
            f"an HTTP client (it sent {first.decode()!r}): this is a listener of Kafka with TLS ({protocol})"
        )
    return f"a client without TLS (it sent {first.hex(' ')}): set its security.protocol={protocol}"


class TurnEndQueue:
    """Channels of one processor whose next step may compute for long, in the order of their events."""

    def __init__(self, state: ConnectionState, step: Callable[[Channel], None]) -> None:
        """step: is done with channels that are still in ``state``."""
        self._state = state
        self._step = step
        self.waiting: deque[Channel] = deque()
        self._turn_began = 0.0

    def add(self, channel: Channel) -> None:
        """Do the step of a channel at the end of a turn; the selector need not report it until then."""
        channel.mute()
        self.waiting.append(channel)

    def begin_turn(self) -> None:
        """Note when the processor's other work begins."""
        if self.waiting:
            self._turn_began = time.perf_counter()

    def end_turn(self) -> None:
        """Do steps for as long as the other work of the turn took, at least one."""
        if not self.waiting:
            return
        now = time.perf_counter()
        began, self._turn_began = self._turn_began, 0.0
        until = now + (now - began if began else 0)
        while self.waiting:
            channel = self.waiting.popleft()
            if channel.state is self._state:
                channel.interest = READ
                self._step(channel)
            if time.perf_counter() >= until:
                return
