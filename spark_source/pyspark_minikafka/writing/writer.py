"""Writes: ``df.write.format("minikafka")`` and ``df.writeStream.format("minikafka")``.

A writer is created on the driver, which starts the embedded broker if one is used, and pickled to the
executors. Each task sends its rows and ends when the brokers have acknowledged them (``kafka.acks``, all by
default). Rows are written at least once: a task or batch that Spark runs again writes its rows again, as new
records. ``commit`` and ``abort`` do nothing to the rows.
"""

from __future__ import annotations

import datetime
import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from minikafka.base.errors import ConfigError
from pyspark_minikafka import report, workers
from pyspark_minikafka.location import Target, check_login, check_reachable, locate
from pyspark_minikafka.options.options import SinkOptions, sink_options
from pyspark_minikafka.schema import SinkColumns, sink_columns
from pyspark_minikafka.writing.task_writer import send

try:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter

    HAS_ARROW_STREAMS = True
except ImportError:  # Spark before 4.1
    HAS_ARROW_STREAMS = False

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Row

ROWS_PER_BATCH = 10_000
"""The rows of one record batch when Spark passes rows instead of batches."""


@dataclass(frozen=True, slots=True)
class Sink:
    """The settings of a write task; pickled to the executors."""

    options: SinkOptions
    target: Target
    columns: SinkColumns

    def send(self, batches: Iterator[pa.RecordBatch]) -> Written:
        """Send all rows and wait for the brokers. Raise BrokerError or NetworkError, or BadColumn for a row
        that cannot be written.
        """
        with workers.task(), workers.readable_errors():
            check_reachable(self.target)
            rows, sent_bytes = send(batches, self.options, self.target, self.columns)
            return Written(rows, sent_bytes)


class Written(WriterCommitMessage):
    """The result of a write task: rows, and bytes as encoded."""

    def __init__(self, rows: int, sent_bytes: int) -> None:
        self.rows = rows
        self.sent_bytes = sent_bytes

    def __repr__(self) -> str:
        return f"Written(rows={self.rows}, sent_bytes={self.sent_bytes})"


class BatchWriter(DataSourceArrowWriter):
    """Appends the rows of a DataFrame."""

    def __init__(self, sink: Sink) -> None:
        self.sink = sink

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        return self.sink.send(iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Clean up the worker, which Spark uses again. There is nothing to do for the rows."""
        workers.forget_importers()


class RowStreamWriter(DataSourceStreamWriter):
    """Appends the rows of every micro-batch; for Spark 4.0, which passes rows."""

    def __init__(self, sink: Sink, schema: StructType) -> None:
        self.sink = sink
        self.schema = schema

    def write(self, iterator: Iterator[Row]) -> Written:
        return self.sink.send(record_batches(iterator, self.schema, self.sink.columns))


if HAS_ARROW_STREAMS:

    class ArrowStreamWriter(DataSourceStreamArrowWriter):
        """Appends the rows of every micro-batch."""

        def __init__(self, sink: Sink) -> None:
            self.sink = sink

        def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
            return self.sink.send(iterator)


def record_batches(rows: Iterator[Row], schema: StructType, columns: SinkColumns) -> Iterator[pa.RecordBatch]:
    """Yield ``rows`` in record batches with the columns of ``schema``; those unknown to the sink are null."""
    import pyarrow as pa

    from minikafka.records.columns import HEADERS_TYPE

    kinds = {columns.value: pa.binary(), columns.key: pa.binary(), columns.topic: pa.string()}
    kinds |= {columns.partition: pa.int32(), columns.timestamp: pa.int64(), columns.headers: HEADERS_TYPE}
    names = schema.fieldNames()
    while chunk := list(itertools.islice(rows, ROWS_PER_BATCH)):
        arrays = []
        for position in range(len(names)):
            values = [row[position] for row in chunk] if position in kinds else []
            if position not in kinds:
                arrays.append(pa.nulls(len(chunk)))
            elif position == columns.timestamp and not columns.timestamp_is_ms:
                arrays.append(pa.array([None if v is None else microseconds(v) for v in values], pa.int64()))
            elif position == columns.headers:
                arrays.append(pa.array([_named(headers) for headers in values], HEADERS_TYPE))
            elif kinds[position] == pa.binary():
                arrays.append(
                    pa.array([v.encode() if isinstance(v, str) else v for v in values], pa.binary())
                )
            else:
                arrays.append(pa.array(values, kinds[position]))
        yield pa.RecordBatch.from_arrays(arrays, names=names)


def _named(headers: list[Row | None] | None) -> list[dict[str, object] | None] | None:
    return None if headers is None else [None if header is None else header.asDict() for header in headers]


def microseconds(moment: datetime.datetime) -> int:
    """Return ``moment`` in microseconds since the epoch. Spark's rows hold times without a zone, in that of
    the Python worker.
    """
    since = moment.astimezone(datetime.timezone.utc) - datetime.datetime(
        1970, 1, 1, tzinfo=datetime.timezone.utc
    )
    return since // datetime.timedelta(microseconds=1)


def _sink(options: Mapping[str, str], schema: StructType) -> Sink:
    parsed = sink_options(options)
    columns = sink_columns(schema, parsed.topic)
    for warning in parsed.warnings:
        report.warn_once(warning)
    check_login(parsed.location, parsed.connection)
    return Sink(parsed, locate(parsed.location), columns)


def batch_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> BatchWriter:
    """Return the writer of ``df.write``. Raise ConfigError for the mode overwrite: topics are append-only."""
    if overwrite:
        raise ConfigError("mode", "overwrite", "must be append: the rows of a topic cannot be replaced")
    return BatchWriter(_sink(options, schema))


def stream_writer(options: Mapping[str, str], schema: StructType) -> DataSourceStreamWriter:
    """Return the writer of one micro-batch of ``df.writeStream``, for the running Spark."""
    sink = _sink(options, schema)
    if HAS_ARROW_STREAMS:
        return ArrowStreamWriter(sink)
    return RowStreamWriter(sink, schema)
