"""Writes of this broker itself to partitions that it leads: of coordinators to their topics, and of markers.

Records are encoded and validated outside of a step; the append is part of the step that decided it, so that
the log has the records in the order of the decisions.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from minikafka.base.errors import BrokerError, ErrorCode, StorageError
from minikafka.base.ids import TopicPartition
from minikafka.log.producers.producer_state import Guard
from minikafka.partition.partition import LogAppendResult, Partition
from minikafka.records.append.produced import Limits, ValidatedRecords
from minikafka.records.append.validation import validate
from minikafka.records.format.batch import MAGIC, set_producer
from minikafka.records.format.message_set import Codec, Record, build_message_set
from minikafka.records.format.record import KeyValue
from minikafka.server.coordination.delayed_write import DelayedWrite, WriteCallback
from minikafka.server.core.broker import Broker

_log = logging.getLogger(__name__)

NO_SEQUENCE = -1


class PartitionWriter:
    """Writes records that count once every in-sync replica has them, or fail after ``timeout_ms``."""

    def __init__(self, broker: Broker, codec: Codec, timeout_ms: int) -> None:
        self._broker = broker
        self._codec = codec
        self._timeout_ms = timeout_ms

    def check_size(self, partition: Partition, least_bytes: int) -> None:
        """Raise MESSAGE_TOO_LARGE for records of at least ``least_bytes`` that exceed the log's limit."""
        if self._codec is Codec.NONE and least_bytes > partition.log.config.max_message_bytes:
            raise BrokerError(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"at least {least_bytes} bytes exceed max.message.bytes of {partition.topic_partition} "
                f"({partition.log.config.max_message_bytes})",
            )

    def validated_records(self, partition: Partition, pairs: Sequence[KeyValue]) -> ValidatedRecords:
        """Return validated records for the log. Raises BrokerError, such as MESSAGE_TOO_LARGE."""
        config, now_ms = partition.log.config, self._broker.clock.now_ms()
        batch = [Record(key, value, now_ms) for key, value in pairs]
        data = build_message_set(batch, magic=config.message_magic, codec=self._codec)
        limits = Limits(
            max_message_bytes=config.max_message_bytes,
            timestamp_type=config.message_timestamp_type,
            compacted=config.compacted,
            max_magic=2,
        )
        return validate(bytearray(data), limits, now_ms)

    def transactional_records(
        self, partition: Partition, pairs: Sequence[KeyValue], producer_id: int, producer_epoch: int
    ) -> ValidatedRecords:
        """Return validated records in a producer's transaction, as ``validated_records``: one batch, without
        sequence numbers. Raises UNSUPPORTED_FOR_MESSAGE_FORMAT before magic 2.
        """
        magic = partition.log.config.message_magic
        if magic < MAGIC:
            raise BrokerError(
                ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
                f"{partition.topic_partition} stores magic {magic}, which does not support transactions: "
                "raise its message.format.version",
            )
        valid = self.validated_records(partition, pairs)
        set_producer(valid.data, producer_id, producer_epoch, NO_SEQUENCE, transactional=True)
        (header,) = valid.batches
        header = replace(header, producer_id=producer_id, producer_epoch=producer_epoch, transactional=True)
        return replace(valid, batches=(header,))

    def append(
        self,
        topic_partition: TopicPartition,
        records: ValidatedRecords,
        done: WriteCallback,
        guard: Guard = None,
        *,
        level: int = logging.INFO,
    ) -> int | None:
        """Append within a step; ``done`` is called in this step or a later one.

        ``guard``: that with which a producer's transaction was verified. ``level``: of the line about a
        failure that is no error of the disk. Return the first offset; None if nothing was appended.
        """
        return self._write(
            topic_partition,
            lambda partition, now_ms: partition.append(records, all_in_sync=True, now_ms=now_ms, guard=guard),
            done,
            level,
        )

    def append_end_marker(
        self,
        topic_partition: TopicPartition,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        done: WriteCallback,
        *,
        commit: bool,
    ) -> int | None:
        """Append the marker that ends the transaction of a producer, as ``append``.

        A failure is logged by the coordinator of the transaction, which tries again and again.
        """
        return self._write(
            topic_partition,
            lambda partition, now_ms: partition.append_end_marker(
                producer_id, producer_epoch, coordinator_epoch, commit=commit, now_ms=now_ms
            ),
            done,
            logging.DEBUG,
        )

    def _write(
        self,
        topic_partition: TopicPartition,
        append: Callable[[Partition, int], LogAppendResult],
        done: WriteCallback,
        level: int,
    ) -> int | None:
        broker = self._broker
        try:
            partition = broker.partition(topic_partition)
            appended = append(partition, broker.clock.now_ms())
        except BrokerError as error:
            _log.log(level, "cannot append to %s: %s", topic_partition, error)
            done(error.code, -1)
            return None
        except StorageError as error:
            broker.log_failed(topic_partition, f"cannot append to {topic_partition}: {error}")
            done(ErrorCode.KAFKA_STORAGE_ERROR, -1)
            return None
        broker.touch(topic_partition)
        first_offset = appended.append_info.first_offset
        write = DelayedWrite(broker, partition, appended, done)
        if write.satisfied():
            write.finish()
            return first_offset
        broker.wait(write, [topic_partition], broker.clock.monotonic_ms() + self._timeout_ms)
        if appended.must_flush:
            broker.after(partial(self._flush, partition, write))
        return first_offset

    def _flush(self, partition: Partition, write: DelayedWrite) -> None:
        """Flush the log as ``flush.messages`` requires. Called after a step."""
        try:
            end_offset = partition.log.flush()
        except StorageError as error:
            name = partition.topic_partition
            self._broker.log_failed(name, f"cannot flush {name}: {error}")
            write.failure = ErrorCode.KAFKA_STORAGE_ERROR
            end_offset = 0

        def flushed() -> None:
            if partition.complete_flush(end_offset) or write.failure is not None:
                self._broker.touch(partition.topic_partition)

        self._broker.run(flushed)
