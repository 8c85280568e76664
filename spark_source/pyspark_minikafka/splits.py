"""One range of offsets a partition -> tasks, by ``maxRecordsPerPartition`` and ``minPartitions``. Pure.

The arithmetic of Spark's Kafka connector: first every range is cut until no part has more than
``maxRecordsPerPartition`` offsets; when there are fewer tasks than ``minPartitions`` then, the larger ones
are cut in proportion to their size, and small ones are left whole. Both count offsets, not records.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from pyspark_minikafka.ranges import OffsetRange


def split(
    ranges: Iterable[OffsetRange], min_partitions: int | None, max_records: int | None
) -> tuple[OffsetRange, ...]:
    """The tasks, in the order of ``ranges``. None for an option that was not given."""
    found = list(ranges)
    if max_records is not None:
        found = [part for one in found for part in _parts(one, -(-one.size // max_records))]
    if min_partitions is not None and sum(one.size > 0 for one in found) < min_partitions:
        found = list(_in_proportion(found, min_partitions))
    return tuple(found)


def _in_proportion(ranges: Sequence[OffsetRange], wanted: int) -> Iterator[OffsetRange]:
    filled = [one for one in ranges if one.size > 0]
    total = sum(one.size for one in filled)
    whole = {one.topic_partition: one.size for one in filled if _count(one.size, total, wanted) == 1}
    left = sum(one.size for one in filled if one.topic_partition not in whole)
    wanted_of_left = max(wanted - sum(one.topic_partition in whole for one in filled), 1)
    for one in ranges:
        if one.size <= 0 or one.topic_partition in whole:
            yield one
        else:
            yield from _parts(one, _count(one.size, left, wanted_of_left))


def _count(size: int, total: int, wanted: int) -> int:
    # Java's rounding: halves go up.
    return max(math.floor(size / total * wanted + 0.5), 1)


def _parts(one: OffsetRange, count: int) -> Iterator[OffsetRange]:
    """``one`` in ``count`` parts of about the same size, the last of which takes what does not divide."""
    if count <= 1:
        yield one
        return
    start, remaining = one.start, one.size
    for number in range(count):
        size = remaining // (count - number)
        remaining -= size
        if size:
            yield replace(
                one,
                start=start,
                end=start + size,
                from_earliest=one.from_earliest and start == one.start,
                to_latest=one.to_latest and start + size == one.end,
            )
        start += size
