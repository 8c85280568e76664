"""The estimated rows and bytes of a batch query, for Spark's choice of joins.

A Python source cannot report its size to Spark, which then assumes ``spark.sql.defaultSizeInBytes`` (8 EiB).
The Scala shim can: it plans the same read with the option ``minikafka.estimate``. The one task of that plan
is never run. The shim finds the estimate in its pickled bytes::

    minikafka-estimate:ROWS:BYTES
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pyspark.sql.datasource import InputPartition

from minikafka.base.errors import MinikafkaError
from pyspark_minikafka.formats.query_formats import QueryFormats
from pyspark_minikafka.location import Target
from pyspark_minikafka.options.options import SourceOptions
from pyspark_minikafka.planning.ranges import OffsetRange
from pyspark_minikafka.planning.tasks import ReadTask
from pyspark_minikafka.reading.task_reader import read
from pyspark_minikafka.schema import stored_columns

SAMPLE_RECORDS = 500
_SAMPLE_TIMEOUT_MS = 5_000
_ASSUMED_ROW_BYTES = 200
"""Used when no sample can be read: a small message and the other columns of its row."""


def estimate_partition(
    ranges: Sequence[OffsetRange], target: Target, options: SourceOptions
) -> InputPartition:
    """Return a partition that holds the size of ``ranges``: offsets times the last rows' mean size."""
    rows = sum(task.size for task in ranges)
    size = rows * _row_bytes(ranges, target, options) if rows else 0
    return InputPartition(f"minikafka-estimate:{rows}:{round(size)}:")


def _row_bytes(ranges: Sequence[OffsetRange], target: Target, options: SourceOptions) -> float:
    """Return the mean size in Arrow of the last rows of the largest range."""
    largest = max(ranges, key=lambda task: task.size)
    sample = OffsetRange(
        largest.topic_partition, max(largest.start, largest.end - SAMPLE_RECORDS), largest.end
    )
    wait_ms = min(options.poll_timeout_ms, _SAMPLE_TIMEOUT_MS)
    rows = size = 0
    stored = replace(
        options, poll_timeout_ms=wait_ms, columns=stored_columns(options.columns), formats=QueryFormats()
    )
    try:
        for batch in read(ReadTask([sample], target, 0), stored):
            rows += batch.num_rows
            size += batch.nbytes
    except MinikafkaError:
        pass  # an estimate never fails a query; the read reports the error
    return size / rows if rows else _ASSUMED_ROW_BYTES
