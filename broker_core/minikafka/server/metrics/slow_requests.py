"""The log of slow requests: one line for each, with its times, as Kafka's request log has them.

A request is slow if the broker has taken ``slow.request.ms`` or longer for it. What the client itself asked
to wait for does not count: the remote time of ``WAITING``, and the pause of a quota.
"""

from __future__ import annotations

import logging

from minikafka.base.text import shorten
from minikafka.net.interfaces import Exchange, RequestObserver
from minikafka.server.metrics.broker_metrics import api_label
from minikafka.wire.api import ApiKey

WAITING = frozenset({ApiKey.FETCH, ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP})
"""Requests that wait by their nature: for new data, or for the other members of a group."""
NEVER_NS = 1 << 62
_MS = 1_000_000

_log = logging.getLogger(__name__)


class SlowRequests:
    """Logs slow requests, and passes all on to ``metrics``. See ``net.interfaces.RequestObserver``.

    metrics: None if nobody reads them.
    """

    def __init__(self, metrics: RequestObserver | None, slow_ms: int) -> None:
        self._metrics = metrics
        self.counts_errors = metrics is not None and metrics.counts_errors
        self._slow_ns = 0
        self.set_limit(slow_ms)

    def set_limit(self, slow_ms: int) -> None:
        """Replace the time from which a request is slow; negative: none is."""
        self._slow_ns = NEVER_NS if slow_ms < 0 else slow_ms * _MS

    def completed(self, exchange: Exchange, sent_ns: int) -> None:
        """Count a request whose response was sent, and log it if it was slow."""
        if self._metrics is not None:
            self._metrics.completed(exchange, sent_ns)
        times = exchange.times
        # Most requests end here.
        if sent_ns - times.start_ns < self._slow_ns or times.header is None:
            return
        waited_ns = times.remote_ns if times.header.api_key in WAITING else 0
        if sent_ns - times.start_ns - waited_ns >= self._slow_ns:
            _log_slow(exchange, sent_ns)


def _log_slow(exchange: Exchange, sent_ns: int) -> None:
    times = exchange.times
    header = times.header
    assert header is not None
    _log.warning(
        "slow request: api=%s version=%d correlation_id=%d client_id=%s principal=%s listener=%s host=%s "
        "total_ms=%s queue_ms=%s local_ms=%s remote_ms=%s throttle_ms=%s response_queue_ms=%s send_ms=%s "
        "request_bytes=%d response_bytes=%d",
        api_label(header.api_key, from_follower=times.from_follower),
        header.api_version,
        header.correlation_id,
        shorten(header.client_id or ""),
        exchange.principal,
        exchange.listener,
        exchange.client_host,
        _ms(sent_ns - times.start_ns + times.throttle_ms * _MS),
        _ms(times.queue_ns),
        _ms(times.local_ns),
        _ms(times.remote_ns),
        times.throttle_ms,
        _ms(times.response_queue_ns),
        _ms(sent_ns - times.response_dequeue_ns),
        times.request_bytes,
        times.response_bytes,
    )


def _ms(nanoseconds: int) -> float:
    return round(nanoseconds / _MS, 1)
