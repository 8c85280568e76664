"""Produced message sets: the limits of a topic, and the state of a set before and after it gets offsets."""

from __future__ import annotations

from minikafka.base.errors import BrokerError, ErrorCode
from minikafka.base.values import fast_value
from minikafka.records.append.wrappers import NO_WRAPPERS, Wrappers
from minikafka.records.format.batch import MAGIC, BatchHeader, ControlType, build_control_batch, read_header
from minikafka.records.format.compression import MAX_CONTENT_BYTES
from minikafka.records.format.message_set import Codec, TimestampType
from minikafka.records.kernels.arrays import INT64_MAX, INT64_MIN


@fast_value
class Limits:
    """The limits of a topic for produced sets.

    ``max_timestamp_difference_ms`` None means no limit; it applies to create times only.
    ``max_content_bytes`` is the limit for each wrapper or batch, decompressed. Formats above ``max_magic``
    are refused.

    ``magic`` and ``codec`` are the format in which the topic stores records; None keeps the producer's.
    ``magic`` 0 or 1 converts all messages to that format; 2 is the same as None, since nothing is converted
    up to it. Messages of magic 0 and 1 cannot have zstd, and keep their codec.
    """

    max_message_bytes: int = 1000012
    timestamp_type: TimestampType = TimestampType.CREATE_TIME
    max_timestamp_difference_ms: int | None = None
    compacted: bool = False
    max_content_bytes: int = MAX_CONTENT_BYTES
    max_magic: int = 1
    magic: int | None = None
    codec: Codec | None = None

    def allowed_times(self, now_ms: int) -> tuple[int, int]:
        """Return the earliest and the latest timestamp that a message may have."""
        difference = self.max_timestamp_difference_ms
        if self.timestamp_type is not TimestampType.CREATE_TIME or difference is None:
            return INT64_MIN, INT64_MAX
        return max(INT64_MIN, now_ms - difference), min(INT64_MAX, now_ms + difference)


@fast_value
class ValidatedRecords:
    """A validated set that is complete except for its offsets.

    ``count`` is the number of messages, including inner ones; ``size_bytes`` the size of ``data`` (magic 0
    wrappers may change it in ``assign``); ``max_timestamp_at`` the number of messages before the last one of
    the first entry with the largest timestamp; ``codec`` and ``magic`` are those of the first entry (NONE and
    -1 for an empty set). ``batches`` are the headers of magic 2, with the timestamps that are stored.
    """

    data: memoryview
    count: int
    size_bytes: int
    max_timestamp_ms: int
    max_timestamp_at: int
    codec: Codec
    magic: int
    max_message_bytes: int
    wrappers: Wrappers
    batches: tuple[BatchHeader, ...] = ()
    prepared: tuple[int, memoryview] | None = None
    """A base offset, and ``data`` with its magic 0 wrappers built for it."""
    stamped: bool = False
    """True if the topic uses append times (even for magic 0, which cannot store them)."""

    @classmethod
    def of_batch(
        cls, data: memoryview, header: BatchHeader, limits: Limits, *, stamped: bool = False
    ) -> ValidatedRecords:
        """Return a set of a single batch of magic 2; ``header`` is the one in ``data``."""
        newest_ms = header.max_timestamp_ms
        return cls(
            data,
            header.count,
            header.size_bytes,
            newest_ms,
            header.count - 1 if newest_ms >= 0 else 0,
            header.codec,
            MAGIC,
            limits.max_message_bytes,
            NO_WRAPPERS,
            (header,),
            stamped=stamped,
        )

    @classmethod
    def of_end_marker(
        cls,
        kind: ControlType,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        limits: Limits,
        now_ms: int,
    ) -> ValidatedRecords:
        """Return the marker that ends a producer's transaction. Only a broker builds it.

        Raises UNSUPPORTED_FOR_MESSAGE_FORMAT if the topic stores magic 0 or 1.
        """
        if limits.magic in {0, 1}:
            raise BrokerError(
                ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
                f"the topic stores magic {limits.magic}, which has no transactions: raise its "
                "message.format.version",
            )
        batch = build_control_batch(
            kind,
            coordinator_epoch=coordinator_epoch,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            timestamp_ms=now_ms,
            timestamp_type=limits.timestamp_type,
        )
        return cls.of_batch(memoryview(bytearray(batch)), read_header(batch, 0, check_crc=False), limits)


@fast_value
class LogAppendInfo:
    """A set that is ready for the log: ``data`` with offsets ``first_offset`` to ``last_offset``, inclusive.

    An empty set has ``last_offset == first_offset - 1``.
    """

    data: memoryview
    first_offset: int
    last_offset: int
    count: int
    max_timestamp_ms: int
    max_timestamp_at: int
    """The last offset of the first entry with the largest timestamp."""
    marks: tuple[tuple[int, int], ...] = ()
    """Last offset and position of the first entry, and of further ones at an interval: see ``assign``."""
    duplicate: bool = False
    """True if the log has the set already; ``data`` is empty."""

    @classmethod
    def of_duplicate(cls, first_offset: int, last_offset: int, timestamp_ms: int) -> LogAppendInfo:
        """Return the result for a set that the log has already."""
        count = last_offset - first_offset + 1
        return cls(
            memoryview(b""), first_offset, last_offset, count, timestamp_ms, last_offset, duplicate=True
        )


class OffsetMoved(Exception):
    """The log's end has changed since the set was prepared for it: prepare the set again, without locks."""
