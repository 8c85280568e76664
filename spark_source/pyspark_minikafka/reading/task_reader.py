"""The read of a task: fetches its ranges of offsets and yields Arrow record batches, in Spark's columns.

    this thread:    take a batch, hand it to Spark (which sends it to the JVM)
    second thread:  fetch ─▶ check and decode (kernels, without the GIL) ─▶ join ─▶ at most two batches wait

The ranges of a task are read one after another, but their beginnings are fetched together, by one request to
each leader: small ranges are complete with that. The record batches of small ranges are joined, as each batch
has a cost of its own in the JVM. The rows of a partition stay in order.

A task holds at most: two shared fetches of each leader, one fetch being decoded, the batch being joined, the
waiting batches, and the one that Spark is sending.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition

from minikafka.base.errors import MinikafkaError
from minikafka.base.ids import TopicPartition
from minikafka.clients.fetch.fetch_state import FetchSettings
from minikafka.clients.fetch.list_offsets import LATEST, list_offsets
from minikafka.clients.fetch.prefetch import prefetched
from minikafka.clients.fetch.shared_fetch import Beginning, FirstFetch, SharedFetch
from minikafka.clients.network.cluster import ClusterClient
from pyspark_minikafka import cache, report, workers
from pyspark_minikafka.location import check_reachable
from pyspark_minikafka.options.options import SourceOptions
from pyspark_minikafka.planning.ranges import OffsetRange
from pyspark_minikafka.planning.tasks import ReadTask
from pyspark_minikafka.reading import task_reports
from pyspark_minikafka.reading.range_reader import RangeReader, RowBuilder
from pyspark_minikafka.reading.task_reports import ReportAddress

if TYPE_CHECKING:
    import pyarrow as pa

ROWS_MAX = 30_000
BATCH_BYTES = 1 << 20
"""The most rows of one record batch, and about its most bytes. Spark passes batches on unchanged, and the JVM
holds a batch whole. Spark 4.0 needs 0.53 µs in the JVM for a row of 1 kB in batches of 1 MB, 0.59 of 2 MB and
0.76 of 30 MB; for a row of 10 kB 4.2, 4.6 and 6.2 (20 MB). Batches of 5,000 to 100,000 rows of 10 or 100
bytes cost the same.
"""
JOINED_ROWS = 4_000
JOINED_BYTES = 1 << 20
"""A record batch of so many rows or bytes is not joined with others: the copy would cost more."""
SHARED_BYTES = 8 << 20
"""The most bytes of a shared fetch."""
_SPARE_BYTES = 32 << 10
"""Room for what a fetch has besides the range: brokers send the batch around its first record whole."""

BATCHES_AHEAD = 2


def read(partition: InputPartition, options: SourceOptions) -> Iterator[pa.RecordBatch]:
    """Yield the record batches of the task's ranges, each in order of offsets.

    Raise DataLoss when records of a range are gone and ``failOnDataLoss`` is true, NetworkError when no
    records arrive for ``kafkaConsumer.pollTimeoutMs``.
    """
    if not isinstance(partition, ReadTask):
        return  # Spark's stand-in for a query without partitions
    with workers.task(), workers.readable_errors():
        check_reachable(partition.target)
        cluster = cache.reading(
            partition.target.bootstrap_servers, partition.target.connection(options.connection)
        )
        reader = TaskReader(cluster, partition, options)
        yield from prefetched(reader, BATCHES_AHEAD)
        for done in reader.done:
            report.note(done.stats.summary(done.task), shown=options.log_tasks)
        if options.report_address is not None:
            _report(options.report_address, reader.done)


def _report(address: ReportAddress, done: Sequence[RangeReader]) -> None:
    """Report what a task has read to the listener that its query names."""
    from pyspark import TaskContext

    from minikafka.net.datagrams import send_datagrams

    context = TaskContext.get()
    query_id = None if context is None else context.getLocalProperty("sql.streaming.queryId")
    ranges = ((each.task.topic_partition, each.stats.totals) for each in done)
    datagrams = task_reports.datagrams(address.token, query_id or "", ranges)
    send_datagrams(address.host, address.port, datagrams)


class TaskReader:
    """The iterator of a task's record batches. Only ``stop`` may be called by another thread."""

    def __init__(self, cluster: ClusterClient, task: ReadTask, options: SourceOptions) -> None:
        self.done: list[RangeReader] = []
        """The readers of the ranges that were read."""
        self._cluster = cluster
        self._task = task
        self._options = options
        self._rows = RowBuilder(options, task.target)
        self._stopped = False
        self._shared: SharedFetch | None = None
        self._reader: RangeReader | None = None
        self._batches = joined(self._all())

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return self

    def __next__(self) -> pa.RecordBatch:
        return next(self._batches)

    def stop(self) -> None:
        """End a wait for records: Spark reads no more."""
        self._stopped = True
        for waiting in (self._shared, self._reader):
            if waiting is not None:
                waiting.stop()

    def _all(self) -> Iterator[pa.RecordBatch]:
        latest = self._latest()
        for part, first in self._first_fetches(latest):
            end = latest.get(part.topic_partition)
            self._reader = RangeReader(
                self._cluster, part, self._options, self._rows, latest=end, first=first
            )
            if self._stopped:
                return
            yield from self._reader
            self.done.append(self._reader)

    def _latest(self) -> Mapping[TopicPartition, int]:
        """Return the ends of the logs that are read to their latest records, by one request to each leader.

        Nothing where that fails: each range looks up its own end then, with its own time, and decides about
        the error.
        """
        asked = {part.topic_partition: LATEST for part in self._task.ranges if part.to_latest}
        if len(asked) < 2:
            return {}
        timeout_ms = min(self._options.poll_timeout_ms, self._cluster.request_timeout_ms)
        deadline = self._cluster.deadline(timeout_ms)
        try:
            found = list_offsets(self._cluster, asked, deadline, self._options.fetch.isolation)
        except MinikafkaError:
            return {}
        return {tp: end for tp, end in found.items() if end is not None}

    def _first_fetches(
        self, latest: Mapping[TopicPartition, int]
    ) -> Iterator[tuple[OffsetRange, FirstFetch | None]]:
        """Yield the ranges with what was fetched of them; parts of one partition in their order."""
        fetch, shared = self._options.fetch, {}
        beginnings: dict[TopicPartition, Beginning] = {}
        alone = []
        for part in self._task.ranges:
            tp = part.topic_partition
            end = latest.get(tp) if part.to_latest else part.end
            if end is not None and part.start < end and tp not in shared:
                # Half as much again, as it is an estimate: what is missing costs a request of its own.
                wanted = round((end - part.start) * self._task.offset_bytes * 1.5) + _SPARE_BYTES
                beginnings[tp] = Beginning(part.start, min(wanted, fetch.max_bytes))
                shared[tp] = part
            else:
                alone.append(part)
        if len(shared) > 1:
            self._shared = SharedFetch(
                self._cluster, beginnings, self._settings(), timeout_ms=self._options.poll_timeout_ms
            )
            for tp, first in self._shared:
                yield shared[tp], first
        else:
            alone = list(self._task.ranges)
        for part in alone:
            yield part, None

    def _settings(self) -> FetchSettings:
        fetch = self._options.fetch
        return FetchSettings(
            partition_max_bytes=fetch.max_bytes,
            max_bytes=max(fetch.max_bytes, SHARED_BYTES),
            message_max_bytes=fetch.max_bytes,
            min_bytes=fetch.min_bytes,
            max_wait_ms=fetch.max_wait_ms,
            isolation=fetch.isolation,
            retry_backoff=self._cluster.backoff,
            rack=fetch.rack,
        )


def joined(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the same rows with small batches joined, and large ones in views of about equal size."""
    small: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        is_small = batch.num_rows < JOINED_ROWS and batch.nbytes < JOINED_BYTES
        if small and (not is_small or rows + batch.num_rows > ROWS_MAX or size >= JOINED_BYTES):
            yield _one(small)
            small, rows, size = [], 0, 0
        if is_small:
            small.append(batch)
            rows, size = rows + batch.num_rows, size + batch.nbytes
        else:
            yield from _views(batch)
    if small:
        yield _one(small)


def _views(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    parts = max(-(-batch.num_rows // ROWS_MAX), min(round(batch.nbytes / BATCH_BYTES), batch.num_rows))
    rows = -(-batch.num_rows // parts)
    for start in range(0, batch.num_rows, rows):
        yield batch.slice(start, rows)


def _one(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    if len(batches) == 1:
        return batches[0]
    import pyarrow as pa

    return pa.Table.from_batches(batches).combine_chunks().to_batches()[0]
