"""The write of a task: encodes Arrow record batches and sends them to the brokers.

    record batches ─▶ merged, if there are many partitions ─▶ partition ids (numpy, murmur2 kernel)
    ─▶ rows of each partition ─▶ encoded batches (kernel) ─▶ BatchingProducer

With exactly once, batches go to the staging topic instead (``exactly_once``), and the result says where each
is.

The producer sends in the background and holds at most ``kafka.buffer.memory`` bytes; when it is full, this
thread waits. A batch that a broker refuses for good ends the task at the next record batch.
"""

from __future__ import annotations

import itertools
import random
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from minikafka.base.errors import BrokerError, ErrorCode, NetworkError
from minikafka.base.files import Buffer
from minikafka.base.ids import TopicPartition
from minikafka.clients.network.cluster import ClusterClient
from minikafka.clients.network.metadata import TopicMetadata
from minikafka.clients.produce import BatchingProducer
from minikafka.clients.produce.batch_copier import STAGED_MAGIC, StagedBatch
from minikafka.records.columns import RawHeaders, encode, group_rows, partitions_by_key, raw_headers
from pyspark_minikafka import cache
from pyspark_minikafka.location import Target
from pyspark_minikafka.options.kafka_options import BATCH_BYTES
from pyspark_minikafka.options.options import SinkOptions
from pyspark_minikafka.schema import BadColumn, SinkColumns
from pyspark_minikafka.writing.routing import RoundRobin, fill_unassigned, override

if TYPE_CHECKING:
    import numpy.typing as npt

    from pyspark_minikafka.formats.value_format import ValueFormat

    Rows = npt.NDArray[np.int64]
    Longs = npt.NDArray[np.int64]


PARTITION_BYTES = 64 << 10
"""The target size of a partition's rows at a time, if the producer's buffer has room for that much of all
partitions. Spark's record batches have 10,000 rows: in a topic with hundreds of partitions, each would get
only a few rows.
"""


def send(
    batches: Iterator[pa.RecordBatch], options: SinkOptions, target: Target, columns: SinkColumns
) -> tuple[int, int]:
    """Send every row and wait until all are acknowledged. Return the rows, and the bytes as encoded."""
    cluster = cache.writing(target.bootstrap_servers, target.connection(options.connection))
    with cache.producing(cluster, options.producer) as producer:
        task = _TaskWriter(cluster, producer, options, columns)
        for batch in merged(batches, task.wanted_bytes):
            task.add(batch)
        return task.finish()


def stage(
    batches: Iterator[pa.RecordBatch],
    options: SinkOptions,
    target: Target,
    columns: SinkColumns,
    staging_partition: Callable[[TopicPartition], TopicPartition],
) -> tuple[int, int, list[StagedBatch]]:
    """Send every row to the ``staging_partition`` of its own one, and wait until all are acknowledged. Return
    the rows, the bytes as encoded, and the batches.
    """
    connection = target.connection(options.connection)
    cluster = cache.writing(target.bootstrap_servers, connection)
    producer_config = replace(options.producer, idempotence=True)
    with cache.producing(cache.staging(target.bootstrap_servers, connection), producer_config) as producer:
        task = _StagingWriter(cluster, producer, options, columns, staging_partition)
        for batch in merged(batches, task.wanted_bytes):
            task.add(batch)
        rows, sent_bytes = task.finish()
        return rows, sent_bytes, task.staged


