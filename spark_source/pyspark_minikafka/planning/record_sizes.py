"""The mean sizes of the records that a query reads, from rare looks at the logs. Pure.

The process that plans a stream's batches never sees its records: those are read by executors, which share
nothing with it. So it looks at a log itself: once at each topic, again after LOOK_INTERVAL_MS, and at one
topic for each batch at most, that of the largest range first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pyspark_minikafka.planning.ranges import OffsetRange

LOOK_INTERVAL_MS = 300_000
_COMPRESSION = 4
"""The assumed bytes of a compressed byte."""


@dataclass(frozen=True, slots=True)
class RecordSize:
    """The mean bytes of an offset: stored, and in memory."""

    stored: float
    decoded: float

    @staticmethod
    def of_sample(stored: float, *, is_compressed: bool) -> RecordSize:
        """Return the size by a look at a log."""
        return RecordSize(stored, stored * (_COMPRESSION if is_compressed else 1))


ASSUMED = RecordSize(1_000, 1_000)
"""Of records that nobody has looked at."""


class RecordSizes:
    """The sizes by topic. ``look`` looks at the log of a range; None: it has found nothing."""

    def __init__(self, look: Callable[[OffsetRange], RecordSize | None]) -> None:
        self._look = look
        self._sizes: dict[str, RecordSize] = {}
        self._looked_ms: dict[str, int] = {}

    def of(self, ranges: Sequence[OffsetRange], now_ms: int) -> Mapping[str, RecordSize]:
        """Return the sizes of the topics of ``ranges``, as far as they are known."""
        stale = [
            part
            for part in ranges
            if part.size
            and now_ms - self._looked_ms.get(part.topic_partition.topic, -LOOK_INTERVAL_MS)
            >= LOOK_INTERVAL_MS
        ]
        if stale:
            largest = max(stale, key=lambda part: part.size)
            topic = largest.topic_partition.topic
            self._looked_ms[topic] = now_ms
            found = self._look(largest)
            if found is not None:
                self._sizes[topic] = found
        return self._sizes
