"""What was fetched for one consumer and not given out yet, in the order in which it came.

Sets go out whole (``poll``), or row by row: then the first set is decoded once, and what is left of it waits
here. The position of its partition follows what was given out.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator
from typing import TYPE_CHECKING

from minikafka.base.errors import BrokerError
from minikafka.base.ids import TopicPartition
from minikafka.clients.group.fetched_records import ConsumerRecord, Fetched
from minikafka.clients.group.subscription_state import SubscriptionState

if TYPE_CHECKING:
    import pyarrow as pa

    from minikafka.clients.group.rows import Rows


class FetchBuffer:
    """Not thread-safe. ``positions`` are told of all that goes out."""

    def __init__(self, positions: SubscriptionState) -> None:
        self._positions = positions
        self._sets: deque[Fetched] = deque()
        self._rows: Rows | None = None
        """Of the first set, when it was begun."""

    def __bool__(self) -> bool:
        return bool(self._sets)

    def add(self, sets: Iterable[Fetched]) -> None:
        """These have come."""
        self._sets.extend(sets)

    def drop(self, partitions: Collection[TopicPartition] | None = None) -> None:
        """Forget what is here of ``partitions``, or all."""
        gone = frozenset(partitions) if partitions is not None else None
        if self._rows is not None and (gone is None or self._rows.fetched.topic_partition in gone):
            self._rows = None
        if gone is None:
            self._sets.clear()
        else:
            self._sets = deque(one for one in self._sets if one.topic_partition not in gone)

    def sets(self) -> tuple[Fetched, ...]:
        """All that is here, as it came; of a set that was begun what is left of it."""
        found = []
        while self._sets:
            fetched = self._sets.popleft()
            if self._rows is not None:
                fetched = fetched.starting_at(self._rows.position)
                self._rows = None
            self._positions.mark_delivered(fetched.topic_partition, fetched.next_offset)
            found.append(fetched)
        return tuple(found)

    def batches(self, max_rows: int | None, *, headers: bool) -> list[pa.RecordBatch]:
        """The next rows in columns, of one partition each; all that is here, or at most so many.

        On damage what lies before it comes first, then CORRUPT_MESSAGE.
        """
        found: list[pa.RecordBatch] = []
        left = max_rows
        while (left is None or left > 0) and (rows := self._next(headers, bool(found))) is not None:
            batch = rows.batch(rows.available() if left is None else left, headers=headers)
            self._update_position(rows)
            found.append(batch)
            left = None if left is None else left - batch.num_rows
        return found

    def records(self, max_rows: int) -> list[ConsumerRecord]:
        """The next rows as objects, at most so many. Raises as ``batches``."""
        found: list[ConsumerRecord] = []
        while len(found) < max_rows and (rows := self._next(True, bool(found))) is not None:
            some = rows.records(max_rows - len(found))
            rows.skip(len(some))
            self._update_position(rows)
            found += some
        return found

    def one_by_one(self, max_rows: int) -> Iterator[ConsumerRecord]:
        """The next rows of one set as objects, each given out when it is asked for; fewer where they were
        dropped meanwhile.
        """
        rows = self._next(True, found_some=False)
        if rows is None:
            return
        records = rows.records(max_rows)
        for record, position in zip(records, rows.positions(len(records)), strict=True):
            if self._rows is not rows:
                return
            self._positions.done()
            rows.skip_to(position)
            self._update_position(rows)
            yield record

    def _next(self, headers: bool, found_some: bool) -> Rows | None:
        """The set to go on with; None when all is given out, or damage waits to be told the next time."""
        while self._sets:
            rows = self._rows
            if rows is None or (headers and not rows.headers):
                rows = self._rows = self._begin(headers)
            try:
                if rows.available():
                    return rows
            except BrokerError:
                # Where it is damaged it is looked at again, unless the caller seeks to behind that.
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
