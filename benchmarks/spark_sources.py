"""Sources and a sink in Python that talk to nobody: the least that Python costs, for ``spark_bench.py``.

Each source has one task for each of its partitions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import cycle
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.ipc
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.pandas.types import from_arrow_schema

from minikafka.records.columns import schema_of
from pyspark_minikafka import workers
from pyspark_minikafka.formats.query_formats import QueryFormats
from pyspark_minikafka.schema import source_schema

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

PARTITIONS = 4


class Trivial(DataSource):
    """A source that talks to nobody and yields one row a partition: the least that a Python source costs."""

    @classmethod
    def name(cls) -> str:
        return "trivial"

    def schema(self) -> str:
        return "value int"

    def reader(self, schema: Any) -> DataSourceReader:
        return _TrivialReader()


class _TrivialReader(DataSourceReader):
    def partitions(self) -> list[InputPartition]:
        return [InputPartition(number) for number in range(PARTITIONS)]

    def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
        yield (partition.value,)


class Ready(DataSource):
    """A source that talks to nobody and yields ready record batches: the floor of a read of such rows.

    Its workers have what ours save between tasks (``workers.task``). Options: ``rows``, ``value.bytes``,
    ``batch.rows`` of one record batch, ``trigger.rows`` of a micro-batch, and ``columns``, those of the read
    that is compared.
    """

    @classmethod
    def name(cls) -> str:
        return "ready"

    def schema(self) -> StructType:
        return source_schema(self.options["columns"].split(","), QueryFormats())

    def reader(self, schema: StructType) -> DataSourceReader:
        return _ReadyReader(dict(self.options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        return _ReadyStream(dict(self.options))


class _ReadyReader(DataSourceReader):
    def __init__(self, options: dict[str, str]) -> None:
        self._options = options

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(number) for number in range(PARTITIONS)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return batches(self._options, partition.value, int(self._options["rows"]) // PARTITIONS)


class _ReadyStream(DataSourceStreamReader):
    """The stream of the same rows, a micro-batch of ``trigger.rows`` at a time."""

    def __init__(self, options: dict[str, str]) -> None:
        self._options = options

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        return {"rows": 0}

    def getDefaultReadLimit(self) -> Any:  # noqa: N802
        from pyspark.sql.streaming.datasource import ReadMaxRows  # since Spark 4.2

        return ReadMaxRows(int(self._options["trigger.rows"]))

    def latestOffset(self, start: dict[str, int], limit: Any) -> dict[str, int]:  # noqa: N802
        return {"rows": min(start["rows"] + int(self._options["trigger.rows"]), int(self._options["rows"]))}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        rows = (end["rows"] - start["rows"]) // PARTITIONS
        return [InputPartition((number, rows)) for number in range(PARTITIONS)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return batches(self._options, *partition.value)


def batches(options: Mapping[str, str], partition: int, left: int) -> Iterator[pa.RecordBatch]:
    """Yield ``left`` rows of a partition."""
    with workers.task():
        size, count = int(options["value.bytes"]), min(left, int(options["batch.rows"]))
        columns = {
            "key": pa.nulls(count, pa.binary()),
            "value": pa.array([b"%x" % (number % 16) * size for number in range(16)]).take(
                pa.array(np.arange(count) % 16)
            ),
            "topic": pa.array(["rows"] * count),
            "partition": pa.array(np.full(count, partition, np.int32)),
            "offset": pa.array(np.arange(count)),
            "timestamp": pa.array(np.arange(count) * 1000).cast(pa.timestamp("us", "UTC")),
            "timestampType": pa.array(np.zeros(count, np.int32)),
        }
        schema = schema_of(options["columns"].split(","))
        batch = pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)
        while left:
            yield batch.slice(0, left)
            left -= min(left, count)


class Saved(DataSource):
    """A source that talks to nobody and yields the record batches of a file again and again: the floor of a
    read of values in columns.

    Options: ``file``, of Arrow's IPC format, and ``rows``. Its workers are as those of ``Ready``.
    """

    @classmethod
    def name(cls) -> str:
        return "saved"

    def schema(self) -> StructType:
        return from_arrow_schema(_saved(self.options["file"]).schema)

    def reader(self, schema: StructType) -> DataSourceReader:
        return _SavedReader(dict(self.options))


class _SavedReader(DataSourceReader):
    def __init__(self, options: dict[str, str]) -> None:
        self._options = options

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(number) for number in range(PARTITIONS)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        with workers.task():
            left = int(self._options["rows"]) // PARTITIONS
            for batch in cycle(_saved(self._options["file"]).to_batches()):
                yield batch.slice(0, left)
                left -= min(left, batch.num_rows)
                if not left:
                    return


def _saved(path: str) -> pa.Table:
    return pa.ipc.open_file(pa.memory_map(path)).read_all()


class Counting(DataSource):
    """A sink that talks to nobody and only counts rows, in workers that are as ours: the least that writing
    from Python costs.
    """

    @classmethod
    def name(cls) -> str:
        return "counting"

    def writer(self, schema: Any, overwrite: bool) -> DataSourceArrowWriter:
        with workers.task():
            return _CountingWriter()


class _CountingWriter(DataSourceArrowWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        with workers.task():
            sum(batch.num_rows for batch in iterator)
        return WriterCommitMessage()

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        workers.forget_importers()
