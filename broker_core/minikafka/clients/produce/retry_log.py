"""The warnings of a producer that retries: a delivery may take two minutes, and a user wants to know why.

The first warning is logged when batches have failed for ``WARN_AFTER_MS``, and more every
``WARN_INTERVAL_MS`` until all of them are acknowledged or have failed for good. One line covers all
partitions that retry at that time. Kafka's producer warns of each attempt ("Got error produce response …,
retrying"), ten times a second.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from minikafka.base.ids import TopicPartition
from minikafka.base.text import counted, first_of
from minikafka.clients.network.outage_log import OutageLog
from minikafka.clients.produce.batch import ProducerBatch

WARN_AFTER_MS = 2_000
"""The time of failed attempts before the first warning; an election is over sooner."""
WARN_INTERVAL_MS = 10_000
"""The time between two warnings."""
NO_LEADER_KNOWN = "no leader is known"
LISTED_PARTITIONS_MAX = 3
"""The limit of partitions that a warning lists."""


@dataclass(slots=True)
class _RetryingPartition:
    since_ms: int
    reason: str


class RetryLog:
    """The partitions whose batches fail and are retried. Times are monotonic ms."""

    def __init__(self) -> None:
        self._retrying: dict[TopicPartition, _RetryingPartition] = {}
        self._outage = OutageLog(WARN_AFTER_MS, WARN_INTERVAL_MS)

    def __bool__(self) -> bool:
        """Return True if a partition is retrying. May be called without the producer's lock."""
        return bool(self._retrying)

    def record_failure(self, partition: TopicPartition, reason: str, now_ms: int) -> None:
        """Record that an attempt has failed, or could not be made, and will be retried.

        An empty ``reason``, as during a look-up of leaders, keeps the last one.
        """
        known = self._retrying.get(partition)
        if known is None:
            self._retrying[partition] = _RetryingPartition(now_ms, reason)
        elif reason:
            known.reason = reason

    def clear(self, partition: TopicPartition) -> None:
        """Forget a partition whose batch was acknowledged or has failed for good."""
        if self._retrying and self._retrying.pop(partition, None) is not None and not self._retrying:
            self._outage.record_success()

    def mark_reported(self, now_ms: int) -> None:
        """Record that another warning has covered all current failures."""
        if self._retrying:
            self._outage.record_warning(now_ms)

    def due_warning(
        self, waiting: Iterable[ProducerBatch], timeout_ms: int | None, now_ms: int
    ) -> str | None:
        """Return the warning that is due now, or None.

        ``waiting``: all unacknowledged batches, which fail ``timeout_ms`` after their creation (None: later).
        """
        lasting = {tp: it for tp, it in self._retrying.items() if now_ms - it.since_ms >= WARN_AFTER_MS}
        oldest = min(lasting.values(), key=lambda it: it.since_ms, default=None)
        if oldest is None or not self._outage.is_due(oldest.since_ms, now_ms):
            return None
        batches = [batch for batch in waiting if batch.topic_partition in lasting]
        if not batches:
            return None
        still = "still " if self._outage.warned else ""
        self._outage.record_warning(now_ms)
        limit = ""
        if timeout_ms is not None:
            left_ms = min(batch.created_ms for batch in batches) + timeout_ms - now_ms
            limit = f", for {max(1, round(left_ms / 1000))} s more"
        lasts_ms, reason = now_ms - oldest.since_ms, oldest.reason or NO_LEADER_KNOWN
        count = sum(batch.count for batch in batches)
        partitions = first_of(sorted(lasting), LISTED_PARTITIONS_MAX, "partition")
        return (
            f"{still}{counted(count, 'record')} for {partitions} not acknowledged for "
            f"{round(lasts_ms / 1000)} s: {reason}; retrying{limit}"
        )
