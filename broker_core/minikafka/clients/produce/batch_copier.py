"""Copies batches that were staged in a topic to the partitions that they are for, within a transaction.

A batch is found in the staging topic by partition and offset, and known again by its header: the producer's
id, epoch and sequence number are never given twice. So a topic that was made again, or a log that was cut by
an unclean election, is found out before anything is copied.

Batches stay encoded and compressed. Their header is set back to what the task sent (the staging topic stamps
the time of the append), the checksum is verified, and the producer writes its own numbers.

Brokers of minikafka do that themselves, if the leader of the target is an in-sync replica of the staging
partition (``wire.apis.copy_batches``): then no records travel. All other batches are fetched and sent again.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from minikafka.base.errors import BrokerError, ErrorCode, MinikafkaError, NetworkError
from minikafka.base.files import Buffer
from minikafka.base.ids import TopicPartition
from minikafka.clients.fetch.list_offsets import LATEST, list_offsets
from minikafka.clients.fetch.range_fetcher import RangeFetcher, log_reaches
from minikafka.clients.network.cluster import ClusterClient
from minikafka.clients.network.connections import ConnectionPool
from minikafka.clients.produce.batch import BatchSource
from minikafka.clients.produce.send_future import SendFuture
from minikafka.clients.produce.transactional_producer import TransactionalProducer
from minikafka.records.format.batch import MAGIC
from minikafka.records.format.stored_batch import SENT_HEADER_AT, OtherBatch, as_sent, sent_header
from minikafka.records.kernels import layout
from minikafka.wire.apis.copy_batches import COPY_BATCHES

STAGED_MAGIC = MAGIC
"""The format of staged batches."""
FETCH_BYTES = 4 << 20
"""Bytes of a staging partition in one fetch."""
PORTION_BYTES = 4 << 20
"""Bytes of batches that are queued at a time, by the leaders of that time."""
_LOOK_MS = 1_000
"""The time after which acknowledged rows are counted at the latest."""
_GONE = frozenset(
    {ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID}
)


@dataclass(frozen=True, slots=True)
class StagedBatch:
    """One encoded batch.

    topic, partition: where its rows go. staging_partition, offset: where it is. header: from the checksum up
    to the records, as the task sent it. size_bytes: of the whole batch.
    """

    topic: str
    partition: int
    staging_partition: int
    offset: int
    header: bytes
    size_bytes: int

    @classmethod
    def of(cls, target: TopicPartition, at: TopicPartition, offset: int, sent: Buffer) -> StagedBatch:
        """Return that of a batch for ``target`` that was sent to ``at`` and appended at ``offset``."""
        return cls(*target, at.partition, offset, sent_header(sent), len(sent))

    @property
    def target(self) -> TopicPartition:
        """The partition of its rows."""
        return TopicPartition(self.topic, self.partition)

    @property
    def count(self) -> int:
        """The number of its records, which is that of its offsets."""
        return int.from_bytes(self.header[layout.COUNT_AT - SENT_HEADER_AT :], "big")


class StagedRowsLost(MinikafkaError):
    """Staged batches are not where their task has written them: their transaction was not committed."""


def copy(
    cluster: ClusterClient,
    producer: TransactionalProducer,
    staging_topic: str,
    batches: Iterable[StagedBatch],
    timeout_ms: int,
    on_copied: Callable[[int], None] | None = None,
) -> None:
    """Queue all ``batches`` in the open transaction, those of a task in their order, and wait for those that
    brokers copy. Raise StagedRowsLost if one is missing, or the first error of a send. ``on_copied`` is
    called with the number of acknowledged rows now and then; its error ends the copy.
    """
    batches = list(batches)
    cluster.metadata({staging_topic, *(batch.topic for batch in batches)})
    placement = _Placement(cluster, staging_topic)
    far: list[StagedBatch] = []
    sends = _Sends(on_copied)
    for portion in _portions(batches):
        near, others = placement.divided(portion)
        far += others
        copies = [(b.target, _source(cluster, staging_topic, timeout_ms, b), b.count) for b in near]
        sends.add(producer.send_copies(copies))
    turns = deque(_readers(cluster, staging_topic, far, timeout_ms))
    _check_ends(cluster, {reader.at: reader.end for reader in turns})
    while turns:
        reader = turns.popleft()
        found = reader.next_sets()
        if found is None:
            continue
        turns.append(reader)
        sends.add(producer.send_encoded_sets(found, sealed=False))
    while len(far) < len(batches) and sends.left:
        producer.wait(sends.left, cluster.deadline(_LOOK_MS))
        sends.settle()


class _Sends:
    """The batches that were sent, in their order."""

    def __init__(self, on_copied: Callable[[int], None] | None) -> None:
        self.left: deque[SendFuture] = deque()
        self._on_copied = on_copied
        self._copied = 0

    def add(self, futures: Iterable[SendFuture]) -> None:
        """Take what was sent, and settle."""
        self.left.extend(futures)
        self.settle()

    def settle(self) -> None:
        """Count the first ones that are done. Raise the error of one."""
        while self.left and self.left[0].done:
            future = self.left.popleft()
            future.result()
            self._copied += future.count
        if self._on_copied is not None:
            self._on_copied(self._copied)


def _portions(batches: Iterable[StagedBatch]) -> Iterator[list[StagedBatch]]:
    portion: list[StagedBatch] = []
    size_bytes = 0
    for batch in batches:
        portion.append(batch)
        size_bytes += batch.size_bytes
        if size_bytes >= PORTION_BYTES:
            yield portion
            portion, size_bytes = [], 0
    if portion:
        yield portion


class _Placement:
    """Tells which batches brokers can copy, by the leaders that are known at the moment."""

    def __init__(self, cluster: ClusterClient, staging_topic: str) -> None:
        self._cluster = cluster
        self._staging_topic = staging_topic
        self._able: dict[int, bool] = {}
        self._near: dict[tuple[TopicPartition, int], bool] = {}
        """Target and staging partition -> True if its leader can copy. Once False, it stays so, and the
        batches keep their order.
        """

    def divided(self, batches: Sequence[StagedBatch]) -> tuple[list[StagedBatch], list[StagedBatch]]:
        """Return the batches that brokers can copy, and the others."""
        for pair in {(batch.target, batch.staging_partition) for batch in batches}:
            if self._near.get(pair, True):
                self._near[pair] = self._is_near(*pair)
        divided: tuple[list[StagedBatch], list[StagedBatch]] = [], []
        for batch in batches:
            divided[not self._near[batch.target, batch.staging_partition]].append(batch)
        return divided

    def _is_near(self, target: TopicPartition, staging_partition: int) -> bool:
        leader = self._cluster.known_leader(target)
        if leader is None:
            # Perhaps just stale: the producer looks it up, and the new leader refuses if it cannot copy.
            return self._near.get((target, staging_partition), False)
        replicas = self._cluster.known_in_sync(TopicPartition(self._staging_topic, staging_partition))
        if leader not in (replicas or ()):
            return False
        if leader not in self._able:
            self._able[leader] = _copies_batches(self._cluster, leader)
        return self._able[leader]


def _copies_batches(cluster: ClusterClient, broker_id: int) -> bool:
    """Return True if a broker has the API for copies."""
    try:
        cluster.connection(broker_id, ConnectionPool.PRODUCE).version(COPY_BATCHES, cluster.deadline())
    except (BrokerError, NetworkError):
        return False
    return True


def _source(cluster: ClusterClient, staging_topic: str, timeout_ms: int, batch: StagedBatch) -> BatchSource:
    at = TopicPartition(staging_topic, batch.staging_partition)
    load = partial(_load, cluster, at, batch, timeout_ms)
    return BatchSource(at, batch.offset, batch.header, batch.size_bytes, load)


def _load(cluster: ClusterClient, at: TopicPartition, batch: StagedBatch, timeout_ms: int) -> bytearray:
    """Fetch one batch, that its broker did not copy."""
    reader = _PartitionReader(cluster, at, {batch.offset: batch}, timeout_ms, batch.size_bytes)
    _check_ends(cluster, {at: reader.end})
    for found in iter(reader.next_sets, None):
        for _, data, _ in found:
            return data
    raise _lost(at, f"offset {batch.offset} is not in the log")


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
        at = TopicPartition(staging_topic, partition)
        yield _PartitionReader(cluster, at, wanted, timeout_ms, FETCH_BYTES)


class _PartitionReader:
    """Reads the wanted batches of one staging partition; the next fetch is under way meanwhile."""

    def __init__(
        self,
        cluster: ClusterClient,
        at: TopicPartition,
        wanted: dict[int, StagedBatch],
        timeout_ms: int,
        fetch_bytes: int,
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
            max_bytes=fetch_bytes,
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
                try:
                    copied = as_sent(data[position:end], batch.header)
                except OtherBatch as error:
                    raise _lost(self.at, str(error)) from error
                yield batch.target, copied, batch.count
            position = end
