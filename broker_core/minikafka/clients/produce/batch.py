"""Batches: what goes to one partition in one piece, is acknowledged in one piece and retried in one piece."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

from minikafka.base.errors import BrokerError, ErrorCode, MinikafkaError
from minikafka.base.files import Buffer
from minikafka.base.ids import TopicPartition
from minikafka.base.text import counted
from minikafka.clients.produce.send_future import Outcome, SendFuture
from minikafka.records.format.batch import MAGIC as BATCH_MAGIC
from minikafka.records.format.batch import set_producer
from minikafka.records.format.message_set import CODEC_MASK, Codec, Record, build_message_set
from minikafka.records.format.record import NO_PRODUCER

MESSAGE_OVERHEAD_BYTES = 34
"""Bytes of a magic 1 message around its key and value: offset 8, size 4, crc 4, magic 1, attributes 1,
timestamp 8, and two lengths of 4."""

_MAGIC_AT = 16
_ATTRIBUTES_AT = 17
_BATCH_CODEC_AT = 22
_LAST_DELTA_AT = 23
_NO_END = (1 << 63) - 1
_LARGEST_SET = (1 << 31) - 1


def message_bytes(key: bytes | None, value: bytes | None) -> int:
    """Size of one uncompressed magic 1 message, with its offset and length fields."""
    return MESSAGE_OVERHEAD_BYTES + len(key or b"") + len(value or b"")


class Stamp(NamedTuple):
    """What makes a batch known to the broker when it comes again (see ``numbering``)."""

    producer_id: int
    producer_epoch: int
    base_sequence: int


_UNSTAMPED = Stamp(NO_PRODUCER, NO_PRODUCER, NO_PRODUCER)


class Batch(ABC):
    """Common part: the deliveries, and how often and why it has failed so far. Times are monotonic ms."""

    def __init__(self, topic_partition: TopicPartition, outcome: Outcome, created_ms: int) -> None:
        self.topic_partition = topic_partition
        self.outcome = outcome
        self.created_ms = created_ms
        self.deliveries: list[SendFuture] = []
        self.count = 0
        self.size_bytes = 0
        self.closed = False
        self.failures = 0
        self.not_before_ms = 0
        self.last_error: MinikafkaError | None = None
        self.stamp: Stamp | None = None
        self.in_doubt = False
        """Whether an attempt ended so that the log may have it."""

    @property
    def sequences(self) -> int:
        """How many numbers it takes in format 2."""
        return self.count

    @property
    def is_classic(self) -> bool:
        """Whether it can be had in magic 0 or 1 only."""
        return False

    def codec(self, configured: Codec) -> Codec:
        """What it is compressed with, by a producer that is to use ``configured``."""
        return configured

    def encode(self, magic: int, codec: Codec) -> Buffer:
        """The message set to send. Raises BrokerError where it cannot be had in ``magic``."""
        data, stamp = self.unstamped(magic, codec), self.stamp
        if stamp is None:
            return data
        stamped = bytearray(
            data
        )  # a batch may come to go out without numbers, or the caller use its set again
        set_producer(stamped, *stamp)
        return stamped

    @abstractmethod
    def unstamped(self, magic: int, codec: Codec) -> Buffer:
        """The set as ``encode`` gives it, of no producer."""

    @abstractmethod
    def split(self) -> tuple[Batch, Batch] | None:
        """Two halves in order, each with its own outcome, or None where it cannot be divided."""

    def __str__(self) -> str:
        return f"{counted(self.count, 'record')} for {self.topic_partition}"

    def _take_over(self, parent: Batch, deliveries: list[SendFuture]) -> None:
        self.closed = True
        self.failures = parent.failures
        self.in_doubt = parent.in_doubt
        self.last_error = parent.last_error
        self.deliveries = deliveries


class RecordBatch(Batch):
    """Records as they came from ``BatchingProducer.send``; encoded when they leave."""

    def __init__(self, topic_partition: TopicPartition, outcome: Outcome, created_ms: int) -> None:
        super().__init__(topic_partition, outcome, created_ms)
        self.records: list[Record] = []
        self._encoded: tuple[int, Codec, bytes] | None = None

    def append(self, record: Record, size_bytes: int) -> SendFuture:
        """Add a record of ``size_bytes`` (``message_bytes``) at the end."""
        delivery = SendFuture(self.topic_partition, self.outcome, self.count)
        self.records.append(record)
        self.deliveries.append(delivery)
        self.count += 1
        self.size_bytes += size_bytes
        return delivery

    def unstamped(self, magic: int, codec: Codec) -> Buffer:
        # Kept for the retries: compressing again would give the same bytes.
        if self._encoded is None or self._encoded[:2] != (magic, codec):
            self._encoded = magic, codec, build_message_set(self.records, magic=magic, codec=codec)
        return self._encoded[2]

    def split(self) -> tuple[Batch, Batch] | None:
        if self.count < 2:
            return None
        middle = self.count // 2
        return self._part(0, middle), self._part(middle, self.count)

    def _part(self, start: int, end: int) -> RecordBatch:
        part = RecordBatch(self.topic_partition, Outcome(self.outcome.condition), self.created_ms)
        part._take_over(self, self.deliveries[start:end])
        part.records = self.records[start:end]
        part.count = end - start
        part.size_bytes = sum(message_bytes(r.key, r.value) for r in part.records)
        for position, delivery in enumerate(part.deliveries):
            delivery.move(part.outcome, position)
        return part


class EncodedBatch(Batch):
    """A message set that the caller encoded; it goes out as it is, without a copy.

    One that is ``sealed`` remains as it is; its numbers, if it has any, are written into a copy. Into another
    one of magic 2 they are written in place, with the checksum that it does not have yet.
    """

    def __init__(
        self,
        topic_partition: TopicPartition,
        outcome: Outcome,
        created_ms: int,
        data: Buffer,
        count: int,
        *,
        sealed: bool = True,
    ) -> None:
        super().__init__(topic_partition, outcome, created_ms)
        self.data = data
        self._sealed = sealed
        self._written: Stamp | None = None
        self.count = count
        self.size_bytes = len(data)
        self.closed = True
        self.deliveries = [SendFuture(topic_partition, outcome, 0, count)]

    @property
    def is_classic(self) -> bool:
        return self.data[_MAGIC_AT] < BATCH_MAGIC

    def codec(self, configured: Codec) -> Codec:
        return Codec(self.data[_ATTRIBUTES_AT if self.is_classic else _BATCH_CODEC_AT] & CODEC_MASK)

    def encode(self, magic: int, codec: Codec) -> Buffer:
        if self._sealed or self.is_classic:
            return super().encode(magic, codec)
        data, stamp = self.unstamped(magic, codec), self.stamp or _UNSTAMPED
        if stamp != self._written:  # a retry has the same, nearly always
            assert not isinstance(data, bytes)
            set_producer(data, *stamp)
            self._written = stamp
        return data

    @property
    def sequences(self) -> int:
        return int.from_bytes(self.data[_LAST_DELTA_AT : _LAST_DELTA_AT + 4], "big") + 1

    def unstamped(self, magic: int, codec: Codec) -> Buffer:
        if self.data[_MAGIC_AT] > magic:
            raise BrokerError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"a message set of magic {self.data[_MAGIC_AT]} was given for {self.topic_partition}, whose "
                f"broker takes magic {magic} at most: encode it in that format",
            )
        return self.data

    def split(self) -> tuple[Batch, Batch] | None:
        """Decoded and encoded again: the sets of a topic that takes only small ones are rare."""
        if self.count < 2:
            return None
        import numpy as np

        from minikafka.records.columns import decode, encode

        found = decode(self.data, 0, _NO_END, headers=not self.is_classic)
        if found.count < 2 or not found.complete:
            return None
        keys, values, headers = found.key_array(), found.value_array(), found.headers
        rows = np.arange(found.count, dtype=np.int64)
        parts = []
        for half in (rows[: found.count // 2], rows[found.count // 2 :]):
            sets = encode(
                keys,
                values,
                found.timestamps,
                half,
                magic=self.data[_MAGIC_AT],
                codec=self.codec(Codec.NONE),
                max_bytes=_LARGEST_SET,
                headers=headers,
            )
            (encoded,) = sets
            part = EncodedBatch(
                self.topic_partition,
                Outcome(self.outcome.condition),
                self.created_ms,
                encoded.data,
                encoded.count,
            )
            part._take_over(self, part.deliveries)
            parts.append(part)
        first, second = parts
        self.deliveries[0].divide(first.deliveries[0], second.deliveries[0])
        return first, second
