"""Batch reads: ``spark.read.format("minikafka")``.

``partitions()`` runs in a planner worker on the driver, ``read()`` in Python workers of the executors.
``earliest`` and ``latest`` are resolved when a task reads, as in Spark's connector: a DataFrame that runs
again sees newer records. The ranges and tasks are fixed when the read is planned, which Spark 4.3 does once
for each ``load()``.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from pyspark_minikafka import report, workers
from pyspark_minikafka.location import locate
from pyspark_minikafka.options.options import Mode, SourceOptions, batch_warnings, source_options
from pyspark_minikafka.planning.lookup import make_planner
from pyspark_minikafka.planning.pushdown import EVERYTHING, push_filters
from pyspark_minikafka.planning.tasks import PlanTimes, plan_summary
from pyspark_minikafka.reading.task_reader import read
from pyspark_minikafka.schema import check_user_schema

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import Filter


class BatchReader(DataSourceReader):
    """The reader of one batch query; picklable."""

    def __init__(self, options: SourceOptions) -> None:
        self.options = options
        self.pushed = EVERYTHING

    @workers.readable_errors()
    def partitions(self) -> list[InputPartition]:
        """Return the tasks, as ``planning.tasks`` puts the ranges of partitions into them."""
        target = locate(self.options.location)
        planner = make_planner(self.options, target)
        began = time.perf_counter()
        ranges = planner.batch(self.pushed)
        looked_up = time.perf_counter()
        if self.options.estimate:
            from pyspark_minikafka.reading import estimate

            return [estimate.estimate_partition(ranges, target, self.options)]
        tasks = planner.tasks(ranges, target, splits=True)
        times = PlanTimes(looked_up - began, time.perf_counter() - looked_up)
        report.note(plan_summary(tasks, planner.planned_bytes, times, None), shown=self.options.log_tasks)
        return [*tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the record batches of one task; runs on an executor."""
        return read(partition, self.options)


class PushdownReader(BatchReader):
    """The reader of a batch query whose filters narrow the fetched ranges."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        """Apply ``filters`` to the plan. Return those that Spark must still apply to the rows."""
        self.pushed, left = push_filters(filters)
        return left


_SPARK_KEEPS_PLANS_APART = hasattr(DataSourceReader, "pushLimit")
"""Spark 4.1 to 4.3 use the plan of the last query with filters for every later query of one ``load()``, and
silently return fewer rows. The release that fixed this added ``pushLimit``.
"""


def _takes_filters(options: SourceOptions) -> bool:
    """Return True if Spark offers its filters to the reader and plans each query of a ``load()`` by itself.

    Spark refuses a reader with ``pushFilters`` while its switch is off; only the module that this worker runs
    shows the switch.
    """
    safe = _SPARK_KEEPS_PLANS_APART if options.pushdown is None else options.pushdown
    return safe and any(name.startswith("pyspark.sql.worker.data_source_pushdown") for name in sys.modules)


def reader(options: Mapping[str, str], schema: StructType) -> BatchReader:
    """Return the reader of a batch query. Log the warnings that ``load()`` could not know of."""
    parsed = source_options(options, Mode.BATCH, schema)
    check_user_schema(schema, parsed.columns, parsed.formats)
    report.warn(batch_warnings(options))
    return PushdownReader(parsed) if _takes_filters(parsed) else BatchReader(parsed)
