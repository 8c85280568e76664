"""The read of one range of offsets: its record batches, and the handling of offsets that cannot be read."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

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
from minikafka.clients.fetch.range_fetcher import RangeFetcher, log_reaches
from minikafka.clients.fetch.shared_fetch import FirstFetch
from minikafka.clients.network.cluster import ClusterClient
from minikafka.records.columns import DamagedEntry, decode_pieces, schema_of
from pyspark_minikafka import report
from pyspark_minikafka.options.options import SourceOptions
from pyspark_minikafka.planning.ranges import DataLoss, OffsetRange
from pyspark_minikafka.reading.task_reports import RangeTotals
from pyspark_minikafka.schema import stored_columns

if TYPE_CHECKING:
    import pyarrow as pa

    from minikafka.records.columns import Columns
    from pyspark_minikafka.location import Target
    from pyspark_minikafka.reading.decoded_rows import RowDecoder


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

    @property
    def totals(self) -> RangeTotals:
        """The numbers, for a report."""
        return self.rows, self.fetched_bytes, self.fetch_ns, self.decode_ns, self.skipped

    def summary(self, task: OffsetRange) -> str:
        """Return the line for the log."""
        skipped = f", {self.skipped:,} offsets skipped" if self.skipped else ""
        return (
            f"read {self.rows:,} rows of {task.topic_partition} from {task.start} to {task.end}: "
            f"{self.fetched_bytes:,} bytes, fetched in {self.fetch_ns / 1e9:.3f} s and decoded in "
            f"{self.decode_ns / 1e9:.3f} s{skipped}"
        )


class RowBuilder:
    """Makes the record batches of a read: the columns that it has, decoded where they have a format.

    stored: the columns before decoding.
    """

    def __init__(self, options: SourceOptions, target: Target) -> None:
        self.stored = schema_of(stored_columns(options.columns))
        self._decoder: RowDecoder | None = None
        if any(options.formats.sides()):
            from pyspark_minikafka.reading.decoded_rows import RowDecoder

            self._decoder = RowDecoder(options, target)
            self.stored = schema_of(self._decoder.stored)

    def record_batch(self, columns: Columns, topic: str, partition: int) -> pa.RecordBatch:
        """Return all rows, in the columns that Spark expects."""
        if self._decoder is None:
            return columns.record_batch(topic, partition, self.stored)
        return self._decoder.record_batch(columns, topic, partition, self.stored)


class RangeReader:
    """The iterator of a range's record batches. Only ``stop`` may be called by another thread.

    latest: the end of the log, for a range to the latest record; None: it is looked up here. first: what was
    fetched of the range together with others.
    """

    def __init__(
        self,
        cluster: ClusterClient,
        task: OffsetRange,
        options: SourceOptions,
        rows: RowBuilder,
        *,
        latest: int | None = None,
        first: FirstFetch | None = None,
    ) -> None:
        self.task = task
        self.stats = ReadStats()
        self._cluster = cluster
        self._options = options
        self._rows = rows
        self._latest = latest
        self._first = first
        self._position = task.start
        self._stopped = False
        self._fetcher: RangeFetcher | None = None
        self._batches = self._all()

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return self

    def __next__(self) -> pa.RecordBatch:
        return next(self._batches)

    def stop(self) -> None:
        """End a wait for records: Spark reads no more."""
        self._stopped = True
        if self._fetcher is not None:
            self._fetcher.stop()

    def _start_fetcher(self) -> RangeFetcher:
        """Fetch from the position on."""
        task, fetch = self.task, self._options.fetch
        first, self._first = self._first, None
        fetcher = self._fetcher = RangeFetcher(
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
            first=first,
        )
        if self._stopped:
            fetcher.stop()  # ``stop`` may have reached only the previous one
        return fetcher

    def _resolve_end(self) -> None:
        """Set the range's end to the present end of the log, for a range to the latest record.

        That is at least the end at planning time, unless the log itself was truncated: just after an election
        the high watermark alone may be lower.
        """
        tp, planned, end = self.task.topic_partition, self.task.end, self._latest
        if end is None:
            deadline = self._cluster.deadline(self._options.poll_timeout_ms)
            end = list_offsets(self._cluster, {tp: LATEST}, deadline, self._options.fetch.isolation)[tp]
        if end is not None and end < planned and log_reaches(self._cluster, tp, planned):
            end = planned
        if end is not None:
            self.task = replace(self.task, end=end)
            if self._position > end:
                self._skip(end, f"the log ends at {end}")

    def _all(self) -> Iterator[pa.RecordBatch]:
        bound = not self.task.to_latest
        while not bound or self._position < self.task.end:
            try:
                if not bound:
                    self._resolve_end()
                    bound = True
                for data in self._fetched(self._fetcher or self._start_fetcher()):
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
                self._start_fetcher()

    def _fetched(self, fetcher: RangeFetcher) -> Iterator[memoryview]:
        sets = iter(fetcher)
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
        stored = self._rows.stored.names
        pieces = decode_pieces(
            data,
            self._position,
            self.task.end,
            check_crc=self._options.fetch.check_crcs,
            keys="key" in stored,
            values="value" in stored,
            headers="headers" in stored,
        )
        while True:
            began = time.perf_counter_ns()
            columns = next(pieces, None)
            batch = None
            if columns is not None and columns.count:
                batch = self._rows.record_batch(columns, topic, partition)
            self.stats.decode_ns += time.perf_counter_ns() - began
            if columns is None:
                return
            self._position = columns.next_offset
            if batch is not None:
                self.stats.rows += batch.num_rows
                yield batch

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
        end = None if self._fetcher is None else self._fetcher.high_watermark
        after = self._position + 1
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
        self._start_fetcher()

    def _report_loss(self, loss: str, instead: str) -> None:
        if self._options.fail_on_data_loss:
            raise DataLoss([loss]) from None
        report.warn([f"{loss}. {instead} (failOnDataLoss is false)"])
