"""Answers that wait for a quota: the way back of a request whose client is measured.

As in 0.10.1 the answer itself is delayed, and its connection is not read meanwhile; a request without an
answer (acks=0) delays what comes after it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from minikafka.net.server import Exchange
from minikafka.server.broker import Broker
from minikafka.server.context import RequestContext
from minikafka.server.quotas import Flow
from minikafka.wire.framing import response_header
from minikafka.wire.keys import ApiKey
from minikafka.wire.parts import Part, total_size

_FLOWS = {ApiKey.PRODUCE: Flow.PRODUCE, ApiKey.FETCH: Flow.FETCH}


class _Delayed:
    """An answer whose time has not come."""

    def __init__(self, exchange: Exchange, parts: Sequence[Part]) -> None:
        self._exchange = exchange
        self._parts = parts

    def satisfied(self) -> bool:
        return False

    def complete(self) -> None:
        self._exchange.respond(self._parts)

    def abandon(self, reason: str) -> None:
        self._exchange.close(reason)


@dataclass(frozen=True, slots=True)
class MeteredContext(RequestContext):
    """A request that counts for a quota: a produce request by its own size, a fetch by its response's."""

    broker: Broker
    flow: Flow
    request_bytes: int

    def reply(self, response: Any) -> None:
        parts = self._encode(response)
        delay_ms = self._delay_ms(total_size(parts))
        if delay_ms:
            parts = self._encode(replace(response, throttle_time_ms=delay_ms))
        respond(self.broker, self.exchange, parts, delay_ms)

    def no_reply(self) -> None:
        respond(self.broker, self.exchange, [], self._delay_ms(0))

    def _encode(self, response: Any) -> list[Part]:
        return [
            response_header(self.header.correlation_id),
            *self.api.encode_response(self.version, response),
        ]

    def _delay_ms(self, response_bytes: int) -> int:
        count = self.request_bytes if self.flow is Flow.PRODUCE else response_bytes
        return delay_of(self.broker, self.header.client_id, self.flow, count)


def delay_of(broker: Broker, client_id: str | None, flow: Flow, count: int) -> int:
    """By how many milliseconds the answer about ``count`` bytes of a client is to be delayed."""
    return broker.quotas.record(client_id or "", flow, count, broker.clock.monotonic_ms())


def respond(broker: Broker, exchange: Exchange, parts: Sequence[Part], delay_ms: int) -> None:
    """Send ``parts`` after ``delay_ms``, or when the broker stops. Outside of the core's lock."""
    if not delay_ms:
        exchange.respond(parts)
        return
    deadline_ms = broker.clock.monotonic_ms() + delay_ms
    broker.run(lambda: broker.wait(_Delayed(exchange, parts), [], deadline_ms))


def metered(broker: Broker, context: RequestContext, request: Any, request_bytes: int) -> RequestContext:
    """``context``, or where its client's bytes are to be counted, one that counts them. Fetches of replicas
    are not counted.
    """
    flow = _FLOWS.get(context.api.key)
    if flow is None or not broker.quotas.limited or (flow is Flow.FETCH and request.replica_id >= 0):
        return context
    return MeteredContext(
        context.header, context.api, context.exchange, broker=broker, flow=flow, request_bytes=request_bytes
    )
