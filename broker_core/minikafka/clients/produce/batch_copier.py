"""Copies batches that were staged in a topic to the partitions that they are for, within a transaction.

A batch is found in the staging topic by partition and offset, and known again by its header: the producer's
id, epoch and sequence number are never given twice. So a topic that was made again, or a log that was cut by
an unclean election, is found out before anything is copied.

Batches stay encoded and compressed. Their header is set back to what the task sent (the staging topic stamps
the time of the append), the checksum is verified, and the producer writes its own numbers.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from minikafka.base.errors import BrokerError, ErrorCode, MinikafkaError
from minikafka.base.files import Buffer
from minikafka.base.ids import TopicPartition
from minikafka.clients.fetch.list_offsets import LATEST, list_offsets
from minikafka.clients.fetch.range_fetcher import RangeFetcher, log_reaches
from minikafka.clients.network.cluster import ClusterClient
from minikafka.clients.produce.send_future import SendFuture
from minikafka.clients.produce.transactional_producer import TransactionalProducer
from minikafka.records.format.batch import MAGIC
from minikafka.records.format.checksums import crc32c
from minikafka.records.kernels import layout

STAGED_MAGIC = MAGIC
"""The format of staged batches."""
FETCH_BYTES = 4 << 20
"""Bytes of a staging partition in one fetch."""
HEADER_AT, HEADER_END = layout.BATCH_CRC_AT, layout.BATCH_HEADER_BYTES
_GONE = frozenset(
    {ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID}
)
_KEPT = tuple(
    slice(start - HEADER_AT, end - HEADER_AT)
    for start, end in (
        (layout.LAST_DELTA_AT, layout.MAX_TIMESTAMP_AT),
        (layout.PRODUCER_ID_AT, layout.BATCH_HEADER_BYTES),
    )
)
"""The fields of a header that the staging topic does not change."""


@dataclass(frozen=True, slots=True)
class StagedBatch:
    """One encoded batch.

    topic, partition: where its rows go. staging_partition, offset: where it is. header: from the checksum up
    to the records, as the task sent it.
    """

    topic: str
    partition: int
    staging_partition: int
    offset: int
    header: bytes

    @property
    def count(self) -> int:
        """The number of its records, which is that of its offsets."""
        return int.from_bytes(self.header[layout.COUNT_AT - HEADER_AT :], "big")


class StagedRowsLost(MinikafkaError):
    """Staged batches are not where their task has written them: nothing of the batch was committed."""


def header_of(data: Buffer) -> bytes:
    """Return what ``StagedBatch`` has of the header of an encoded batch."""
    return bytes(data[HEADER_AT:HEADER_END])


def copy(
    cluster: ClusterClient,
    producer: TransactionalProducer,
    staging_topic: str,
    batches: Iterable[StagedBatch],
    timeout_ms: int,
    on_copied: Callable[[int], None] | None = None,
) -> None:
    """Queue all ``batches`` in the open transaction, those of a task in their order. Raise StagedRowsLost if
    one is missing, or the first error of a send. ``on_copied`` is called with the number of acknowledged
    rows now and then; its error ends the copy.
    """
    sends: deque[tuple[SendFuture, int]] = deque()
    copied = 0
    turns = deque(_readers(cluster, staging_topic, batches, timeout_ms))
    _check_ends(cluster, {reader.at: reader.end for reader in turns})
    while turns:
        reader = turns.popleft()
        found = reader.next_sets()
        if found is None:
            continue
        turns.append(reader)
        counts = [count for _, _, count in found]
        sends.extend(zip(producer.send_encoded_sets(found, sealed=False), counts, strict=True))
        while sends and sends[0][0].done:
            future, count = sends.popleft()
            future.result()
            copied += count
        if on_copied is not None:
            on_copied(copied)


def _check_ends(cluster: ClusterClient, ends: Mapping[TopicPartition, int]) -> None:
    """Raise StagedRowsLost if a log is too short: a fetch would wait for what will never come."""
    try:
        found = list_offsets(cluster, dict.fromkeys(ends, LATEST), cluster.deadline())
        for at, end in ends.items():
            if (found[at] or 0) < end and not log_reaches(cluster, at, end):
                raise _lost(at, f"its log ends at {found[at]}, before {end}")
    except BrokerError as error:
        if error.code in _GONE:
            raise _lost(next(iter(ends)), str(error)) from error
        raise


def _lost(at: TopicPartition, why: str) -> StagedRowsLost:
    return StagedRowsLost(
        f"rows that were staged in {at} are gone ({why}): the topic was deleted, made again or trimmed, or "
        "the brokers have lost them; nothing of this batch was committed, so start the query again"
    )


def _readers(
    cluster: ClusterClient, staging_topic: str, batches: Iterable[StagedBatch], timeout_ms: int
) -> Iterator[_PartitionReader]:
    by_partition: dict[int, dict[int, StagedBatch]] = defaultdict(dict)
    for batch in batches:
        by_partition[batch.staging_partition][batch.offset] = batch
    for partition, wanted in sorted(by_partition.items()):
        yield _PartitionReader(cluster, TopicPartition(staging_topic, partition), wanted, timeout_ms)


class _PartitionReader:
    """Reads the wanted batches of one staging partition; the next fetch is under way meanwhile."""

    def __init__(
        self, cluster: ClusterClient, at: TopicPartition, wanted: dict[int, StagedBatch], timeout_ms: int
    ) -> None:
        self.at = at
        self._wanted = wanted
        last = wanted[max(wanted)]
        self.end = last.offset + last.count
        self._fetcher = RangeFetcher(
            cluster,
            at,
            min(wanted),
            self.end,
            max_bytes=FETCH_BYTES,
            timeout_ms=timeout_ms,
            unretried_codes=_GONE,
        )

    def next_sets(self) -> list[tuple[TopicPartition, bytearray, int]] | None:
        """Return the wanted batches of the next response; None at the end."""
        try:
            data = next(self._fetcher, None)
        except BrokerError as error:
            if error.code in _GONE:
                raise _lost(self.at, str(error)) from error
            raise
        if data is not None:
            return list(self._sets_in(data))
        if self._wanted:
            raise _lost(self.at, f"offset {min(self._wanted)} is not in the log")
        return None

    def _sets_in(self, data: memoryview) -> Iterator[tuple[TopicPartition, bytearray, int]]:
        position = 0
        while position < len(data):
            size_at = position + layout.SIZE_AT
            end = size_at + layout.LENGTH_BYTES + int.from_bytes(data[size_at : size_at + 4], "big")
            offset = int.from_bytes(data[position:size_at], "big")
            batch = self._wanted.pop(offset, None)
            if batch is not None:
                copied = self._as_sent(batch, data[position:end])
                yield TopicPartition(batch.topic, batch.partition), copied, batch.count
            position = end

    def _as_sent(self, batch: StagedBatch, stored: memoryview) -> bytearray:
        """Return a batch as its task has sent it."""
        found = stored[HEADER_AT:HEADER_END]
        if any(found[part] != batch.header[part] for part in _KEPT):
            raise _lost(self.at, f"another batch is at offset {batch.offset}")
        copied = bytearray(stored)
        copied[: layout.SIZE_AT] = bytes(layout.SIZE_AT)
        copied[HEADER_AT:HEADER_END] = batch.header
        with memoryview(copied) as view:
            if crc32c(view[layout.BATCH_COVERED_AT :]) != int.from_bytes(batch.header[:4], "big"):
                raise _lost(self.at, f"the batch at offset {batch.offset} is corrupt")
        return copied
