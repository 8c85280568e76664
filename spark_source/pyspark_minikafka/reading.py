"""A task's read: one range of offsets -> Arrow record batches, in Spark's columns.

    this thread:      take a batch, hand it to Spark (which sends it to the JVM)
    one more thread:  fetch ─▶ check and decode (kernels, without the GIL) ─▶ at most two batches wait

A task holds at most: one fetch in the making, the batches that wait, and the one that Spark is sending.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition

from minikafka.base.errors import BrokerError, ErrorCode, MinikafkaError, NetworkError, OffsetOutOfRange
from minikafka.base.text import counted
from minikafka.clients.fetch.list_offsets import LATEST, list_offsets
from minikafka.clients.fetch.prefetch import prefetched
from minikafka.clients.fetch.range_fetcher import RangeFetcher, log_reaches
from minikafka.clients.network.cluster import ClusterClient
from minikafka.records.columns import SCHEMA, SCHEMA_WITH_HEADERS, DamagedEntry, decode_pieces
from pyspark_minikafka import cache, report, workers
from pyspark_minikafka.location import check_reachable
from pyspark_minikafka.options import SourceOptions
from pyspark_minikafka.ranges import DataLoss, OffsetRange
from pyspark_minikafka.tasks import RangePartition

if TYPE_CHECKING:
    import pyarrow as pa

ROWS_MAX = 30_000
"""Rows of one record batch. Spark passes batches on as they are; 10,000 to 30,000 rows travel fastest."""

BATCHES_AHEAD = 2


def read(partition: InputPartition, options: SourceOptions) -> Iterator[pa.RecordBatch]:
    """Record batches of the task's range, in order of offsets.

    Raises DataLoss when records of the range are gone and ``failOnDataLoss`` is true, NetworkError when
    nothing comes for ``kafkaConsumer.pollTimeoutMs``.
    """
    if not isinstance(partition, RangePartition):
        return  # Spark's stand-in for a query without partitions
    with workers.task(), workers.plainly():
        check_reachable(partition.target)
        cluster = cache.reading(partition.target.bootstrap_servers, options.connection)
        reader = _RangeReader(cluster, partition.offsets, options)
        yield from prefetched(reader, BATCHES_AHEAD)
        report.note(reader.work.sentence(reader.task), shown=options.log_tasks)


@dataclass(slots=True)
class Work:
    """The work of a task: rows, bytes as fetched, and the time to fetch and to decode.

    skipped: offsets that could not be read.
    """

    rows: int = 0
    fetched_bytes: int = 0
    fetch_ns: int = 0
    decode_ns: int = 0
    skipped: int = 0

    def sentence(self, task: OffsetRange) -> str:
        """For the log."""
        skipped = f", {self.skipped:,} offsets skipped" if self.skipped else ""
        return (
            f"read {self.rows:,} rows of {task.topic_partition} from {task.start} to {task.end}: "
            f"{self.fetched_bytes:,} bytes, fetched in {self.fetch_ns / 1e9:.3f} s and decoded in "
            f"{self.decode_ns / 1e9:.3f} s{skipped}"
        )


class _RangeReader:
    """The iterator of a task's record batches; used by one thread, but for ``stop``."""

    def __init__(self, cluster: ClusterClient, task: OffsetRange, options: SourceOptions) -> None:
        self.task = task
        self.work = Work()
        self._cluster = cluster
        self._options = options
        self._position = task.start
        self._stopped = False
        self._fetcher = self._fetch()
        self._batches = self._all()

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return self

    def __next__(self) -> pa.RecordBatch:
        return next(self._batches)

    def stop(self) -> None:
        """Spark wants no more: end a wait for records."""
        self._stopped = True
        self._fetcher.stop()

    def _fetch(self) -> RangeFetcher:
        task, fetch = self.task, self._options.fetch
        return RangeFetcher(
            self._cluster,
            task.topic_partition,
            self._position,
            task.end,
            max_bytes=fetch.max_bytes,
            min_bytes=fetch.min_bytes,
            max_wait_ms=fetch.max_wait_ms,
            timeout_ms=self._options.poll_timeout_ms,
            isolation=fetch.isolation,
        )

    def _fetch_anew(self) -> None:
        self._fetcher = self._fetch()
        if self._stopped:
            self._fetcher.stop()  # ``stop`` may have met the one before

    def _bind_end(self) -> None:
        """Find out where the log ends now, if the task reads to there.

        That is not before where it ended when the query was planned, unless the log itself went back: just
        after an election only the high watermark may be there.
        """
        tp, planned = self.task.topic_partition, self.task.end
        deadline = self._cluster.deadline(self._options.poll_timeout_ms)
        end = list_offsets(self._cluster, {tp: LATEST}, deadline, self._options.fetch.isolation)[tp]
        if end is not None and end < planned and log_reaches(self._cluster, tp, planned):
            end = planned
        if end is not None:
            self.task = replace(self.task, end=end)
            self._fetch_anew()
            if self._position > end:
                self._lost(end, f"the log ends at {end}")

    def _all(self) -> Iterator[pa.RecordBatch]:
        bound = not self.task.to_latest
        while not bound or self._position < self.task.end:
            try:
                if not bound:
                    self._bind_end()
                    bound = True
                for data in self._fetched():
                    yield from self._rows_of(data)
                return
            except (OffsetOutOfRange, BrokerError, NetworkError, DamagedEntry) as problem:
                resume, why = self._loss(problem)
                bound = True
                task = self.task
                if not (task.from_earliest and self._position == task.start and resume < task.end):
                    self._lost(resume, why)
                self._position = resume
                self._fetch_anew()

    def _fetched(self) -> Iterator[memoryview]:
        sets = iter(self._fetcher)
        while True:
            began = time.perf_counter_ns()
            data = next(sets, None)
            self.work.fetch_ns += time.perf_counter_ns() - began
            if data is None:
                return
            self.work.fetched_bytes += len(data)
            yield data

    def _rows_of(self, data: memoryview) -> Iterator[pa.RecordBatch]:
        """The rows of one message set; DamagedEntry behind those that came before the damage."""
        topic, partition = self.task.topic_partition
        options = self._options
        pieces = decode_pieces(
            data,
            self._position,
            self.task.end,
            check_crc=options.fetch.check_crcs,
            headers=options.include_headers,
        )
        while True:
            began = time.perf_counter_ns()
            columns = next(pieces, None)
            batch = None
            if columns is not None and columns.count:
                schema = SCHEMA_WITH_HEADERS if options.include_headers else SCHEMA
                batch = columns.record_batch(topic, partition, schema)
            self.work.decode_ns += time.perf_counter_ns() - began
            if columns is None:
                return
            self._position = columns.next_offset
            if batch is not None:
                self.work.rows += batch.num_rows
                yield from _pieces(batch)

    def _loss(self, problem: MinikafkaError) -> tuple[int, str]:
        """The next offset that can be read, and why those before it cannot. Raises what loses no data."""
        task = self.task
        if isinstance(problem, DamagedEntry):
            return min(problem.after_offset, task.end), f"the record there is damaged: {problem.detail}"
        if isinstance(problem, OffsetOutOfRange):
            resume = problem.start_offset if self._position < problem.start_offset else task.end
            return min(resume, task.end), f"the log has {problem.start_offset} to {problem.end_offset}"
        if isinstance(problem, BrokerError):
            if problem.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                return task.end, "the topic or partition is not there any more"
            if problem.code is ErrorCode.CORRUPT_MESSAGE:
                # Not even where the next one begins can be told.
                return task.end, problem.detail
            raise problem
        end, after = self._fetcher.high_watermark, self._position + 1
        if end is not None and after > end and not log_reaches(self._cluster, task.topic_partition, after):
            # Planned when they were there: the topic was made anew, or a leader without them was elected.
            return task.end, f"the log ends at {end}"
        raise problem

    def _lost(self, resume: int, why: str) -> None:
        count = abs(resume - self._position)
        what = f"{counted(count, 'offset')} of {self.task.topic_partition}, from {self._position},"
        loss = f"{what} cannot be read: {why}"
        if self._options.fail_on_data_loss:
            raise DataLoss([loss]) from None
        self.work.skipped += count
        report.warn([f"{loss}. Skipped, as failOnDataLoss is false"])


def _pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """``batch`` in views of at most ROWS_MAX rows."""
    for start in range(0, batch.num_rows, ROWS_MAX):
        yield batch.slice(start, ROWS_MAX)
