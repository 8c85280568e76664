"""What a producer says while it tries again: deliveries may take two minutes, and whoever waits wants to know
what for.

The first warning comes once something has failed for ``FIRST_MS``, others every ``AGAIN_MS`` until all of it
went or was given up. One line is for all partitions that have trouble then. Kafka's producer warns of each
attempt ("Got error produce response …, retrying"), ten times a second.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from minikafka.base.ids import TopicPartition
from minikafka.base.text import counted
from minikafka.clients.produce.batch import Batch

FIRST_MS = 2_000
"""How long attempts fail before it is told: an election is over sooner."""
AGAIN_MS = 10_000
"""Between two warnings."""
NO_LEADER_KNOWN = "no leader is known"
NAMED_MAX = 3
"""Partitions that a warning names."""


@dataclass(slots=True)
class _Trouble:
    since_ms: int
    reason: str


class RetryLog:
    """The partitions whose batches fail and are tried again. Times are monotonic ms."""

    def __init__(self) -> None:
        self._of: dict[TopicPartition, _Trouble] = {}
        self._told_ms: int | None = None
        """When it was told last, of those that there are."""

    def __bool__(self) -> bool:
        """Whether there are any. May be read without the producer's lock."""
        return bool(self._of)

    def failed(self, partition: TopicPartition, reason: str, now_ms: int) -> None:
        """An attempt has failed, or could not be made, and there will be another.

        An empty ``reason``, as while leaders are looked for, leaves the last one.
        """
        known = self._of.get(partition)
        if known is None:
            self._of[partition] = _Trouble(now_ms, reason)
        elif reason:
            known.reason = reason

    def over(self, partition: TopicPartition) -> None:
        """A batch of the partition went, or was given up."""
        if self._of and self._of.pop(partition, None) is not None and not self._of:
            self._told_ms = None

    def told_elsewhere(self, now_ms: int) -> None:
        """Somebody tells of all that fails now, and of how long it lasts."""
        if self._of:
            self._told_ms = now_ms

    def to_tell(self, waiting: Iterable[Batch], timeout_ms: int, now_ms: int) -> str | None:
        """What is to be said now, if anything.

        ``waiting``: all that is not acknowledged, which is given up ``timeout_ms`` after it was made.
        """
        lasting = {one: it for one, it in self._of.items() if now_ms - it.since_ms >= FIRST_MS}
        if not lasting or (self._told_ms is not None and now_ms - self._told_ms < AGAIN_MS):
            return None
        batches = [batch for batch in waiting if batch.topic_partition in lasting]
        if not batches:
            return None
        still = "" if self._told_ms is None else "still "
        self._told_ms = now_ms
        left_ms = min(batch.created_ms for batch in batches) + timeout_ms - now_ms
        oldest = min(lasting.values(), key=lambda it: it.since_ms)
        lasts_ms, reason = now_ms - oldest.since_ms, oldest.reason or NO_LEADER_KNOWN
        count = sum(batch.count for batch in batches)
        return (
            f"{still}{counted(count, 'record')} for {_named(lasting)} not acknowledged for "
            f"{round(lasts_ms / 1000)} s: {reason}; trying again, for {max(1, round(left_ms / 1000))} s more"
        )


def _named(partitions: Iterable[TopicPartition]) -> str:
    names = sorted(partitions)
    shown = ", ".join(map(str, names[:NAMED_MAX]))
    more = len(names) - NAMED_MAX
    return f"{shown} and {counted(more, 'more partition')}" if more > 0 else shown
