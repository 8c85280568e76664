"""Throttling by client quotas: the connection of a client above its limit is paused.

As in Kafka since 2.0, for all versions of the requests: the response is sent at once, with the throttle time,
and the connection is not read for that time. Clients of Produce 6 and Fetch 8 know that and wait as long by
themselves; the next request of older clients waits in the socket. A request without a response (acks=0)
pauses its connection too.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from minikafka.base.values import fast_value
from minikafka.security.principals import KafkaPrincipal
from minikafka.server.context import RequestContext
from minikafka.server.core.broker import Broker
from minikafka.server.quotas.client_quotas import QuotaType
from minikafka.wire.api import ApiKey
from minikafka.wire.frame_parts import total_size

_FLOWS = {ApiKey.PRODUCE: QuotaType.PRODUCE, ApiKey.FETCH: QuotaType.FETCH}


@fast_value
class MeteredContext(RequestContext):
    """A request that counts for a quota: a produce request by its size, a fetch by its response's size."""

    broker: Broker
    flow: QuotaType
    request_bytes: int

    def reply(self, response: Any) -> None:
        parts = self.encoded(response)
        pause_ms = self._pause_ms(total_size(parts))
        if pause_ms:
            parts = self.encoded(replace(response, throttle_time_ms=pause_ms))
        self.exchange.respond(parts, pause_ms)

    def no_reply(self) -> None:
        self.exchange.respond([], self._pause_ms(0))

    def _pause_ms(self, response_bytes: int) -> int:
        count = self.request_bytes if self.flow is QuotaType.PRODUCE else response_bytes
        return pause_of(self.broker, self.principal, self.header.client_id, self.flow, count)


def pause_of(
    broker: Broker, principal: KafkaPrincipal, client_id: str | None, flow: QuotaType, count: int
) -> int:
    """Record ``count`` bytes of a client; return the pause for its connection in milliseconds."""
    now_ms = broker.clock.monotonic_ms()
    return broker.quotas.record(principal.name, client_id or "", flow, count, now_ms)


def metered(broker: Broker, context: RequestContext, request: Any, request_bytes: int) -> RequestContext:
    """Return ``context``, or a context that counts the client's bytes if a quota applies to them.

    Fetches of replicas are not counted.
    """
    flow = _FLOWS.get(context.api.key)
    if flow is None or not broker.quotas.limited or (flow is QuotaType.FETCH and request.replica_id >= 0):
        return context
    return MeteredContext(
        context.header, context.api, context.exchange, broker=broker, flow=flow, request_bytes=request_bytes
    )
