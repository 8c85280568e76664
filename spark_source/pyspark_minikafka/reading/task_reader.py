"""The read of a task: fetches one range of offsets and yields Arrow record batches, in Spark's columns.

    this thread:    take a batch, hand it to Spark (which sends it to the JVM)
    second thread:  fetch ─▶ check and decode (kernels, without the GIL) ─▶ at most two batches wait

A task holds at most: one fetch being decoded, the waiting batches, and the one that Spark is sending.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition

from minikafka.base.errors import (
    BrokerError,
    ErrorCode,
    LogTruncated,
    MinikafkaError,
    NetworkError,
    OffsetOutOfRange,
)
from minikafka.base.text import counted
from minikafka.clients.fetch.list_offsets import LATEST, list_offsets
from minikafka.clients.fetch.prefetch import prefetched
from minikafka.clients.fetch.range_fetcher import RangeFetcher, log_reaches
from minikafka.clients.network.cluster import ClusterClient
from minikafka.records.columns import DamagedEntry, decode_pieces, schema_of
from pyspark_minikafka import cache, report, workers
from pyspark_minikafka.location import check_reachable
from pyspark_minikafka.options.options import SourceOptions
from pyspark_minikafka.planning.ranges import DataLoss, OffsetRange
from pyspark_minikafka.planning.tasks import RangePartition
from pyspark_minikafka.schema import stored_columns

if TYPE_CHECKING:
    import pyarrow as pa

    from pyspark_minikafka.reading.decoded_rows import RowDecoder

ROWS_MAX = 30_000
"""The most rows of one record batch. Spark passes batches on unchanged; 10,000 to 30,000 rows are fastest."""

BATCHES_AHEAD = 2


def read(partition: InputPartition, options: SourceOptions) -> Iterator[pa.RecordBatch]:
    """Yield the record batches of the task's range, in order of offsets.

    Raise DataLoss when records of the range are gone and ``failOnDataLoss`` is true, NetworkError when no
    records arrive for ``kafkaConsumer.pollTimeoutMs``.
    """
    if not isinstance(partition, RangePartition):
        return  # Spark's stand-in for a query without partitions
    with workers.task(), workers.readable_errors():
        check_reachable(partition.target)
        cluster = cache.reading(
            partition.target.bootstrap_servers, partition.target.connection(options.connection)
        )
        reader = _RangeReader(cluster, partition.offsets, options)
        yield from prefetched(reader, BATCHES_AHEAD)
        report.note(reader.stats.summary(reader.task), shown=options.log_tasks)


@dataclass(slots=True)
class ReadStats:
    """The statistics of a read task: rows, bytes as fetched, and the time to fetch and to decode.

    skipped: the number of offsets that could not be read.
    """

    rows: int = 0
    fetched_bytes: int = 0
    fetch_ns: int = 0
    decode_ns: int = 0
    skipped: int = 0

    def summary(self, task: OffsetRange) -> str:
        """Return the line for the log."""
        skipped = f", {self.skipped:,} offsets skipped" if self.skipped else ""
        return (
            f"read {self.rows:,} rows of {task.topic_partition} from {task.start} to {task.end}: "
            f"{self.fetched_bytes:,} bytes, fetched in {self.fetch_ns / 1e9:.3f} s and decoded in "
            f"{self.decode_ns / 1e9:.3f} s{skipped}"
        )


class _RangeReader:
    """The iterator of a task's record batches. Only ``stop`` may be called by another thread."""

    def __init__(self, cluster: ClusterClient, task: OffsetRange, options: SourceOptions) -> None:
        self.task = task
        self.stats = ReadStats()
        self._cluster = cluster
        self._options = options
        self._stored = schema_of(stored_columns(options.columns))
        self._decoder = _row_decoder(options)
        self._position = task.start
        self._stopped = False
        self._fetcher = self._fetch()
        self._batches = self._all()

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return self

    def __next__(self) -> pa.RecordBatch:
        return next(self._batches)

    def stop(self) -> None:
        """End a wait for records: Spark reads no more."""
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
            rack=fetch.rack,
        )

    def _restart_fetcher(self) -> None:
        self._fetcher = self._fetch()
        if self._stopped:
            self._fetcher.stop()  # ``stop`` may have reached only the previous one

    def _resolve_end(self) -> None:
        """Set the task's end to the present end of the log, for a task that reads to the latest record.

        That is at least the end at planning time, unless the log itself was truncated: just after an election
        the high watermark alone may be lower.
        """
        tp, planned = self.task.topic_partition, self.task.end
        deadline = self._cluster.deadline(self._options.poll_timeout_ms)
        end = list_offsets(self._cluster, {tp: LATEST}, deadline, self._options.fetch.isolation)[tp]
        if end is not None and end < planned and log_reaches(self._cluster, tp, planned):
            end = planned
        if end is not None:
            self.task = replace(self.task, end=end)
            self._restart_fetcher()
            if self._position > end:
                self._skip(end, f"the log ends at {end}")

    def _all(self) -> Iterator[pa.RecordBatch]:
        bound = not self.task.to_latest
        while not bound or self._position < self.task.end:
            try:
                if not bound:
                    self._resolve_end()
                    bound = True
                for data in self._fetched():
                    yield from self._rows_of(data)
                return
            except LogTruncated as truncated:
                bound = True
                self._resume_after(truncated)
            except (OffsetOutOfRange, BrokerError, NetworkError, DamagedEntry) as problem:
                resume, why = self._loss(problem)
                bound = True
                task = self.task
                if not (task.from_earliest and self._position == task.start and resume < task.end):
                    self._skip(resume, why)
                self._position = resume
                self._restart_fetcher()

    def _fetched(self) -> Iterator[memoryview]:
        sets = iter(self._fetcher)
        while True:
            began = time.perf_counter_ns()
            data = next(sets, None)
            self.stats.fetch_ns += time.perf_counter_ns() - began
            if data is None:
                return
            self.stats.fetched_bytes += len(data)
            yield data

    def _rows_of(self, data: memoryview) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one fetch. Raise DamagedEntry after the rows before the damage."""
        topic, partition = self.task.topic_partition
        stored = self._stored
        pieces = decode_pieces(
            data,
            self._position,
            self.task.end,
            check_crc=self._options.fetch.check_crcs,
            keys="key" in stored.names,
            values="value" in stored.names,
            headers="headers" in stored.names,
        )
        while True:
            began = time.perf_counter_ns()
            columns = next(pieces, None)
            batch = None
            if columns is not None and columns.count:
                if self._decoder is None:
                    batch = columns.record_batch(topic, partition, stored)
                else:
                    batch = self._decoder.record_batch(columns, topic, partition, stored)
            self.stats.decode_ns += time.perf_counter_ns() - began
            if columns is None:
                return
            self._position = columns.next_offset
            if batch is not None:
                self.stats.rows += batch.num_rows
                yield from _pieces(batch)

    def _loss(self, problem: MinikafkaError) -> tuple[int, str]:
        """Return the next readable offset, and why those before it are not. Raise ``problem`` again if it
        loses no data.
        """
        task = self.task
        if isinstance(problem, DamagedEntry):
            return min(problem.after_offset, task.end), f"the record is corrupt: {problem.detail}"
        if isinstance(problem, OffsetOutOfRange):
            resume = problem.start_offset if self._position < problem.start_offset else task.end
            return min(resume, task.end), f"the log has {problem.start_offset} to {problem.end_offset}"
        if isinstance(problem, BrokerError):
            if problem.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                return task.end, "the topic or partition no longer exists"
            if problem.code is ErrorCode.CORRUPT_MESSAGE:
                # The start of the next record is unknown too.
                return task.end, problem.detail
            raise problem
        end, after = self._fetcher.high_watermark, self._position + 1
        if end is not None and after > end and not log_reaches(self._cluster, task.topic_partition, after):
            # The records existed at planning time: the topic was recreated, or a leader without them elected.
            return task.end, f"the log ends at {end}"
        raise problem

    def _skip(self, resume: int, why: str) -> None:
        """Count and report the offsets before ``resume`` as lost. Raise DataLoss if ``failOnDataLoss``."""
        count = abs(resume - self._position)
        offsets = counted(count, "offset")
        loss = f"cannot read {offsets} of {self.task.topic_partition} from offset {self._position}: {why}"
        self._report_loss(loss, "Skipped")
        self.stats.skipped += count

    def _resume_after(self, truncated: LogTruncated) -> None:
        """Report rows that were read and are no longer in the log, and continue with those in their place.
        Raise as ``_skip``.
        """
        task, loss = self.task, truncated.detail
        if truncated.end_offset < task.start:
            loss += f", before the range from {task.start} to {task.end}"
        self._position = max(truncated.end_offset, task.start)
        self._report_loss(loss, f"Reading what the log has from {self._position} on")
        self._restart_fetcher()

    def _report_loss(self, loss: str, instead: str) -> None:
        if self._options.fail_on_data_loss:
            raise DataLoss([loss]) from None
        report.warn([f"{loss}. {instead} (failOnDataLoss is false)"])


def _row_decoder(options: SourceOptions) -> RowDecoder | None:
    """Return what decodes keys and values; None for a query that reads bytes."""
    if not any(options.formats.sides()):
        return None
    from pyspark_minikafka.reading.decoded_rows import RowDecoder

    return RowDecoder(options)


def _pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield ``batch`` in views of at most ROWS_MAX rows."""
    for start in range(0, batch.num_rows, ROWS_MAX):
        yield batch.slice(start, ROWS_MAX)
