"""A bound of the memory that large requests hold together while they are decoded and served.

A request that names topics, groups or resources becomes many times its bytes: objects for each name, its
result and its row of the response. Such requests are served in steps, in turn with others, and would all hold
that at a time. So they are admitted in the order of arrival, and wait until then as the bytes that were
received, which the network counts.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from minikafka.net.interfaces import Exchange, RequestMeter
from minikafka.net.request_times import RequestTimes
from minikafka.security.principals import KafkaPrincipal
from minikafka.wire.frame_parts import Part


class RequestAdmission:
    """Admits requests while they need at most ``most_bytes`` together, or one that needs more alone.

    Thread-safe.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._lock = threading.Lock()
        self._waiting: deque[tuple[_AdmittedExchange, Callable[[Exchange], None]]] = deque()
        self._used_bytes = 0
        self._admitted = 0
        self._beginning = False

    def admit(self, exchange: Exchange, need_bytes: int, begin: Callable[[Exchange], None]) -> None:
        """Call ``begin``, which must not block, when the request is admitted: now, or on the thread that ends
        another request.

        The exchange that it is given ends the admission when it is answered or closed. See also ``leave``.
        """
        with self._lock:
            self._waiting.append((_AdmittedExchange(exchange, self, need_bytes), begin))
        self._begin_waiting()

    def release(self, need_bytes: int) -> None:
        """Take back what an admitted request needed."""
        with self._lock:
            self._used_bytes -= need_bytes
            self._admitted -= 1
        self._begin_waiting()

    def _begin_waiting(self) -> None:
        while True:
            with self._lock:
                # One thread at a time, and not from within ``begin``, which may answer at once.
                if self._beginning or not self._waiting:
                    return
                exchange, begin = self._waiting[0]
                if self._admitted and self._used_bytes + exchange.need_bytes > self._most_bytes:
                    return
                self._waiting.popleft()
                self._used_bytes += exchange.need_bytes
                self._admitted += 1
                self._beginning = True
            try:
                begin(exchange)
            finally:
                with self._lock:
                    self._beginning = False


class _AdmittedExchange:
    """The exchange of an admitted request."""

    __slots__ = ("_admission", "_exchange", "_left", "_lock", "need_bytes")

    def __init__(self, exchange: Exchange, admission: RequestAdmission, need_bytes: int) -> None:
        self._exchange = exchange
        self._admission = admission
        self._lock = threading.Lock()
        self._left = False
        self.need_bytes = need_bytes

    @property
    def client_host(self) -> str:
        return self._exchange.client_host

    @property
    def listener(self) -> str:
        return self._exchange.listener

    @property
    def memory(self) -> dict[str, Any]:
        return self._exchange.memory

    @property
    def principal(self) -> KafkaPrincipal:
        return self._exchange.principal

    @principal.setter
    def principal(self, principal: KafkaPrincipal) -> None:
        self._exchange.principal = principal

    @property
    def times(self) -> RequestTimes:
        return self._exchange.times

    @property
    def meter(self) -> RequestMeter | None:
        return self._exchange.meter

    @meter.setter
    def meter(self, meter: RequestMeter | None) -> None:
        self._exchange.meter = meter

    @property
    def peer_certificate(self) -> bytes | None:
        return self._exchange.peer_certificate

    @property
    def is_abandoned(self) -> bool:
        return self._exchange.is_abandoned

    def authenticated(self) -> None:
        self._exchange.authenticated()

    def park(self) -> None:
        self._exchange.park()

    def keep_counted(self, kept: bool = True) -> None:
        self._exchange.keep_counted(kept)

    def respond(self, parts: Sequence[Part], pause_ms: int = 0) -> None:
        try:
            self._exchange.respond(parts, pause_ms)
        finally:
            self.leave()

    def close(self, reason: str, response: Sequence[Part] = (), delay_ms: int = 0) -> None:
        try:
            self._exchange.close(reason, response, delay_ms)
        finally:
            self.leave()

    def leave(self) -> None:
        """End the admission; a second call does nothing."""
        with self._lock:
            left, self._left = self._left, True
        if not left:
            self._admission.release(self.need_bytes)


def leave(exchange: Exchange) -> None:
    """Let others be admitted while this request waits, for as long as its client allows."""
    if isinstance(exchange, _AdmittedExchange):
        exchange.leave()
