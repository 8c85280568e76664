"""Throttling by client quotas: the connection of a client above its limit is paused (KIP-219).

As in Kafka since 2.0, for all versions of the requests: the response is sent at once, with the throttle time,
and the connection is not read for that time. Clients of Produce 6, Fetch 8 and the like know that and wait as
long by themselves; the next request of older clients waits in the socket. A request without a response
(acks=0) pauses its connection too.

A produce request counts by its size (CopyBatches also by what it copies), a fetch by the size of its
response. A client that must pause gets an empty response to a fetch, whose bytes do not count, and asks
again; unless the first message alone exceeds what the quota allows in all its windows.

The time of a request (``request_percentage``) is the processor time of the threads that serve it: decoding,
its handler, encoding, and sending, which counts for the next request. Neither what other requests complete
later counts, nor the conversion of messages while they are sent. Exempt are requests of brokers, and those
without a response.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from threading import get_ident
from typing import Any

from minikafka.base.errors import BrokerError, ErrorCode
from minikafka.base.values import fast_value
from minikafka.registry.users import QuotaType
from minikafka.server.context import RequestContext
from minikafka.server.core.broker import Broker
from minikafka.server.quotas.client_quotas import UNLIMITED
from minikafka.wire.api import NEVER, ApiKey
from minikafka.wire.frame_parts import LazyPart, Part, total_size

_FLOWS = {
    ApiKey.PRODUCE: QuotaType.PRODUCE,
    ApiKey.COPY_BATCHES: QuotaType.PRODUCE,
    ApiKey.FETCH: QuotaType.FETCH,
}
_OF_BROKERS = {
    ApiKey.LEADER_AND_ISR: 0,
    ApiKey.STOP_REPLICA: 0,
    ApiKey.UPDATE_METADATA: 0,
    ApiKey.CONTROLLED_SHUTDOWN: 0,
    ApiKey.WRITE_TXN_MARKERS: 0,
    ApiKey.ADD_PARTITIONS_TO_TXN: 4,
}
"""The APIs of brokers, and the first version of each that brokers send."""
_STRICT_SINCE = {ApiKey.CREATE_TOPICS: 6, ApiKey.DELETE_TOPICS: 5, ApiKey.CREATE_PARTITIONS: 3}
"""The first version whose clients know THROTTLING_QUOTA_EXCEEDED. Other requests are carried out first."""
_NS_PER_PERCENT_SECOND = 10_000_000
"""Nanoseconds in a hundredth of a second: a client that uses one thread all the time has 100 a second."""


class RequestMeter:
    """The meter of one request for the quotas of its client. See ``net.interfaces.RequestMeter``.

    Used with ``with`` by each thread that works for the request.
    """

    __slots__ = ("_began", "_broker", "_used_ns", "client_id", "exempt", "pause_ms", "request_bytes", "user")

    def __init__(self, broker: Broker, user: str, request_bytes: int) -> None:
        self._broker = broker
        self._began: dict[int, tuple[int, int]] = {}
        """Thread -> when it began, and how many steps within steps it is in."""
        self._used_ns = 0
        self.user = user
        self.client_id = ""
        self.request_bytes = request_bytes
        self.exempt = True
        """True if the time of the request does not count."""
        self.pause_ms = 0
        """The pause for the changes of partitions that were counted."""

    def __enter__(self) -> RequestMeter:
        ident = get_ident()
        began_ns, depth = self._began.get(ident, (0, 0))
        self._began[ident] = (began_ns if depth else time.thread_time_ns(), depth + 1)
        return self

    def __exit__(self, *_: object) -> None:
        ident = get_ident()
        began_ns, depth = self._began.pop(ident)
        if depth > 1:
            self._began[ident] = (began_ns, depth - 1)
        else:
            self._used_ns += time.thread_time_ns() - began_ns

    def timed(self, steps: Iterator[int]) -> Iterator[int]:
        """Return ``steps``, the time of each of which counts."""
        while True:
            with self:
                need_bytes = next(steps, None)
            if need_bytes is None:
                return
            yield need_bytes

    def sent(self, nanoseconds: int) -> None:
        """Count the time that it took to send the response."""
        if not self.exempt:
            quotas, now_ms = self._broker.quotas, self._broker.clock.monotonic_ms()
            percent_s = nanoseconds / _NS_PER_PERCENT_SECOND
            quotas.record(self.user, self.client_id, QuotaType.REQUEST, percent_s, now_ms)

    def record_time(self) -> int:
        """Count the time of the request until now; return the pause for its connection in milliseconds."""
        if self.exempt:
            return 0
        used_ns, running = self._used_ns, self._began.get(get_ident())
        if running is not None:
            used_ns += time.thread_time_ns() - running[0]
        return self.record(QuotaType.REQUEST, used_ns / _NS_PER_PERCENT_SECOND)

    def record(self, quota: QuotaType, count: float) -> int:
        """Count for a quota of the client; return the pause for its connection in milliseconds."""
        return pause_of(self._broker, self.user, self.client_id, quota, count)

    def record_mutations(self, count: int, *, strict: bool) -> bool:
        """Count partitions that are created or deleted; return False if they may not be at the moment."""
        now_ms, quotas = self._broker.clock.monotonic_ms(), self._broker.quotas
        pause_ms, allowed = quotas.record_mutations(self.user, self.client_id, count, now_ms, strict=strict)
        if pause_ms:
            self._broker.metrics.count_throttled(QuotaType.CONTROLLER_MUTATION.value)
        self.pause_ms = max(self.pause_ms, pause_ms)
        return allowed

    @property
    def window_bytes(self) -> int:
        """See ``ClientQuotaManager.window_bytes``."""
        return self._broker.quotas.window_bytes(self.user, self.client_id)


@fast_value
class MeteredContext(RequestContext):
    """A request that counts for quotas of its client."""

    meter: RequestMeter
    flow: QuotaType | None
    """The quota of bytes for which it counts."""

    @property
    def replies_unchanged(self) -> bool:
        return self.meter.exempt

    @property
    def window_bytes(self) -> int:
        return self.meter.window_bytes if self.flow is QuotaType.FETCH else UNLIMITED

    def record_mutations(self, count: int) -> None:
        strict = self.version >= _STRICT_SINCE.get(self.api.key, self.version + 1)
        if not self.meter.record_mutations(count, strict=strict):
            raise BrokerError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "the throttling quota has been exceeded")

    def record_copied(self, count: int) -> None:
        self.meter.request_bytes += count

    def reply(self, response: Any) -> None:
        self._reply(response, None)

    def reply_to_fetch(self, response: Any, withheld: Any) -> bool:
        return self._reply(response, withheld)

    def _reply(self, response: Any, withheld: Any) -> bool:
        meter, parts = self.meter, self.encoded(response)
        pause_ms = meter.record_time()
        # As in Kafka, creations that Metadata starts count, but do not pause the client.
        if self.api.key in _STRICT_SINCE:
            pause_ms = max(pause_ms, meter.pause_ms)
        if self.flow is not None:
            size = meter.request_bytes if self.flow is QuotaType.PRODUCE else total_size(parts)
            pause_ms = max(pause_ms, meter.record(self.flow, size))
        is_withheld = pause_ms > 0 and withheld is not None and total_size(parts) <= self.window_bytes
        if is_withheld:
            if self.flow is not None:
                meter.record(self.flow, -total_size(parts))
            _close(parts)
            response = withheld
        if pause_ms and hasattr(response, "throttle_time_ms"):
            parts = self.encoded(replace(response, throttle_time_ms=pause_ms))
        self.exchange.respond(parts, pause_ms)
        return not is_withheld

    def no_reply(self) -> None:
        meter = self.meter
        self.exchange.respond([], 0 if self.flow is None else meter.record(self.flow, meter.request_bytes))


def _close(parts: Iterable[Part]) -> None:
    for part in parts:
        if isinstance(part, LazyPart):
            part.close()


def metered(broker: Broker, context: RequestContext, request: Any, meter: RequestMeter) -> RequestContext:
    """Return ``context``, or a context that counts the request for the quotas that limit some client.

    Requests of brokers are not counted.
    """
    key, limited = context.api.key, broker.quotas.limited
    is_of_broker = context.version >= _OF_BROKERS.get(key, NEVER) or (
        key is ApiKey.FETCH and request.follower_id >= 0
    )
    if is_of_broker and broker.access_control.may_act_as_broker(context.exchange):
        return context
    meter.client_id = context.header.client_id or ""
    if QuotaType.REQUEST in limited:
        meter.exempt = False
        context.exchange.meter = meter
    flow = _FLOWS.get(key)
    return MeteredContext(
        context.header, context.api, context.exchange, meter=meter, flow=flow if flow in limited else None
    )


def pause_of(broker: Broker, user: str, client_id: str, quota: QuotaType, count: float) -> int:
    """Count for a quota of a client; return the pause for its connection in milliseconds.

    A negative ``count`` takes back what the same request has added.
    """
    pause_ms = broker.quotas.record(user, client_id, quota, count, broker.clock.monotonic_ms())
    if pause_ms and count >= 0:
        broker.metrics.count_throttled(quota.value)
    return pause_ms
