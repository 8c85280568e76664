"""A task's read: one range of offsets -> Arrow record batches, in Spark's columns.

    this thread:      take a batch, hand it to Spark (which sends it to the JVM)
    one more thread:  fetch ─▶ check and decode (kernels, without the GIL) ─▶ at most two batches wait

A task holds at most: one fetch in the making, the batches that wait, and the one that Spark is sending.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition

from minikafka.base.errors import BrokerError, ErrorCode, MinikafkaError, NetworkError, OffsetOutOfRange
from minikafka.clients.admin import LATEST, Admin
from minikafka.clients.cluster import Cluster
from minikafka.clients.fetcher import RangeFetcher
from minikafka.clients.prefetch import prefetching
from minikafka.records.columns import SCHEMA, SCHEMA_WITH_HEADERS, Columns, decode
from pyspark_minikafka import cache, report
from pyspark_minikafka.location import Target, check_reachable
from pyspark_minikafka.options import SourceOptions
from pyspark_minikafka.ranges import DataLoss, OffsetRange
from pyspark_minikafka.workers import forget_importers

if TYPE_CHECKING:
    import pyarrow as pa

ROWS_MAX = 30_000
"""Rows of one record batch. Spark passes batches on as they are; 10,000 to 30,000 rows travel fastest."""

BATCHES_AHEAD = 2


class RangePartition(InputPartition):
    """One task: a range of one topic partition, and where its brokers are. Small, because it is pickled."""

    def __init__(self, offsets: OffsetRange, target: Target) -> None:
        super().__init__(None)
        self.offsets = offsets
        self.target = target

    def __repr__(self) -> str:
        return f"RangePartition({self.offsets})"


def input_partitions(ranges: Iterable[OffsetRange], target: Target) -> list[InputPartition]:
    """One task for each range."""
    return [RangePartition(one, target) for one in ranges]


def read(partition: InputPartition, options: SourceOptions) -> Iterator[pa.RecordBatch]:
    """Record batches of the task's range, in order of offsets.

    Raises DataLoss when records of the range are gone and ``failOnDataLoss`` is true, NetworkError when
    nothing comes for ``kafkaConsumer.pollTimeoutMs``.
    """
    if not isinstance(partition, RangePartition):
        return  # Spark's stand-in for a query without partitions
    try:
        check_reachable(partition.target)
        cluster = cache.reading(partition.target.bootstrap_servers, options.connection)
        task = _bound(cluster, partition.offsets, options)
        yield from prefetching(_RangeReader(cluster, task, options), BATCHES_AHEAD)
    finally:
        forget_importers()


def _bound(cluster: Cluster, task: OffsetRange, options: SourceOptions) -> OffsetRange:
    """``task`` with its end at the latest record of this moment, if that is meant."""
    if not task.to_latest:
        return task
    tp = task.topic_partition
    end = Admin(cluster).offsets({tp: LATEST}, timeout_ms=options.poll_timeout_ms)[tp]
    return task if end is None else replace(task, end=end)


class _RangeReader:
    """The iterator of a task's record batches; used by one thread, but for ``stop``."""

    def __init__(self, cluster: Cluster, task: OffsetRange, options: SourceOptions) -> None:
        self._cluster = cluster
        self._task = task
        self._options = options
        self._position = task.start
        self._fetcher = self._fetch()
        self._batches = self._all()

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return self

    def __next__(self) -> pa.RecordBatch:
        return next(self._batches)

    def stop(self) -> None:
        """Spark wants no more: end a wait for records."""
        self._fetcher.stop()

    def _fetch(self) -> RangeFetcher:
        task, fetch = self._task, self._options.fetch
        return RangeFetcher(
            self._cluster,
            task.topic_partition,
            self._position,
            task.end,
            max_bytes=fetch.max_bytes,
            min_bytes=fetch.min_bytes,
            max_wait_ms=fetch.max_wait_ms,
            timeout_ms=self._options.poll_timeout_ms,
        )

    def _all(self) -> Iterator[pa.RecordBatch]:
        task, with_headers = self._task, self._options.include_headers
        topic, partition = task.topic_partition
        schema = SCHEMA_WITH_HEADERS if with_headers else SCHEMA
        if task.start > task.end:
            self._lost(task.end, f"the log ends at {task.end}")
        while self._position < task.end:
            try:
                for data in self._fetcher:
                    check_crcs = self._options.fetch.check_crcs
                    for columns in _decoded(data, self._position, task.end, check_crcs, with_headers):
                        self._position = columns.next_offset
                        if columns.count:
                            yield from _pieces(columns.record_batch(topic, partition, schema))
                return
            except (OffsetOutOfRange, BrokerError, NetworkError) as problem:
                resume, why = self._loss(problem)
                if not (task.from_earliest and self._position == task.start and resume < task.end):
                    self._lost(resume, why)
                self._position = resume
                self._fetcher = self._fetch()

    def _loss(self, problem: MinikafkaError) -> tuple[int, str]:
        """The next offset that can be read, and why those before it cannot. Raises what loses no data."""
        task = self._task
        if isinstance(problem, OffsetOutOfRange):
            if problem.start_offset < 0:
                return task.end, "the log does not have them and its range is not known"
            resume = problem.start_offset if self._position < problem.start_offset else task.end
            return min(resume, task.end), f"the log has {problem.start_offset} to {problem.end_offset}"
        if isinstance(problem, BrokerError):
            if problem.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                return task.end, "the topic or partition is not there any more"
            raise problem
        end = self._fetcher.high_watermark
        if end is not None and self._position >= end:
            # Planned when they were there: the topic was made anew, or a leader without them was elected.
            return task.end, f"the log ends at {end}"
        raise problem

    def _lost(self, resume: int, why: str) -> None:
        task = self._task
        loss = (
            f"{abs(resume - self._position)} offsets of {task.topic_partition}, from {self._position}, "
            f"cannot be read: {why}"
        )
        if self._options.fail_on_data_loss:
            raise DataLoss([loss]) from None
        report.warn([f"{loss}. They are skipped (failOnDataLoss is false)"])


def _decoded(data: memoryview, start: int, end: int, check_crc: bool, headers: bool) -> Iterator[Columns]:
    """All of ``data``; more than one piece only where it holds more than a column of Arrow does."""
    while True:
        columns = decode(data, start, end, check_crc=check_crc, headers=headers)
        yield columns
        if columns.complete:
            return
        data, start = data[columns.valid_bytes :], columns.next_offset


def _pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """``batch`` in views of at most ROWS_MAX rows."""
    for start in range(0, batch.num_rows, ROWS_MAX):
        yield batch.slice(start, ROWS_MAX)