def merged(batches: Iterator[pa.RecordBatch], wanted_bytes: Callable[[], int]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of ``batches`` in batches of at least ``wanted_bytes()`` each, except for the last."""
    waiting: list[pa.RecordBatch] = []
    size = 0
    for batch in itertools.chain(batches, [None]):
        if batch is not None and batch.num_rows:
            waiting.append(batch)
            size += batch.nbytes
        if waiting and (batch is None or size >= wanted_bytes()):
            if len(waiting) > 1:
                waiting = pa.Table.from_batches(waiting).combine_chunks().to_batches()
            yield from waiting
            waiting, size = [], 0


class _TaskWriter:
    """The write of one task: routes, encodes and queues its rows, and collects the results."""

    def __init__(
        self, cluster: ClusterClient, producer: BatchingProducer, options: SinkOptions, columns: SinkColumns
    ) -> None:
        self._cluster = cluster
        self._options = options
        self._columns = columns
        self._config = producer.config
        self._producer = producer
        self._round_robin: dict[str, RoundRobin] = {}
        self._in_flight: deque[Any] = deque()
        self._encoded: list[tuple[TopicPartition, Buffer, int]] = []
        self._encoded_bytes = 0
        self._most_partitions = 1
        self._rows = 0
        self._bytes = 0
        self._batch_bytes = min(self._config.batch_bytes or BATCH_BYTES, self._config.max_request_bytes)

    def wanted_bytes(self) -> int:
        """Return the bytes to add at a time, for the topics seen so far."""
        return min(PARTITION_BYTES * self._most_partitions, self._config.buffer_bytes // 2)

    def add(self, batch: pa.RecordBatch) -> None:
        """Queue the rows of one record batch."""
        columns = self._columns
        topics = list(self._topics(batch))
        formats = self._options.formats
        keys = None if columns.key is None else _encoded(formats.key, batch.column(columns.key), topics)
        values = _encoded(formats.value, batch.column(columns.value), topics)
        timestamps = self._timestamps(batch)
        headers = None if columns.headers is None else raw_headers(batch.column(columns.headers))
        for topic, rows in topics:
            for partition, chosen in self._by_partition(batch, keys, topic, rows):
                self._queue(TopicPartition(topic, partition), keys, values, timestamps, chosen, headers)
        self._rows += batch.num_rows
        self._send_encoded()
        self._check(wait=False)

    def finish(self) -> tuple[int, int]:
        """Wait for all acknowledgements. Return the rows, and the bytes as encoded."""
        self._producer.flush()
        self._check(wait=True)
        return self._rows, self._bytes

    def _queue(
        self,
        tp: TopicPartition,
        keys: pa.Array | None,
        values: pa.Array,
        timestamps: Longs,
        rows: Rows,
        headers: RawHeaders | None,
    ) -> None:
        magic = self._magic(tp)
        if magic < 2 and headers is not None:
            # Rows without headers can be written.
            if (headers.ends[rows + 1] > headers.ends[rows]).any():
                raise BrokerError(
                    ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
                    f"rows for {tp} have headers, which its broker does not support (they need Kafka 0.11 or "
                    "later); drop the column headers",
                )
            headers = None
        if magic < 2 and self._config.compression.name == "ZSTD":
            raise BrokerError(
                ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
                f"the broker of {tp} does not support kafka.compression.type=zstd (it needs Kafka 2.1 or "
                "later); choose another compression type",
            )
        batches = encode(
            keys,
            values,
            timestamps,
            rows,
            magic=magic,
            codec=self._config.compression,
            max_bytes=self._batch_bytes,
            headers=headers,
            sealed=False,
        )
        for encoded in batches:
            if len(encoded.data) > self._config.max_request_bytes:
                raise BrokerError(
                    ErrorCode.MESSAGE_TOO_LARGE,
                    f"a row for {tp} takes {len(encoded.data)} bytes, more than kafka.max.request.size="
                    f"{self._config.max_request_bytes}",
                )
            self._bytes += len(encoded.data)
            if self._encoded_bytes + len(encoded.data) > self._config.max_request_bytes:
                self._send_encoded()
            self._encoded.append((tp, encoded.data, encoded.count))
            self._encoded_bytes += len(encoded.data)

    def _send_encoded(self) -> None:
        """Hand the encoded sets to the producer: about one request's worth together."""
        if self._encoded:
            self._in_flight.extend(self._producer.send_encoded_sets(self._encoded, sealed=False))
            self._encoded, self._encoded_bytes = [], 0

    def _check(self, *, wait: bool) -> None:
        """Raise the first error among the completed sends; with ``wait``, wait for all of them."""
        while self._in_flight and (wait or self._in_flight[0].done):
            self._in_flight.popleft().result()

    def _magic(self, tp: TopicPartition) -> int:
        """Return the format to encode in."""
        return self._producer.magic(tp)

    def _topics(self, batch: pa.RecordBatch) -> Iterator[tuple[str, Rows | None]]:
        """Yield each topic with the numbers of its rows; None means all rows."""
        if self._columns.topic is None:
            assert self._options.topic is not None
            yield self._options.topic, None
            return
        column = batch.column(self._columns.topic)
        if column.null_count:
            raise BadColumn("a row has a null topic; fill the column topic, or set the option topic")
        encoded = column.dictionary_encode()
        names = encoded.dictionary.to_pylist()
        if len(names) == 1:
            yield names[0], None
            return
        for code, rows in group_rows(np.asarray(encoded.indices).astype(np.int32, copy=False)):
            yield names[code], rows

    def _by_partition(
        self, batch: pa.RecordBatch, keys: pa.Array | None, topic: str, rows: Rows | None
    ) -> Iterator[tuple[int, Rows]]:
        """Yield each partition with the numbers of its rows, among ``rows`` of the batch; None means all."""
        named = None if self._columns.partition is None else batch.column(self._columns.partition)
        if named is not None and rows is not None:
            named = named.take(pa.array(rows))
        found = self._topic(topic)
        if named is not None and np.asarray(named.fill_null(0)).max() >= len(found.partitions):
            # Partitions may have been added since this worker looked the topic up.
            self._cluster.invalidate(topic)
            found = self._topic(topic)
        partitions = len(found.partitions)
        available = found.available or tuple(range(partitions))
        self._most_partitions = max(self._most_partitions, partitions)
        round_robin = self._round_robin.get(topic)
        if round_robin is None:
            # Tasks start at random partitions; otherwise many small ones would all fill the first.
            round_robin = self._round_robin[topic] = RoundRobin(random.randrange(1 << 16))
        count = batch.num_rows if rows is None else len(rows)
        if keys is None and named is None:
            end = 0
            for partition, size in round_robin.blocks(count, available):
                start, end = end, end + size
                yield partition, np.arange(start, end, dtype=np.int64) if rows is None else rows[start:end]
            return
        if keys is None:
            ids = np.full(count, -1, dtype=np.int32)
        else:
            ids = partitions_by_key(keys if rows is None else keys.take(pa.array(rows)), partitions)
        if named is not None:
            ids = override(ids, named, partitions, topic)
        for partition, chosen in group_rows(fill_unassigned(ids, round_robin, available)):
            yield partition, chosen if rows is None else rows[chosen]

    def _topic(self, name: str) -> TopicMetadata:
        """Return a topic with its partitions, waiting for at most ``kafka.max.block.ms``.

        For unreachable brokers the wait is that of a read, ``kafka.request.timeout.ms``.
        """
        block_ms = self._config.max_block_ms
        if self._cluster.known_topic(name) is None:
            self._cluster.metadata([name], timeout_ms=min(block_ms, self._config.request_timeout_ms))
        return self._cluster.topic(name, block_ms)

    def _timestamps(self, batch: pa.RecordBatch) -> Longs:
        """Return milliseconds for every row; the present time where the column is absent or null."""
        now_ms = time.time_ns() // 1_000_000
        if self._columns.timestamp is None:
            return np.full(batch.num_rows, now_ms, dtype=np.int64)
        return timestamps_ms(
            batch.column(self._columns.timestamp), now_ms, is_ms=self._columns.timestamp_is_ms
        )


class _StagingWriter(_TaskWriter):
    """The write of one task exactly once: its batches go to a staging topic."""

    def __init__(
        self,
        cluster: ClusterClient,
        producer: BatchingProducer,
        options: SinkOptions,
        columns: SinkColumns,
        staging_partition: Callable[[TopicPartition], TopicPartition],
    ) -> None:
        super().__init__(cluster, producer, options, columns)
        self._staging_partition = staging_partition
        self._sent: deque[tuple[Any, TopicPartition, Buffer]] = deque()
        self.staged: list[StagedBatch] = []

    def _magic(self, tp: TopicPartition) -> int:
        return STAGED_MAGIC

    def _send_encoded(self) -> None:
        if not self._encoded:
            return
        encoded, self._encoded, self._encoded_bytes = self._encoded, [], 0
        sets = [(self._staging_partition(tp), data, count) for tp, data, count in encoded]
        futures = self._producer.send_encoded_sets(sets, sealed=False, splits=False)
        for future, (tp, data, _) in zip(futures, encoded, strict=True):
            self._sent.append((future, tp, data))

    def _check(self, *, wait: bool) -> None:
        while self._sent and (wait or self._sent[0][0].done):
            future, tp, data = self._sent.popleft()
            at = future.result()
            if at.offset < 0:
                raise NetworkError(
                    f"the offset of a batch in {at.topic_partition} is not known: stage it again"
                )
            # The producer has written its numbers into the batch.
            self.staged.append(StagedBatch.of(tp, at.topic_partition, at.offset, data))


def timestamps_ms(column: pa.Array, now_ms: int, *, is_ms: bool) -> Longs:
    """Return milliseconds since the epoch, ``now_ms`` where null. Raise BadColumn for a time before 1970,
    which Kafka cannot store.

    column: int64 milliseconds with ``is_ms``, else timestamp[us] or int64 microseconds.
    """
    numbers = column.cast(pa.int64())
    present = np.asarray(numbers.is_valid())
    found = np.asarray(numbers.fill_null(0))
    if not is_ms:
        found = np.floor_divide(found, 1_000)
    if (found < 0).any():
        raise BadColumn(f"the column timestamp holds {found.min()} ms: a time before 1970 cannot be stored")
    return np.where(present, found, now_ms).astype(np.int64, copy=False)


def _encoded(
    value_format: ValueFormat | None, column: pa.Array, topics: Sequence[tuple[str, Rows | None]]
) -> pa.Array:
    """Return the bytes of ``column``, encoded for the topic of each row."""
    if value_format is None:
        return as_binary(column)
    parts, numbers = [], []
    for topic, rows in topics:
        if rows is None:
            return value_format.encode(column, topic)
        parts.append(value_format.encode(column.take(pa.array(rows)), topic))
        numbers.append(rows)
    return pa.concat_arrays(parts).take(pa.array(np.argsort(np.concatenate(numbers))))


def as_binary(column: pa.Array) -> pa.Array:
    """Return ``column``, of strings or bytes in any Arrow layout, as pa.BinaryArray; strings as UTF-8."""
    return column if column.type == pa.binary() else column.cast(pa.binary())
