"""The future of a sent record, and the result of its batch."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from minikafka.base.errors import MinikafkaError, NetworkError
from minikafka.base.ids import TopicPartition
from minikafka.records.format.message_set import NO_TIMESTAMP

UNKNOWN_OFFSET = -1


@dataclass(frozen=True, slots=True)
class RecordMetadata:
    """The partition and offset of sent records. ``offset`` is that of the first of ``count`` records; -1 with
    acks=0, as brokers do not respond.

    ``log_append_time_ms`` is -1 unless the topic has ``message.timestamp.type=LogAppendTime``.
    """

    topic_partition: TopicPartition
    offset: int
    count: int = 1
    log_append_time_ms: int = NO_TIMESTAMP


class ProduceRequestResult:
    """The result of one batch, shared by the futures of its records.

    Set once, under the condition that all results of a producer share.
    """

    __slots__ = ("base_offset", "condition", "done", "error", "log_append_time_ms", "record_errors")

    def __init__(self, condition: threading.Condition) -> None:
        self.condition = condition
        self.done = False
        self.error: MinikafkaError | None = None
        """The error of the batch."""
        self.record_errors: Mapping[int, MinikafkaError] = {}
        """The errors of records by their number in the batch, if the broker names those that it refuses."""
        self.base_offset = UNKNOWN_OFFSET
        self.log_append_time_ms = NO_TIMESTAMP

    def error_of(self, position: int) -> MinikafkaError | None:
        """Return the error of a record, given its number in the batch."""
        return self.record_errors.get(position, self.error)


class SplitBatchResult:
    """The result of an encoded set that was split, from the futures of its halves."""

    __slots__ = ("first", "second")

    def __init__(self, first: SendFuture, second: SendFuture) -> None:
        self.first = first
        self.second = second

    @property
    def condition(self) -> threading.Condition:
        return self.first.condition

    @property
    def done(self) -> bool:
        return self.first.done and self.second.done

    @property
    def error(self) -> MinikafkaError | None:
        return self.first.error or self.second.error

    def error_of(self, position: int) -> MinikafkaError | None:
        return self.error

    @property
    def base_offset(self) -> int:
        return self.first.offset

    @property
    def log_append_time_ms(self) -> int:
        return self.first.log_append_time_ms

    def outcomes(self) -> Iterator[tuple[int, MinikafkaError | None]]:
        yield from self.first.outcomes()
        yield from self.second.outcomes()


class SendFuture:
    """The future of one record, or of the ``count`` records of one pre-encoded set."""

    __slots__ = ("_callback", "_position", "_produce_result", "count", "topic_partition")

    def __init__(
        self,
        topic_partition: TopicPartition,
        produce_result: ProduceRequestResult,
        position: int,
        count: int = 1,
    ) -> None:
        self.topic_partition = topic_partition
        self.count = count
        self._produce_result: ProduceRequestResult | SplitBatchResult = produce_result
        self._position = position
        self._callback: Callable[[SendFuture], None] | None = None

    @property
    def done(self) -> bool:
        """True when the result is known."""
        return self._produce_result.done

    @property
    def error(self) -> MinikafkaError | None:
        """The error after a failure; None while it is pending and after an acknowledgement."""
        return self._produce_result.error_of(self._position)

    def outcomes(self) -> Iterator[tuple[int, MinikafkaError | None]]:
        """Yield the number of records and the error of each part of a set, in their order: one part, or
        several if the set was split.
        """
        if isinstance(self._produce_result, SplitBatchResult):
            yield from self._produce_result.outcomes()
        else:
            yield self.count, self.error

    @property
    def offset(self) -> int:
        """The first record's offset after the acknowledgement; UNKNOWN_OFFSET before, or if unknown."""
        base = self._produce_result.base_offset
        return base + self._position if base >= 0 else UNKNOWN_OFFSET

    @property
    def log_append_time_ms(self) -> int:
        """The broker's timestamp of the record; -1 for none."""
        return self._produce_result.log_append_time_ms

    @property
    def condition(self) -> threading.Condition:
        """The condition that is notified when the result is known. For the producer."""
        return self._produce_result.condition

    def result(self, timeout_ms: int | None = None) -> RecordMetadata:
        """Wait for the result. Raises the error of a failure, or NetworkError if ``timeout_ms`` passes first.

        Without ``timeout_ms`` the producer's own delivery time-out is the bound.
        """
        condition = self._produce_result.condition
        if not self.done:
            with condition:
                # A split moves the future to another result, so the current one is read at each wake-up.
                if not condition.wait_for(
                    lambda: self.done, None if timeout_ms is None else timeout_ms / 1000
                ):
                    raise NetworkError(
                        f"timed out after {timeout_ms} ms waiting for an acknowledgement from "
                        f"{self.topic_partition}"
                    )
        if self.error is not None:
            raise self.error
        return RecordMetadata(self.topic_partition, self.offset, self.count, self.log_append_time_ms)

    def on_done(self, callback: Callable[[SendFuture], None]) -> None:
        """Call ``callback(future)`` when the result is known: on the thread that sets it, or here if it is
        known already.

        One callback per future; it must be quick and must not wait for other futures.
        """
        with self._produce_result.condition:
            if not self.done:
                self._callback = callback
                return
        callback(self)

    @property
    def has_callback(self) -> bool:
        """True if a callback is set and was not taken. For the producer."""
        return self._callback is not None

    def take_callback(self) -> Callable[[SendFuture], None] | None:
        """Remove and return the callback. For the producer."""
        callback, self._callback = self._callback, None
        return callback

    def follow(self, produce_result: ProduceRequestResult, position: int) -> None:
        """Take the result of another batch, after a split. For the producer, under the condition."""
        self._produce_result = produce_result
        self._position = position

    def chain(self, first: SendFuture, second: SendFuture) -> None:
        """Take the result of the two halves of a split set. For the producer, under the condition."""
        self._produce_result = SplitBatchResult(first, second)
        self._position = 0
        first._callback = second._callback = self._on_half_done

    def _on_half_done(self, _: SendFuture) -> None:
        with self.condition:
            callback = self.take_callback() if self.done else None
        if callback is not None:
            callback(self)
