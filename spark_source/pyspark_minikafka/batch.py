"""Batch reads: ``spark.read.format("minikafka")``.

``partitions()`` runs in a planner worker on the driver, ``read()`` in Python workers of the executors.
``earliest`` and ``latest`` are bound when a task reads, as with Spark's connector: a DataFrame that runs
again sees newer records. How ranges are split is decided when it is planned, which Spark 4.3 does once for
each ``load()``.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from pyspark_minikafka import report, workers
from pyspark_minikafka.location import locate
from pyspark_minikafka.lookup import make_planner
from pyspark_minikafka.options import Mode, SourceOptions, source_options
from pyspark_minikafka.pushdown import EVERYTHING, narrowed
from pyspark_minikafka.reading import read
from pyspark_minikafka.schema import check_user_schema
from pyspark_minikafka.tasks import input_partitions

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import Filter


class BatchReader(DataSourceReader):
    """One batch query; picklable."""

    def __init__(self, options: SourceOptions) -> None:
        self.options = options
        self.narrowing = EVERYTHING

    @workers.plainly()
    def partitions(self) -> list[InputPartition]:
        """The tasks: one for each partition, or as ``minPartitions`` and ``maxRecordsPerPartition`` say."""
        target = locate(self.options.location)
        ranges = make_planner(self.options, target).batch(self.narrowing)
        if self.options.estimate:
            from pyspark_minikafka import estimate

            return [estimate.answer(ranges, target, self.options)]
        return input_partitions(ranges, target)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Record batches of one task; runs on an executor."""
        return read(partition, self.options)


class PushdownReader(BatchReader):
    """A batch query whose conditions decide what is fetched."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        """Take the conditions; those that Spark must look at again come back."""
        self.narrowing, left = narrowed(filters)
        return left


_SPARK_KEEPS_PLANS_APART = hasattr(DataSourceReader, "pushLimit")
"""Spark 4.1 to 4.3 read every later query of one ``load()`` by the plan that was made for the last one with
conditions, and give fewer rows without a word. The release that mended this brought ``pushLimit``.
"""


def _takes_filters(options: SourceOptions) -> bool:
    """Return whether Spark offers its filters to the reader and plans each query of a ``load()`` by itself.

    Spark refuses a reader that could take them when its switch is off, and only this worker's own module
    tells which.
    """
    safe = _SPARK_KEEPS_PLANS_APART if options.pushdown is None else options.pushdown
    return safe and any(name.startswith("pyspark.sql.worker.data_source_pushdown") for name in sys.modules)


def reader(options: Mapping[str, str], schema: StructType) -> BatchReader:
    """The reader of a batch query. Warnings that ``load()`` could not know of are given here."""
    parsed = source_options(options, Mode.BATCH)
    check_user_schema(schema, parsed.include_headers)
    report.warn(w for w in parsed.warnings if w not in source_options(options, Mode.LOAD).warnings)
    return PushdownReader(parsed) if _takes_filters(parsed) else BatchReader(parsed)
