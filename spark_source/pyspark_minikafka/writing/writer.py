"""Writes: ``df.write.format("minikafka")`` and ``df.writeStream.format("minikafka")``.

A writer is created on the driver, which starts the embedded broker if one is used, and pickled to the
executors. Each task sends its rows and ends when the brokers have acknowledged them (``kafka.acks``, all by
default). Rows are written at least once: a task or batch that Spark runs again writes its rows again, as new
records. ``commit`` and ``abort`` do nothing to the rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamWriter
from pyspark.sql.types import StructType

from minikafka.base.errors import ConfigError
from pyspark_minikafka import report, workers
from pyspark_minikafka.location import Target, check_login, check_reachable, locate
from pyspark_minikafka.options import registry_options
from pyspark_minikafka.options.options import SinkOptions, sink_options
from pyspark_minikafka.schema import SinkColumns, sink_columns, sink_formats, topic_formats
from pyspark_minikafka.writing.batch_writer import BatchWriter, Written
from pyspark_minikafka.writing.task_writer import send

try:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter
except ImportError:

    class DataSourceStreamArrowWriter(DataSourceStreamWriter, DataSourceArrowWriter):  # type: ignore[misc,no-redef]
        """The base for Spark 4.0, which passes record batches to any writer for Arrow, of a stream too."""


if TYPE_CHECKING:
    import pyarrow as pa


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


class StreamWriter(DataSourceStreamArrowWriter):
    """Appends the rows of every micro-batch."""

    def __init__(self, sink: Sink) -> None:
        self.sink = sink

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        return self.sink.send(iterator)


def _sink(options: Mapping[str, str], schema: StructType) -> Sink:
    parsed = sink_options(options)
    columns = sink_columns(schema, parsed.topic, [side for side, _ in parsed.formats.sides()])
    parsed = replace(parsed, formats=sink_formats(schema, parsed.formats))
    for warning in parsed.warnings:
        report.warn_once(warning)
    check_login(parsed.location, parsed.connection)
    target = locate(parsed.location)
    if parsed.topic is not None:  # last: it may register schemas
        parsed = replace(parsed, formats=topic_formats(schema, parsed.formats, parsed.topic))
    return Sink(parsed, target, columns)


def batch_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> BatchWriter:
    """Return the writer of ``df.write``. Raise ConfigError for the mode overwrite: topics are append-only."""
    if overwrite:
        raise ConfigError("mode", "overwrite", "must be append: the rows of a topic cannot be replaced")
    if registry_options.is_given(options):
        from pyspark_minikafka.formats import schema_registry

        schema_registry.forget_clients()
    return BatchWriter(_sink(options, schema))


def stream_writer(options: Mapping[str, str], schema: StructType) -> StreamWriter:
    """Return the writer of one micro-batch of ``df.writeStream``. What a process knows of a schema registry
    is kept from one to the next.
    """
    return StreamWriter(_sink(options, schema))
