"""Produced message sets: what a topic allows, what is known of one before and after it got its offsets."""

from __future__ import annotations

from minikafka.base.values import fast_value
from minikafka.records.append.wrappers import NO_WRAPPERS, Wrappers
from minikafka.records.format.batch import MAGIC, BatchHeader
from minikafka.records.format.compression import MAX_CONTENT_BYTES
from minikafka.records.format.message_set import Codec, TimestampType
from minikafka.records.kernels.arrays import INT64_MAX, INT64_MIN


@fast_value
class Limits:
    """What a topic allows.

    ``max_timestamp_difference_ms`` None means any; it holds for create times only. ``max_content_bytes`` is
    for each wrapper or batch, decompressed. Formats above ``max_magic`` are refused.

    ``magic`` and ``codec`` are those of what is stored, None for what was sent. ``magic`` 0 or 1 makes all
    messages that; 2 is as None, since nothing is converted up to it. Messages of magic 0 and 1 cannot have
    zstd, and stay as they were sent.
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
        """The earliest and the latest timestamp that a message may have."""
        difference = self.max_timestamp_difference_ms
        if self.timestamp_type is not TimestampType.CREATE_TIME or difference is None:
            return INT64_MIN, INT64_MAX
        return max(INT64_MIN, now_ms - difference), min(INT64_MAX, now_ms + difference)


@fast_value
class ValidatedRecords:
    """A set in which only the offsets are missing.

    ``count`` messages, inner ones counted; ``size_bytes`` of ``data`` (magic 0 wrappers may change it in
    ``assign``); ``max_timestamp_at`` counts the messages before the last one of the first entry with the
    largest timestamp; ``codec`` and ``magic`` are those of the first entry (NONE and -1 when the set is
    empty). ``batches`` are the headers of magic 2, with the timestamps that are stored.
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
    """The topic gives append times (also where magic 0 has no room for them)."""

    @classmethod
    def of_batch(
        cls, data: memoryview, header: BatchHeader, limits: Limits, *, stamped: bool = False
    ) -> ValidatedRecords:
        """One batch of magic 2 and nothing else, with the header as it stands in ``data``."""
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


@fast_value
class LogAppendInfo:
    """A set as it goes to the log: ``data`` with offsets ``first_offset`` to ``last_offset``, both included.

    An empty set has ``last_offset == first_offset - 1``.
    """

    data: memoryview
    first_offset: int
    last_offset: int
    count: int
    max_timestamp_ms: int
    max_timestamp_at: int
    """Offset of the first entry that has it."""
    marks: tuple[tuple[int, int], ...] = ()
    """Last offset and position of the first entry, and of one in so many bytes: see ``assign``."""
    duplicate: bool = False
    """The log had it before: there is no ``data``."""

    @classmethod
    def as_before(cls, first_offset: int, last_offset: int, timestamp_ms: int) -> LogAppendInfo:
        """The answer for a set that the log has already."""
        count = last_offset - first_offset + 1
        return cls(
            memoryview(b""), first_offset, last_offset, count, timestamp_ms, last_offset, duplicate=True
        )


class OffsetMoved(Exception):
    """The log's end has moved since the set was prepared for it: prepare the set again, without locks."""
