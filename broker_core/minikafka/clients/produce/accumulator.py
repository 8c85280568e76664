"""Records that wait to be sent: one queue of batches per partition, within a memory limit.

Invariants
    A partition has at most one batch in flight; the others wait behind it in the order of their ``append``.
    A batch that is retried goes back to the front. So the order of a partition never changes. Batches that
    may go to any partition move to another one together, and in their order.
    ``used_bytes`` counts all batches from ``append`` to ``deallocate``, in flight or waiting.

No I/O and no clock: the time is an argument, and the producer calls its methods under its lock.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Iterator
from enum import Enum
from itertools import takewhile

from minikafka.base.files import Buffer
from minikafka.base.ids import TopicPartition
from minikafka.clients.produce.batch import (
    BatchSource,
    CopiedBatch,
    EncodedBatch,
    ProducerBatch,
    RecordListBatch,
    RetryGroup,
)
from minikafka.clients.produce.config import BatchingConfig
from minikafka.clients.produce.send_future import ProduceRequestResult, SendFuture
from minikafka.records.format.message_set import Record


class AppendResult(Enum):
    """The effect of a new record on its partition's batches."""

    APPENDED = "it was added to a batch"
    NEW_BATCH = "it started a batch; the previous one, if any, is closed"
    BATCH_FULL = "its batch is full"


class PartitionQueue:
    """The batches of one partition."""

    __slots__ = ("batches", "in_flight", "topic_partition")

    def __init__(self, topic_partition: TopicPartition) -> None:
        self.topic_partition = topic_partition
        self.batches: deque[ProducerBatch] = deque()
        self.in_flight: ProducerBatch | None = None


