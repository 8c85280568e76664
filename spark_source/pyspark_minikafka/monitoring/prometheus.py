"""The metrics of streaming queries as Prometheus reads them. Pure.

Queries that have ended are left out. Series of a partition are only written for queries with at most
``PARTITIONS_MAX`` partitions; the lag of a larger query is there as its minimum, maximum, mean and sum.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from minikafka.base.exposition import Exposition
from minikafka.base.metrics import Kind, LabelValues, Metric
from pyspark_minikafka.monitoring.query_metrics import (
    PartitionMetrics,
    QueryMetrics,
    ReadTotals,
    SourceMetrics,
)

PARTITIONS_MAX = 1_000

_QUERY = ("query",)
_SOURCE = ("query", "source")
_PARTITION = ("query", "topic", "partition")


def _gauge(name: str, text: str, labels: tuple[str, ...]) -> Metric:
    return Metric(f"minikafka_spark_{name}", Kind.GAUGE, text, labels)


def _counter(name: str, text: str, labels: tuple[str, ...]) -> Metric:
    return Metric(f"minikafka_spark_{name}_total", Kind.COUNTER, text, labels)


OF_QUERY: tuple[tuple[Metric, Callable[[QueryMetrics], float | None]], ...] = (
    (_gauge("batch", "The number of the last batch.", _QUERY), lambda query: query.batch),
    (_counter("batches", "Batches.", _QUERY), lambda query: query.batches),
    (_counter("rows", "Rows that all minikafka sources have read.", _QUERY), lambda query: query.rows),
    (
        _gauge("input_rows_per_second", "Spark's rate of rows that arrive.", _QUERY),
        lambda query: query.input_rows_per_second,
    ),
    (
        _gauge("processed_rows_per_second", "Spark's rate of rows that are processed.", _QUERY),
        lambda query: query.processed_rows_per_second,
    ),
    (_counter("tasks", "Read tasks that have reported.", _QUERY), lambda query: query.tasks),
)
DURATION = _gauge(
    "batch_duration_seconds", "Spark's durations of the last batch, by phase.", ("query", "phase")
)
OF_SOURCE: tuple[tuple[Metric, Callable[[SourceMetrics], float | None]], ...] = (
    (
        _gauge("min_offsets_behind_latest", "The smallest lag of a partition, in offsets.", _SOURCE),
        lambda source: source.min_offsets_behind_latest,
    ),
    (
        _gauge("max_offsets_behind_latest", "The largest lag of a partition, in offsets.", _SOURCE),
        lambda source: source.max_offsets_behind_latest,
    ),
    (
        _gauge("avg_offsets_behind_latest", "The mean lag of the partitions, in offsets.", _SOURCE),
        lambda source: source.avg_offsets_behind_latest,
    ),
    (
        _gauge("lag_sum", "The lag of all partitions, in offsets.", _SOURCE),
        lambda source: sum(each.lag for each in source.partitions if each.lag is not None),
    ),
)
OF_PARTITION: tuple[tuple[Metric, Callable[[PartitionMetrics], float | None]], ...] = (
    (
        _gauge("partition_lag", "Offsets from the last batch to the end of the log.", _PARTITION),
        lambda p: p.lag,
    ),
    (_gauge("partition_offset", "The offset behind the last batch.", _PARTITION), lambda p: p.end),
    (_counter("partition_offsets", "Offsets of all batches.", _PARTITION), lambda p: p.offsets),
)
OF_READ: tuple[tuple[Metric, Callable[[ReadTotals], float | None]], ...] = (
    (_counter("read_rows", "Rows that tasks have read.", _PARTITION), lambda read: read.rows),
    (
        _counter("read_bytes", "Bytes that tasks have fetched, compressed.", _PARTITION),
        lambda read: read.bytes_,
    ),
    (
        _counter("fetch_seconds", "Time for which tasks have waited for the brokers.", _PARTITION),
        lambda read: read.fetch_s,
    ),
    (
        _counter("decode_seconds", "Time that tasks have taken to check and decode.", _PARTITION),
        lambda read: read.decode_s,
    ),
    (
        _counter(
            "skipped_offsets", "Offsets that tasks could not read, with failOnDataLoss=false.", _PARTITION
        ),
        lambda read: read.skipped,
    ),
)
METRICS = (
    *(metric for table in (OF_QUERY, OF_SOURCE, OF_PARTITION, OF_READ) for metric, _ in table),
    DURATION,
)
"""All of them, for the reference page."""


def add(out: Exposition, queries: Mapping[str, QueryMetrics]) -> None:
    """Add the metrics of queries, by title."""
    active = {title: query for title, query in queries.items() if query.is_active}
    for metric, of_query in OF_QUERY:
        _add(out, metric, (((title,), of_query(query)) for title, query in active.items()))
    durations = (
        ((title, phase), milliseconds / 1000)
        for title, query in active.items()
        for phase, milliseconds in query.durations_ms.items()
    )
    _add(out, DURATION, durations)
    sources = [
        ((title, number), source)
        for title, query in active.items()
        for number, source in enumerate(query.sources)
    ]
    for metric, of_source in OF_SOURCE:
        _add(out, metric, ((values, of_source(source)) for values, source in sources))
    partitions = list(_partitions(active))
    for metric, of_partition in OF_PARTITION:
        _add(out, metric, ((values, of_partition(partition)) for values, partition in partitions))
    read = [(values, partition.read) for values, partition in partitions if partition.read is not None]
    for metric, of_read in OF_READ:
        _add(out, metric, ((values, of_read(totals)) for values, totals in read))


def _add(out: Exposition, metric: Metric, samples: Iterable[tuple[LabelValues, float | None]]) -> None:
    out.add_all(metric, ((values, value) for values, value in samples if value is not None))


def _partitions(active: Mapping[str, QueryMetrics]) -> Iterator[tuple[LabelValues, PartitionMetrics]]:
    """Yield the partitions of the queries that do not have too many, each once, with the values of its
    labels.
    """
    for title, query in active.items():
        found = {(each.topic, each.partition): each for source in query.sources for each in source.partitions}
        if len(found) <= PARTITIONS_MAX:
            for (topic, number), partition in found.items():
                yield (title, topic, number), partition
