"""The exchange of one request over a real socket, for its handler: the processor carries out its calls."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from time import perf_counter_ns
from typing import Any, Protocol

from minikafka.net.channel import Channel
from minikafka.net.interfaces import Exchange, RequestMeter, RequestObserver
from minikafka.net.network_send import MeteredSend, NetworkSend
from minikafka.net.request_times import RequestTimes
from minikafka.security.principals import KafkaPrincipal
from minikafka.wire.frame_parts import Part
from minikafka.wire.framing import encode_frame

logger = logging.getLogger("minikafka.net")


class ResponseSender(Protocol):
    """The processor of a connection. Its thread runs all but ``execute``."""

    def execute(self, action: Callable[[], None]) -> None:
        """Run ``action`` on the processor's thread: at once when called there, otherwise soon."""

    def begin_response(self, channel: Channel, outgoing: NetworkSend, pause_ms: int) -> None:
        """Send the response (perhaps empty) to the request in flight."""

    def begin_close(self, channel: Channel, reason: str, outgoing: NetworkSend, delay_ms: int) -> None:
        """Close a connection after its last response (perhaps empty), which waits."""

    def lift_limits(self, channel: Channel) -> None:
        """Lift the limits of a connection whose client has authenticated."""

    def release_parked(self, channel: Channel, exchange: SocketExchange) -> None:
        """Stop counting a request in flight that was parked."""


class SocketExchange(RequestTimes):
    """Implements ``interfaces.Exchange``. It is its own ``times``, which saves an object for each request."""

    __slots__ = ("_answered", "_channel", "_processor", "in_pool", "keeps_memory", "meter", "parked")

    def __init__(self, processor: ResponseSender, channel: Channel, request_bytes: int = 0) -> None:
        super().__init__(request_bytes)
        self._processor = processor
        self._channel = channel
        self._answered = False
        self.meter: RequestMeter | None = None
        self.parked = False
        self.in_pool = False
        """True once the request's bytes were counted until the response: the pool, or a job, works for it."""
        self.keeps_memory = False
        """True when the request's bytes are counted until the response."""

    @property
    def times(self) -> RequestTimes:
        return self

    @property
    def client_host(self) -> str:
        return self._channel.host

    @property
    def listener(self) -> str:
        return self._channel.endpoint.listener

    @property
    def memory(self) -> dict[str, Any]:
        return self._channel.memory

    @property
    def principal(self) -> KafkaPrincipal:
        return self._channel.principal

    @principal.setter
    def principal(self, principal: KafkaPrincipal) -> None:
        self._channel.principal = principal

    @property
    def peer_certificate(self) -> bytes | None:
        tls = self._channel.tls
        return None if tls is None else tls.peer_certificate()

    @property
    def is_abandoned(self) -> bool:
        return self._channel.peer_has_closed()

    def authenticated(self) -> None:
        self._processor.execute(lambda: self._processor.lift_limits(self._channel))

    def park(self) -> None:
        self.parked = True
        if not self._answered:
            self._processor.execute(lambda: self._processor.release_parked(self._channel, self))

    def keep_counted(self, kept: bool = True) -> None:
        self.keeps_memory = kept
        self.in_pool = self.in_pool or kept

    def respond(self, parts: Sequence[Part], pause_ms: int = 0) -> None:
        if self._answered:
            raise RuntimeError(f"a request of {self._channel.name} was answered twice")
        # Encoded here, so that the caller gets the error for parts that cannot be sent.
        frame = encode_frame(parts) if parts else []
        outgoing = NetworkSend(frame) if self.meter is None else MeteredSend(frame, self.meter)
        self._answered = True
        self.response_complete_ns = perf_counter_ns()
        self._processor.execute(lambda: self._processor.begin_response(self._channel, outgoing, pause_ms))

    def close(self, reason: str, response: Sequence[Part] = (), delay_ms: int = 0) -> None:
        outgoing = NetworkSend(encode_frame(response) if response else [])
        self._answered = True
        self.response_complete_ns = perf_counter_ns()
        self._processor.execute(
            lambda: self._processor.begin_close(self._channel, reason, outgoing, delay_ms)
        )


class UncountedExchange(SocketExchange):
    """An exchange whose error codes nobody counts."""

    __slots__ = ()
    counts_errors = False


def observe(observer: RequestObserver, exchange: Exchange) -> None:
    """Report a request whose response was sent just now. An error of the observer is logged."""
    try:
        observer.completed(exchange, perf_counter_ns())
    except Exception:
        logger.exception("unexpected error while observing a request")