class RecordAccumulator:
    """All partitions' queues of one producer."""

    def __init__(self, config: BatchingConfig, condition: threading.Condition) -> None:
        self._config = config
        self.condition = condition
        """Notified of results, and of memory that became free."""
        self._limit = min(config.batch_bytes, config.max_request_bytes)
        self._queues: dict[TopicPartition, PartitionQueue] = {}
        self._flushes: set[object] = set()
        """One for each ``flush`` in progress."""
        self.used_bytes = 0

    def has_room(self, size_bytes: int) -> bool:
        """Return True if ``size_bytes`` more fit. A piece larger than the whole limit is accepted alone."""
        return self.used_bytes == 0 or self.used_bytes + size_bytes <= self._config.buffer_bytes

    def would_create_batch(self, tp: TopicPartition, size_bytes: int) -> bool:
        """Return True if a record of ``size_bytes`` would start a batch, as no open batch has room for it."""
        queue = self._queues.get(tp)
        if queue is None or not queue.batches:
            return True
        last = queue.batches[-1]
        return last.closed or last.size_bytes + size_bytes > self._limit

    def append(
        self, tp: TopicPartition, record: Record, size_bytes: int, now_ms: int
    ) -> tuple[SendFuture, AppendResult]:
        """Queue a record of ``size_bytes`` (``batch.message_bytes``). Return its future and the effect."""
        queue = self._queue(tp)
        last = queue.batches[-1] if queue.batches else None
        change = AppendResult.APPENDED
        if not isinstance(last, RecordListBatch) or self.would_create_batch(tp, size_bytes):
            change = AppendResult.NEW_BATCH
            if last is not None:
                last.closed = True
            last = RecordListBatch(tp, ProduceRequestResult(self.condition), now_ms)
            queue.batches.append(last)
        future = last.append(record, size_bytes)
        self.used_bytes += size_bytes
        if last.size_bytes >= self._limit:
            last.closed = True
            change = AppendResult.BATCH_FULL
        return future, change

    def append_encoded(
        self,
        tp: TopicPartition,
        data: Buffer,
        count: int,
        now_ms: int,
        *,
        sealed: bool = True,
        splits: bool = True,
        group: RetryGroup | None = None,
    ) -> SendFuture:
        """Queue an encoded message set of ``count`` records, after all queued batches."""
        result = ProduceRequestResult(self.condition)
        batch = EncodedBatch(tp, result, now_ms, data, count, sealed=sealed, splits=splits, group=group)
        return self._append(batch)

    def append_copy(self, tp: TopicPartition, source: BatchSource, count: int, now_ms: int) -> SendFuture:
        """Queue a batch of ``count`` records in a log, after all queued batches."""
        return self._append(CopiedBatch(tp, ProduceRequestResult(self.condition), now_ms, source, count))

    def _append(self, batch: EncodedBatch) -> SendFuture:
        queue = self._queue(batch.topic_partition)
        if queue.batches:
            queue.batches[-1].closed = True
        queue.batches.append(batch)
        self.used_bytes += batch.size_bytes
        return batch.futures[0]

    def has_in_flight(self, tp: TopicPartition) -> bool:
        """Return True if a batch of the partition is in flight, so that others wait for its end."""
        queue = self._queues.get(tp)
        return queue is not None and queue.in_flight is not None

    def ready_batches(self, now_ms: int) -> Iterator[ProducerBatch]:
        """Yield the first batch of each partition if it may be sent now: it is full, its linger time has
        passed, others wait behind it, or a flush is in progress.

        Partitions with a batch in flight or in a back-off are skipped.
        """
        for queue in self._queues.values():
            if queue.batches and queue.in_flight is None and self._wait_ms(queue, now_ms) <= 0:
                yield queue.batches[0]

    def next_due_ms(self, now_ms: int) -> int | None:
        """Return the milliseconds until a batch becomes sendable or expires with time alone; None for never.

        Batches that wait for anything else (a leader, a response, a free request slot) are not counted.
        """
        waits: list[int] = []
        for queue in self._queues.values():
            if queue.batches and queue.in_flight is None:
                waits.append(self._wait_ms(queue, now_ms))
                waits.append(queue.batches[0].created_ms + self._config.delivery_timeout_ms - now_ms)
        return min((wait for wait in waits if wait > 0), default=None)

    def expired_batches(self, now_ms: int) -> list[ProducerBatch]:
        """Return the waiting batches whose delivery time-out has passed. They stay until ``deallocate``."""
        oldest = now_ms - self._config.delivery_timeout_ms
        found: list[ProducerBatch] = []
        for queue in self._queues.values():
            if queue.in_flight is None:
                found += takewhile(lambda batch: batch.created_ms <= oldest, queue.batches)
        return found

    def drain(self, batch: ProducerBatch) -> None:
        """Mark ``batch``, the first of its partition, as in flight."""
        # The partition moves to the end of the order, so that a busy one does not starve the others.
        queue = self._queues[batch.topic_partition] = self._queues.pop(batch.topic_partition)
        assert queue.in_flight is None
        assert queue.batches[0] is batch
        batch.closed = True
        queue.in_flight = queue.batches.popleft()

    def reenqueue(self, batch: ProducerBatch, *replacements: ProducerBatch) -> None:
        """Queue the batch in flight to be sent again, as it is or as ``replacements`` in its place. A batch
        that waits stays where it is.
        """
        queue = self._queues[batch.topic_partition]
        if queue.in_flight is not batch:
            assert queue.batches[0] is batch
            return
        queue.in_flight = None
        again = replacements or (batch,)
        queue.batches.extendleft(reversed(again))
        self.used_bytes += sum(b.size_bytes for b in again) - batch.size_bytes

    def followers(self, batch: ProducerBatch) -> list[ProducerBatch]:
        """Return the batches of the same group that wait behind ``batch``."""
        queue = self._queues[batch.topic_partition]
        return [other for other in queue.batches if other.group is batch.group and other is not batch]

    def move(self, source: TopicPartition, target: TopicPartition) -> None:
        """Move the waiting batches of ``source`` that may go to any partition behind those of ``target``."""
        old, new = self._queues[source], self._queue(target)
        moved = [batch for batch in old.batches if batch.group.movable]
        old.batches = deque(batch for batch in old.batches if not batch.group.movable)
        new.batches.extend(moved)
        for batch in moved:
            batch.move(target)
        if old.in_flight is None and not old.batches:
            del self._queues[source]

    def deallocate(self, batch: ProducerBatch) -> None:
        """Free the partition and the memory of ``batch``, which is acknowledged or has failed. A second call
        does nothing.
        """
        queue = self._queues.get(batch.topic_partition)
        if queue is None:
            return
        if queue.in_flight is batch:
            queue.in_flight = None
        elif batch in queue.batches:
            queue.batches.remove(batch)
        else:
            return
        self.used_bytes -= batch.size_bytes
        if queue.in_flight is None and not queue.batches:
            del self._queues[batch.topic_partition]

    @property
    def is_empty(self) -> bool:
        """True if every batch is acknowledged or has failed."""
        return not self._queues

    def waiting_batches(self) -> list[ProducerBatch]:
        """Return all batches that are not in flight."""
        return [batch for queue in self._queues.values() for batch in queue.batches]

    def incomplete_batches(self) -> list[ProducerBatch]:
        """Return all batches that are not acknowledged or failed, including those in flight."""
        found: list[ProducerBatch] = []
        for queue in self._queues.values():
            if queue.in_flight is not None:
                found.append(queue.in_flight)
            found.extend(queue.batches)
        return found

    @contextlib.contextmanager
    def flush(self) -> Iterator[None]:
        """Send batches without linger time until the end of the block, with or without the lock."""
        flush = object()  # not a counter: Ctrl-C may come before it is counted
        try:
            self._flushes.add(flush)
            yield
        finally:
            self._flushes.discard(flush)

    def _queue(self, tp: TopicPartition) -> PartitionQueue:
        queue = self._queues.get(tp)
        if queue is None:
            queue = self._queues[tp] = PartitionQueue(tp)
        return queue

    def _wait_ms(self, queue: PartitionQueue, now_ms: int) -> int:
        """Return the remaining wait of the first batch; zero or negative when it may be sent."""
        first = queue.batches[0]
        if first.group.failures:
            return first.group.not_before_ms - now_ms
        if first.closed or self._flushes or len(queue.batches) > 1:
            return 0
        return first.created_ms + self._config.linger_ms - now_ms
