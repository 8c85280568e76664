"""The buffer of fetched sets that one consumer has not returned yet, in the order of arrival.

``poll`` returns whole sets. Other polls return rows: then the first set is decoded once, and its remaining
rows stay here. The position of the partition follows the returned rows.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator
from typing import TYPE_CHECKING

from minikafka.base.errors import BrokerError
from minikafka.base.ids import TopicPartition
from minikafka.clients.group.fetched_records import ConsumerRecord, Fetched
from minikafka.clients.group.subscription_state import SubscriptionState
from minikafka.clients.metrics.consumer import FetchMetrics

if TYPE_CHECKING:
    import pyarrow as pa

    from minikafka.clients.group.rows import Rows


class FetchBuffer:
    """The buffer of one consumer. Not thread-safe. Updates ``positions`` for all returned records."""

    def __init__(self, positions: SubscriptionState, metrics: FetchMetrics) -> None:
        self._positions = positions
        self._metrics = metrics
        self._sets: deque[Fetched] = deque()
        self._rows: Rows | None = None
        """The rows of the first set, once it is partly returned."""

    def __bool__(self) -> bool:
        return bool(self._sets)

    def add(self, sets: Iterable[Fetched]) -> None:
        """Append fetched sets."""
        self._sets.extend(sets)

    def drop(self, partitions: Collection[TopicPartition] | None = None) -> None:
        """Drop the sets of ``partitions``, or all (None)."""
        dropped = frozenset(partitions) if partitions is not None else None
        if self._rows is not None and (dropped is None or self._rows.fetched.topic_partition in dropped):
            self._rows = None
        if dropped is None:
            self._sets.clear()
        else:
            self._sets = deque(fetched for fetched in self._sets if fetched.topic_partition not in dropped)

    def sets(self) -> tuple[Fetched, ...]:
        """Return all sets; of a partly returned set, the rest."""
        found = []
        while self._sets:
            fetched = self._sets.popleft()
            if self._rows is not None:
                fetched = fetched.starting_at(self._rows.position)
                self._rows = None
            tp, position = fetched.topic_partition, fetched.next_offset
            self._positions.mark_delivered(tp, position)
            self._metrics.record_returned(tp, fetched.record_count, position)
            self._metrics.record_bytes(tp.topic, len(fetched.data))
            found.append(fetched)
        return tuple(found)

    def batches(self, max_rows: int | None, *, headers: bool) -> list[pa.RecordBatch]:
        """Return the next rows as batches of one partition each: all, or at most ``max_rows``.

        Rows before a damaged one are returned first; the next call raises CORRUPT_MESSAGE.
        """
        found: list[pa.RecordBatch] = []
        left = max_rows
        while (left is None or left > 0) and (rows := self._next(headers, bool(found))) is not None:
            batch = rows.batch(rows.available() if left is None else left, headers=headers)
            self._record_returned(rows, batch.num_rows)
            self._update_position(rows)
            found.append(batch)
            left = None if left is None else left - batch.num_rows
        return found

    def records(self, max_rows: int) -> list[ConsumerRecord]:
        """Return the next rows as objects, at most ``max_rows``. Raises as ``batches``."""
        found: list[ConsumerRecord] = []
        while len(found) < max_rows and (rows := self._next(True, bool(found))) is not None:
            some = rows.records(max_rows - len(found))
            rows.skip(len(some))
            self._record_returned(rows, len(some))
            self._update_position(rows)
            found += some
        return found

    def one_by_one(self, max_rows: int) -> Iterator[ConsumerRecord]:
        """Yield the next rows of one set as objects. Each counts as returned when it is yielded; ends early
        if the set is dropped meanwhile.
        """
        rows = self._next(True, found_some=False)
        if rows is None:
            return
        records = rows.records(max_rows)
        returned = 0
        try:
            for record, position in zip(records, rows.positions(len(records)), strict=True):
                if self._rows is not rows:
                    return
                self._positions.done()
                rows.skip_to(position)
                self._update_position(rows)
                returned += 1
                yield record
        finally:
            self._record_returned(rows, returned)

    def _next(self, headers: bool, found_some: bool) -> Rows | None:
        """Return the next set with rows; None at the end, or before damage if ``found_some``."""
        while self._sets:
            rows = self._rows
            if rows is None or (headers and not rows.headers):
                rows = self._rows = self._begin(headers)
            try:
                if rows.available():
                    return rows
            except BrokerError:
                # The damage is raised again at the next call, unless the caller seeks past it.
                self._sets[0], self._rows = rows.fetched.starting_at(rows.position), None
                if found_some:
                    return None
                raise
            self._update_position(rows)
        return None

    def _begin(self, headers: bool) -> Rows:
        from minikafka.clients.group.rows import Rows

        if self._rows is not None:
            self._sets[0] = self._sets[0].starting_at(self._rows.position)
        return Rows(self._sets[0], headers=headers)

    def _update_position(self, rows: Rows) -> None:
        self._positions.mark_delivered(rows.fetched.topic_partition, rows.position)
        if rows.done:
            self._sets.popleft()
            self._rows = None
            self._metrics.record_bytes(rows.fetched.topic_partition.topic, len(rows.fetched.data))

    def _record_returned(self, rows: Rows, count: int) -> None:
        self._metrics.record_returned(rows.fetched.topic_partition, count, rows.position)
