"""Writes: ``df.write.format("minikafka")`` and ``df.writeStream.format("minikafka")``.

A writer is created on the driver, which starts the embedded broker if one is used, and pickled to the
executors. Each task sends its rows and ends when the brokers have acknowledged them (``kafka.acks``, all by
default). Rows are written at least once: a task or batch that Spark runs again writes its rows again, as new
records, and ``commit`` and ``abort`` do nothing to them; or exactly once (``exactly_once``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from minikafka.base.errors import ConfigError
from pyspark_minikafka import report, workers
from pyspark_minikafka.location import Target, check_login, check_reachable, locate
from pyspark_minikafka.options import registry_options
from pyspark_minikafka.options.delivery_options import DELIVERY, SINK_ID, SINK_ID_ADVICE
from pyspark_minikafka.options.options import SinkOptions, sink_options
from pyspark_minikafka.schema import SinkColumns, sink_columns, sink_formats, topic_formats
from pyspark_minikafka.writing.batch_writer import BatchWriter, Written
from pyspark_minikafka.writing.task_writer import send, stage

try:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter
except ImportError:

    class DataSourceStreamArrowWriter(DataSourceStreamWriter, DataSourceArrowWriter):  # type: ignore[misc,no-redef]
        """The base for Spark 4.0, which passes record batches to any writer for Arrow, of a stream too."""


if TYPE_CHECKING:
    import pyarrow as pa

    from pyspark_minikafka.writing.exactly_once import ExactlyOnce
    from pyspark_minikafka.writing.staging_area import StagingArea


@dataclass(frozen=True, slots=True)
class Sink:
    """The settings of a write task; pickled to the executors."""

    options: SinkOptions
    target: Target
    columns: SinkColumns
    area: StagingArea | None = None
    """Of a write exactly once."""

    def send(self, batches: Iterator[pa.RecordBatch]) -> Written:
        """Send all rows and wait for the brokers. Raise BrokerError or NetworkError, or BadColumn for a row
        that cannot be written.
        """
        with workers.task(), workers.readable_errors():
            check_reachable(self.target)
            if self.area is not None:
                return self._stage(batches, self.area)
            rows, sent_bytes = send(batches, self.options, self.target, self.columns)
            return Written(rows, sent_bytes)

    def _stage(self, batches: Iterator[pa.RecordBatch], area: StagingArea) -> Written:
        from pyspark_minikafka.writing.staged import Staged

        context = TaskContext.get()
        task = 0 if context is None else context.partitionId()
        query_id = None if context is None else context.getLocalProperty("sql.streaming.queryId")
        rows, sent_bytes, staged = stage(
            batches, self.options, self.target, self.columns, lambda tp: area.partition_for(tp, task)
        )
        return Staged(rows, sent_bytes, query_id or "", staged)

    @property
    def exactly_once(self) -> ExactlyOnce:
        """The driver's side of a write exactly once."""
        from pyspark_minikafka.writing.exactly_once import ExactlyOnce

        assert self.area is not None
        return ExactlyOnce(self.options, self.target, self.area)

    def commit(self, messages: Sequence[object], batch_id: int) -> None:
        """Publish the staged rows of a batch, in the driver."""
        with workers.task(), workers.readable_errors():
            self.exactly_once.commit(messages, batch_id)

    def abort(self, messages: Sequence[object]) -> None:
        """Delete the staged rows of a batch, in the driver."""
        with workers.task(), workers.readable_errors():
            self.exactly_once.abort(messages)


class StreamWriter(DataSourceStreamArrowWriter):
    """Appends the rows of every micro-batch."""

    def __init__(self, sink: Sink) -> None:
        self.sink = sink

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        return self.sink.send(iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Publish the rows that were staged."""
        if self.sink.area is not None:
            self.sink.commit(messages, batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Delete the rows that were staged."""
        if self.sink.area is not None:
            self.sink.abort(messages)


def _sink(options: Mapping[str, str], schema: StructType, *, is_stream: bool) -> Sink:
    parsed = sink_options(options)
    columns = sink_columns(schema, parsed.topic, [side for side, _ in parsed.formats.sides()])
    parsed = replace(parsed, formats=sink_formats(schema, parsed.formats))
    if parsed.delivery.is_exactly_once and is_stream and parsed.delivery.sink_id is None:
        raise ConfigError(
            SINK_ID, None, f"is required for a stream with {DELIVERY}=exactly-once: {SINK_ID_ADVICE}"
        )
    for warning in parsed.warnings:
        report.warn_once(warning)
    check_login(parsed.location, parsed.connection)
    target = locate(parsed.location)
    if parsed.topic is not None:  # last: it may register schemas
        parsed = replace(parsed, formats=topic_formats(schema, parsed.formats, parsed.topic))
    sink = Sink(parsed, target, columns)
    if not parsed.delivery.is_exactly_once:
        return sink
    from pyspark_minikafka.writing import staging_area

    if is_stream:
        assert parsed.delivery.sink_id is not None
        sink = replace(sink, area=staging_area.of_stream(parsed.delivery.sink_id))
    else:
        sink = replace(sink, area=staging_area.of_write())
    if not workers.commits_streams():  # it has staged rows, which must stay
        sink.exactly_once.prepare()
    return sink


def batch_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> BatchWriter:
    """Return the writer of ``df.write``. Raise ConfigError for the mode overwrite: topics are append-only."""
    if overwrite:
        raise ConfigError("mode", "overwrite", "must be append: the rows of a topic cannot be replaced")
    if registry_options.is_given(options):
        from pyspark_minikafka.formats import schema_registry

        schema_registry.forget_clients()
    sink = _sink(options, schema, is_stream=False)
    return BatchWriter(sink, is_exactly_once=sink.area is not None)


def stream_writer(options: Mapping[str, str], schema: StructType) -> StreamWriter:
    """Return the writer of one micro-batch of ``df.writeStream``. What a process knows of a schema registry
    is kept from one to the next.
    """
    return StreamWriter(_sink(options, schema, is_stream=True))
