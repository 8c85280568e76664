"""The metrics of streaming queries, as values, and how they add up from batches and reports of tasks. Pure.

What Spark reports of a batch gives the offsets, the lag, and Spark's rates and durations. What was fetched
and decoded is only known where it happened, in the tasks: they report it if the reader's option says where to
(``reading.task_reports``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from minikafka.base.ids import TopicPartition
from pyspark_minikafka.monitoring.query_progress import QueryProgress, SourceProgress
from pyspark_minikafka.reading.task_reports import TaskReport


@dataclass(frozen=True, slots=True)
class ReadTotals:
    """The sums of what tasks have read since the listener knows of the query, as far as they reported it.

    bytes_: as fetched, compressed. skipped: offsets that could not be read.
    """

    rows: int = 0
    bytes_: int = 0
    fetch_s: float = 0.0
    decode_s: float = 0.0
    skipped: int = 0

    def __add__(self, other: ReadTotals) -> ReadTotals:
        return ReadTotals(
            self.rows + other.rows,
            self.bytes_ + other.bytes_,
            self.fetch_s + other.fetch_s,
            self.decode_s + other.decode_s,
            self.skipped + other.skipped,
        )


@dataclass(frozen=True, slots=True)
class PartitionMetrics:
    """One partition of a source.

    end      the offset behind the last batch
    latest   the end of the log, as Spark has reported it with that batch, or as it was looked up; None if it
             is unknown
    lag      the offsets between the two; None if that is unknown
    offsets  the offsets of all batches since the listener knows of the query
    read     what its tasks have reported; None: nothing
    """

    topic: str
    partition: int
    end: int
    latest: int | None
    lag: int | None
    offsets: int
    read: ReadTotals | None


@dataclass(frozen=True, slots=True)
class SourceMetrics:
    """One minikafka source of a query. ``rows`` are those of the last batch."""

    rows: int
    partitions: tuple[PartitionMetrics, ...]

    @property
    def min_offsets_behind_latest(self) -> int | None:
        """The smallest lag of a partition, as of Spark's own Kafka source; None if none is known."""
        return min(self._lags, default=None)

    @property
    def max_offsets_behind_latest(self) -> int | None:
        """The largest lag of a partition."""
        return max(self._lags, default=None)

    @property
    def avg_offsets_behind_latest(self) -> float | None:
        """The mean lag of the partitions."""
        lags = self._lags
        return sum(lags) / len(lags) if lags else None

    @property
    def _lags(self) -> list[int]:
        return [partition.lag for partition in self.partitions if partition.lag is not None]


@dataclass(frozen=True, slots=True)
class QueryMetrics:
    """One streaming query.

    is_active     False once it has ended
    batch         the number of the last batch; None before one has ended
    batches       the batches since the listener knows of the query
    rows          the rows that all sources have read in them
    durations_ms  Spark's ``durationMs`` of the last batch
    tasks         the tasks that have reported
    sources       its minikafka sources
    """

    query_id: str
    run_id: str
    name: str | None
    is_active: bool
    batch: int | None
    timestamp: str | None
    batches: int
    rows: int
    input_rows_per_second: float
    processed_rows_per_second: float
    durations_ms: Mapping[str, int]
    tasks: int
    sources: tuple[SourceMetrics, ...]

    @property
    def title(self) -> str:
        """The name, or the id."""
        return self.name or self.query_id

    @property
    def read(self) -> ReadTotals:
        """The sums of all reports of tasks."""
        found = (partition.read for source in self.sources for partition in source.partitions)
        return sum((read for read in found if read is not None), ReadTotals())


@dataclass(slots=True)
class RunTotals:
    """The sums of one run of a query, and its last progress. Not thread-safe.

    Partitions that are no longer read are dropped with the next batch.
    """

    query_id: str
    run_id: str
    name: str | None = None
    is_active: bool = True
    progress: QueryProgress | None = None
    batches: int = 0
    rows: int = 0
    tasks: int = 0
    input_rows_per_second: float = 0.0
    processed_rows_per_second: float = 0.0
    durations_ms: Mapping[str, int] = field(default_factory=dict)
    offsets: dict[TopicPartition, int] = field(default_factory=dict)
    read: dict[TopicPartition, ReadTotals] = field(default_factory=dict)

    def add_batch(self, progress: QueryProgress, document: Mapping[str, Any]) -> None:
        """Add a batch: its progress, and Spark's JSON of it."""
        is_new = self.progress is None or self.progress.batch != progress.batch
        self.progress, self.name = progress, progress.name
        self.input_rows_per_second = document.get("inputRowsPerSecond") or 0.0
        self.processed_rows_per_second = document.get("processedRowsPerSecond") or 0.0
        self.durations_ms = dict(document.get("durationMs") or {})
        partitions = progress.partitions
        kept = {partition.topic_partition for partition in partitions}
        self.read = {tp: read for tp, read in self.read.items() if tp in kept}
        before, self.offsets = self.offsets, {}
        for partition in partitions:
            tp, start = partition.topic_partition, partition.start
            size = 0 if start is None or not is_new else max(0, partition.end - start)
            self.offsets[tp] = before.get(tp, 0) + size
        if is_new:  # Spark reports the last batch again while a query has no new data
            self.batches += 1
            self.rows += progress.rows

    def add_report(self, report: TaskReport) -> None:
        """Add the report of a task, or a part of it."""
        self.tasks += report.is_first
        for tp, row in report.ranges:
            rows, bytes_, fetch_ns, decode_ns, skipped = row
            totals = ReadTotals(rows, bytes_, fetch_ns / 1e9, decode_ns / 1e9, skipped)
            self.read[tp] = self.read.get(tp, ReadTotals()) + totals

    def metrics(self, present: QueryProgress | None = None) -> QueryMetrics:
        """Return the metrics, with the ends of the logs of ``present`` if it is there."""
        progress = present or self.progress
        return QueryMetrics(
            self.query_id,
            self.run_id,
            self.name,
            self.is_active,
            None if progress is None else progress.batch,
            None if progress is None else progress.timestamp,
            self.batches,
            self.rows,
            self.input_rows_per_second,
            self.processed_rows_per_second,
            self.durations_ms,
            self.tasks,
            () if progress is None else tuple(self._sources(progress.sources)),
        )

    def _sources(self, sources: Iterable[SourceProgress]) -> Iterable[SourceMetrics]:
        for source in sources:
            partitions = (
                PartitionMetrics(
                    each.topic,
                    each.partition,
                    each.end,
                    each.latest,
                    each.lag,
                    self.offsets.get(each.topic_partition, 0),
                    self.read.get(each.topic_partition),
                )
                for each in source.partitions
            )
            yield SourceMetrics(source.rows, tuple(partitions))
