"""Producer batches: records of one partition that are sent, acknowledged and retried together."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from minikafka.base.errors import BrokerError, ErrorCode, MinikafkaError
from minikafka.base.files import Buffer
from minikafka.base.ids import TopicPartition
from minikafka.base.text import counted
from minikafka.clients.produce.send_future import ProduceRequestResult, SendFuture
from minikafka.records.format.batch import MAGIC as BATCH_MAGIC
from minikafka.records.format.batch import set_producer
from minikafka.records.format.message_set import Codec, Record, build_message_set
from minikafka.records.format.record import NO_PRODUCER, Headers
from minikafka.records.format.stored_batch import SENT_HEADER_AT, SENT_HEADER_END
from minikafka.records.kernels import layout

if TYPE_CHECKING:
    from minikafka.records.columns import EncodedRecords

_NO_END = (1 << 63) - 1
_LARGEST_SET = (1 << 31) - 1
_HEADER_LENGTHS_BYTES = 10
"""The two lengths of a header, as varints."""


def message_bytes(key: bytes | None, value: bytes | None, headers: Headers = ()) -> int:
    """Return the size of one uncompressed magic 1 message, with its offset and length fields, and that of its
    headers in magic 2, at most.
    """
    size = layout.MESSAGE_OVERHEAD_BYTES + len(key or b"") + len(value or b"")
    for name, content in headers:
        size += _HEADER_LENGTHS_BYTES + len(name.encode()) + len(content or b"")
    return size


class ProducerSequence(NamedTuple):
    """The id by which a broker recognizes a batch that is sent again (see ``sequence_numbers``)."""

    producer_id: int
    producer_epoch: int
    base_sequence: int
    transactional: bool = False


_NO_SEQUENCE = ProducerSequence(NO_PRODUCER, NO_PRODUCER, NO_PRODUCER)


@dataclass(frozen=True, slots=True)
class BatchSource:
    """A batch in a log, which a broker may copy.

    ``sent_header``: its header as it was sent (``stored_batch``). ``load``: fetches it, as it was sent.
    """

    at: TopicPartition
    offset: int
    sent_header: bytes
    size_bytes: int
    load: Callable[[], bytearray]


class RetryGroup:
    """The failed attempts in a row of batches that are retried together: batches of one partition that were
    handed over together, or (the default) one batch. After the last retry all of them fail with ``error``.

    The batches of a ``movable`` group may go to any partition: their records have no keys.
    """

    __slots__ = (
        "error",
        "failures",
        "last_error",
        "movable",
        "must_move",
        "not_before_ms",
        "topic_partition",
    )

    def __init__(self, topic_partition: TopicPartition, *, movable: bool = False) -> None:
        self.topic_partition = topic_partition
        self.movable = movable
        self.must_move = False
        """True from a failed attempt on until the partition of the next one is chosen."""
        self.failures = 0
        self.not_before_ms = 0
        self.last_error: MinikafkaError | None = None
        self.error: MinikafkaError | None = None


class ProducerBatch(ABC):
    """The base of batches: the futures of its records, and its failed attempts. Times are monotonic ms."""

    def __init__(
        self,
        topic_partition: TopicPartition,
        produce_result: ProduceRequestResult,
        created_ms: int,
        group: RetryGroup | None = None,
    ) -> None:
        self.topic_partition = topic_partition
        self.produce_result = produce_result
        self.created_ms = created_ms
        self.futures: list[SendFuture] = []
        self.count = 0
        self.size_bytes = 0
        self.closed = False
        self.group = group or RetryGroup(topic_partition)
        self.producer_sequence: ProducerSequence | None = None
        self.is_legacy = False
        """True if it can only be sent in magic 0 or 1."""
        self.source: BatchSource | None = None
        """The batch in a log that the leader is to copy; None if the records are sent."""
        self.may_be_appended = False
        """True after an attempt whose outcome is unknown: the log may have the batch."""
        self.encoded_bytes = 0
        """The size as it was encoded last; 0 before that."""
        self.compression_ratio: float | None = None
        """That size by the size before compression; None if the latter is unknown."""

    @property
    def sequence_count(self) -> int:
        """The number of sequence numbers that it takes in format 2."""
        return self.count

    def codec(self, configured: Codec) -> Codec:
        """Return the codec of the batch in a producer that is configured with ``configured``."""
        return configured

    def encode(self, magic: int, codec: Codec) -> Buffer:
        """Return the message set to send. Raises BrokerError if it cannot be encoded in ``magic``."""
        return self._numbered(self.encode_without_producer(magic, codec))

    def note_encoded(self, size_bytes: int, configured: Codec) -> None:
        """Store the size of the encoded batch, for the metrics."""
        self.encoded_bytes = size_bytes
        if self.codec(configured) is Codec.NONE:
            self.compression_ratio = 1.0

    def _numbered(self, data: Buffer) -> Buffer:
        if self.producer_sequence is None:
            return data
        # A copy: the batch may be sent later without numbers, or the caller may use its set again.
        numbered = bytearray(data)
        _write_sequence(numbered, self.producer_sequence)
        return numbered

    @abstractmethod
    def encode_without_producer(self, magic: int, codec: Codec) -> Buffer:
        """Return the set as ``encode`` does, without a producer id and sequence number."""

    @abstractmethod
    def split(self) -> tuple[ProducerBatch, ProducerBatch] | None:
        """Return two halves in order, each with its own result, or None if it cannot be split."""

    def move(self, target: TopicPartition) -> None:
        """Change the partition of a batch that waits and has no numbers."""
        self.topic_partition = self.group.topic_partition = target
        for future in self.futures:
            future.topic_partition = target

    def __str__(self) -> str:
        return f"{counted(self.count, 'record')} for {self.topic_partition}"

    def _take_over(self, parent: ProducerBatch, futures: list[SendFuture]) -> None:
        self.closed = True
        self.group = parent.group
        self.may_be_appended = parent.may_be_appended
        self.futures = futures


class RecordListBatch(ProducerBatch):
    """Records from ``BatchingProducer.send``, which are encoded when they are sent."""

    def __init__(
        self, topic_partition: TopicPartition, produce_result: ProduceRequestResult, created_ms: int
    ) -> None:
        super().__init__(topic_partition, produce_result, created_ms)
        self.records: list[Record] = []
        self._encoded: tuple[int, Codec, bytes] | None = None

    def append(self, record: Record, size_bytes: int) -> SendFuture:
        """Add a record of ``size_bytes`` (``message_bytes``) at the end."""
        future = SendFuture(self.topic_partition, self.produce_result, self.count)
        self.records.append(record)
        self.futures.append(future)
        self.count += 1
        self.size_bytes += size_bytes
        return future

    def encode_without_producer(self, magic: int, codec: Codec) -> Buffer:
        # Kept for retries: compressing again would give the same bytes.
        if self._encoded is None or self._encoded[:2] != (magic, codec):
            if magic < BATCH_MAGIC and any(record.headers for record in self.records):
                raise BrokerError(
                    ErrorCode.UNSUPPORTED_VERSION,
                    f"records with headers for {self.topic_partition}: its broker has only magic {magic}, "
                    "without headers; these need Kafka 0.11 or newer",
                )
            self._encoded = magic, codec, build_message_set(self.records, magic=magic, codec=codec)
        return self._encoded[2]

    def note_encoded(self, size_bytes: int, configured: Codec) -> None:
        super().note_encoded(size_bytes, configured)
        if configured is not Codec.NONE:
            self.compression_ratio = size_bytes / self.size_bytes

    def split(self) -> tuple[ProducerBatch, ProducerBatch] | None:
        if self.count < 2:
            return None
        middle = self.count // 2
        return self._part(0, middle), self._part(middle, self.count)

    def _part(self, start: int, end: int) -> RecordListBatch:
        part = RecordListBatch(
            self.topic_partition, ProduceRequestResult(self.produce_result.condition), self.created_ms
        )
        part._take_over(self, self.futures[start:end])
        part.records = self.records[start:end]
        part.count = end - start
        part.size_bytes = sum(message_bytes(r.key, r.value, r.headers) for r in part.records)
        for position, future in enumerate(part.futures):
            future.follow(part.produce_result, position)
        return part


class EncodedBatch(ProducerBatch):
    """A message set that the caller encoded; it is sent unchanged, without a copy.

    A ``sealed`` set is never changed; its sequence numbers, if any, are written into a copy. Into an unsealed
    set of magic 2 they are written in place, with the checksum that it does not have yet.
    """

    def __init__(
        self,
        topic_partition: TopicPartition,
        produce_result: ProduceRequestResult,
        created_ms: int,
        data: Buffer,
        count: int,
        *,
        sealed: bool = True,
        splits: bool = True,
        group: RetryGroup | None = None,
    ) -> None:
        super().__init__(topic_partition, produce_result, created_ms, group)
        self.data = data
        self._splits = splits
        self.is_legacy = data[layout.MAGIC_AT] < BATCH_MAGIC
        self._sealed = sealed
        self._written_sequence: ProducerSequence | None = None
        self.count = count
        self.size_bytes = len(data)
        self.closed = True
        self.futures = [SendFuture(topic_partition, produce_result, 0, count)]

    def codec(self, configured: Codec) -> Codec:
        return Codec(
            self.data[layout.MESSAGE_ATTRIBUTES_AT if self.is_legacy else layout.BATCH_FLAGS_AT]
            & layout.CODEC_MASK
        )

    def encode(self, magic: int, codec: Codec) -> Buffer:
        data = self.encode_without_producer(magic, codec)
        if self._sealed or self.is_legacy:
            return self._numbered(data)
        sequence = self.producer_sequence or _NO_SEQUENCE
        if sequence != self._written_sequence:  # a retry has the same, nearly always
            assert not isinstance(data, bytes)
            _write_sequence(data, sequence)
            self._written_sequence = sequence
        return data

    @property
    def sequence_count(self) -> int:
        return int.from_bytes(self.data[layout.LAST_DELTA_AT : layout.LAST_DELTA_AT + 4], "big") + 1

    def encode_without_producer(self, magic: int, codec: Codec) -> Buffer:
        if self.data[layout.MAGIC_AT] > magic:
            self._convert(magic)
        return self.data

    def split(self) -> tuple[ProducerBatch, ProducerBatch] | None:
        """Split by decoding and encoding again, which is slow but rare."""
        if not self._splits:
            return None
        middle = self.count // 2
        parts = []
        for start, end in ((0, middle), (middle, self.count)):
            encoded = self._encoded(self.data[layout.MAGIC_AT], start, end)
            if encoded is None:
                return None
            part = EncodedBatch(
                self.topic_partition,
                ProduceRequestResult(self.produce_result.condition),
                self.created_ms,
                encoded.data,
                encoded.count,
            )
            part._take_over(self, part.futures)
            parts.append(part)
        first, second = parts
        self.futures[0].chain(first.futures[0], second.futures[0])
        return first, second

    def _convert(self, magic: int) -> None:
        """Encode the records again in the older format of a leader. Raises BrokerError if that is impossible,
        as for headers.
        """
        if not (self._sealed or self.is_legacy):
            assert not isinstance(self.data, bytes)
            _write_sequence(self.data, _NO_SEQUENCE)
        encoded = self._encoded(magic, 0, self.count)
        if encoded is None:
            raise BrokerError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"a message set of magic {self.data[layout.MAGIC_AT]} for {self.topic_partition} exceeds the "
                f"newest format of its broker, and cannot be converted to magic {magic}",
            )
        self.data = encoded.data
        self.is_legacy = magic < BATCH_MAGIC

    def _encoded(self, magic: int, start: int, end: int) -> EncodedRecords | None:
        """Return some of the records in a format; None for no records, and if they cannot be decoded or the
        format has no place for their headers.
        """
        if start == end:
            return None
        import numpy as np

        from minikafka.records.columns import decode, encode

        found = decode(self.data, 0, _NO_END, headers=not self.is_legacy)
        if found.count != self.count or not found.complete:
            return None
        headers = found.headers
        if magic < BATCH_MAGIC and headers is not None:
            if headers.ends[-1] > headers.ends[0]:
                return None
            headers = None
        (encoded,) = encode(
            found.key_array(),
            found.value_array(),
            found.timestamps,
            np.arange(start, end, dtype=np.int64),
            magic=magic,
            codec=self.codec(Codec.NONE),
            max_bytes=_LARGEST_SET,
            headers=headers,
        )
        return encoded


class CopiedBatch(EncodedBatch):
    """A batch that the leader copies from another log. If it cannot, the batch is fetched when it is sent."""

    def __init__(
        self,
        topic_partition: TopicPartition,
        produce_result: ProduceRequestResult,
        created_ms: int,
        source: BatchSource,
        count: int,
    ) -> None:
        header = bytearray(layout.BATCH_HEADER_BYTES)
        header[layout.MAGIC_AT] = BATCH_MAGIC
        header[SENT_HEADER_AT:SENT_HEADER_END] = source.sent_header
        super().__init__(topic_partition, produce_result, created_ms, header, count, sealed=False)
        self.size_bytes = source.size_bytes
        self.source = source
        self._load: Callable[[], bytearray] | None = source.load

    def encode_without_producer(self, magic: int, codec: Codec) -> Buffer:
        if self._load is not None:
            self.data, self._load = self._load(), None
        return super().encode_without_producer(magic, codec)


def _write_sequence(data: bytearray | memoryview, sequence: ProducerSequence) -> None:
    producer_id, producer_epoch, base_sequence, transactional = sequence
    set_producer(data, producer_id, producer_epoch, base_sequence, transactional=transactional)
