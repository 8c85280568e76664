"""Splits the range of each partition into tasks, by ``maxRecordsPerPartition`` and ``minPartitions``. Pure.

The arithmetic is that of Spark's Kafka connector: first every range is split until no part has more than
``maxRecordsPerPartition`` offsets; if there are then fewer tasks than ``minPartitions``, the larger ones are
split in proportion to their size, and small ones are left whole. Both options count offsets, not records.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from pyspark_minikafka.planning.ranges import OffsetRange


def split(
    ranges: Iterable[OffsetRange], min_partitions: int | None, max_records: int | None
) -> tuple[OffsetRange, ...]:
    """Return the tasks, in the order of ``ranges``. None for an option that was not given."""
    found = list(ranges)
    if max_records is not None:
        found = [part for task in found for part in parts(task, -(-task.size // max_records))]
    if min_partitions is not None and sum(task.size > 0 for task in found) < min_partitions:
        found = list(_in_proportion(found, min_partitions))
    return tuple(found)


def _in_proportion(ranges: Sequence[OffsetRange], wanted: int) -> Iterator[OffsetRange]:
    filled = [task for task in ranges if task.size > 0]
    total = sum(task.size for task in filled)
    whole = {task.topic_partition: task.size for task in filled if _count(task.size, total, wanted) == 1}
    left = sum(task.size for task in filled if task.topic_partition not in whole)
    wanted_of_left = max(wanted - sum(task.topic_partition in whole for task in filled), 1)
    for task in ranges:
        if task.size <= 0 or task.topic_partition in whole:
            yield task
        else:
            yield from parts(task, _count(task.size, left, wanted_of_left))


def _count(size: int, total: int, wanted: int) -> int:
    # Java's rounding: halves go up.
    return max(math.floor(size / total * wanted + 0.5), 1)


def parts(task: OffsetRange, count: int) -> Iterator[OffsetRange]:
    """Yield ``task`` in ``count`` parts of about the same size; the last ones take the remainder."""
    if count <= 1:
        yield task
        return
    start, remaining = task.start, task.size
    for number in range(count):
        size = remaining // (count - number)
        remaining -= size
        if size:
            yield replace(
                task,
                start=start,
                end=start + size,
                from_earliest=task.from_earliest and start == task.start,
                to_latest=task.to_latest and start + size == task.end,
            )
        start += size
