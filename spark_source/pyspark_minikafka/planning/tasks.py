"""The tasks of a planned read, each with one or several ranges. ``reading`` runs them. Pure.

A Python task costs Spark 30 to 70 ms, however little is in it. So ranges are put into tasks by their work:

    small     together they are less than TASK_BYTES a core: fewer tasks than cores, one at least
    medium    a task for each core
    large     tasks of PACKED_BYTES, or one range where it has more; so a read that is large enough has a task
              for each range, whatever the number of cores

Work is the estimated bytes of the records, and a cost for each range. A range of a batch query is split
where that shortens the read: where one partition has most of the work, or there are fewer ranges than cores.
That of a stream is not: tasks run at the same time, and its sink may rely on the order of a partition.

A task has adjacent ranges in the order of leader, topic and partition, so its ranges share the fetches of few
brokers, and the parts of a partition stay in the order of the tasks.

A range to the latest record is planned by what it has now, and read to what it has then: a DataFrame may be
planned long before it runs, and a topic that was empty may be large. So such ranges are spread over all
cores.

Tasks decide nothing about what is read: a batch that is planned again may have others.
"""

from __future__ import annotations

import heapq
import math
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from pyspark.sql.datasource import InputPartition

from minikafka.base.ids import TopicPartition
from minikafka.base.text import first_of
from pyspark_minikafka.location import Target
from pyspark_minikafka.planning.ranges import OffsetRange
from pyspark_minikafka.planning.record_sizes import ASSUMED, RecordSize
from pyspark_minikafka.planning.splits import parts

TASK_BYTES = 1 << 20
"""Work for which one more task is worth its cost, while cores are free."""
PACKED_BYTES = 32 << 20
"""The most work of a task with several ranges: 0.3 s and more, beside which the cost of a task is small."""
PART_BYTES = 8 << 20
"""The least work of a part of a range that is split."""
RANGE_BYTES = 16 << 10
"""The cost of a range, in bytes that could be read instead."""
_RANGES_NAMED = 3
"""The most ranges that a line of the log names."""
_WORTH = 0.8
"""The most of the time before that a read may need for a split to be worth it."""


class ReadTask(InputPartition):
    """One task: ranges of topic partitions, and their brokers. Small, because it is pickled.

    offset_bytes: the mean bytes of an offset, as stored; of several topics the most.
    """

    def __init__(self, ranges: Sequence[OffsetRange], target: Target, offset_bytes: float) -> None:
        super().__init__(None)
        self.ranges = tuple(ranges)
        self.target = target
        self.offset_bytes = offset_bytes

    def __repr__(self) -> str:
        more = f" and {len(self.ranges) - 1} more" if len(self.ranges) > 1 else ""
        return f"ReadTask({self.ranges[0]}{more})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Packing:
    """The rules of one query for its tasks. least_tasks, most_offsets: ``minPartitions`` and
    ``maxRecordsPerPartition``.
    """

    cores: int
    least_tasks: int = 1
    most_offsets: int | None = None


def pack(
    ranges: Sequence[OffsetRange],
    packing: Packing,
    sizes: Mapping[str, RecordSize],
    leader: Callable[[TopicPartition], int | None],
    *,
    splits: bool,
) -> list[tuple[OffsetRange, ...]]:
    """Return the ranges of each task, in the order of the tasks.

    sizes: of the records of each topic, ASSUMED for others. leader: of a partition, where it is known.
    splits: large ranges are split, so the rows of a partition may be in several tasks.
    """

    def work(part: OffsetRange) -> float:
        return RANGE_BYTES + part.size * sizes.get(part.topic_partition.topic, ASSUMED).decoded

    whole = list(_split_large(ranges, packing.cores, work) if splits else ranges)
    count = _task_count(whole, packing, sum(map(work, whole)))
    if count >= len(whole):
        return [(part,) for part in whole]
    whole.sort(key=lambda part: (_known(leader(part.topic_partition)), part.topic_partition, part.start))
    tasks = _cut(whole, [work(part) for part in whole], count)
    if packing.most_offsets is not None:
        tasks = [some for task in tasks for some in _limited(task, packing.most_offsets)]
    return tasks


def offset_bytes(task: Sequence[OffsetRange], sizes: Mapping[str, RecordSize]) -> float:
    """Return the mean bytes of an offset of a task, as stored: those of the topic that has the most."""
    return max(sizes.get(part.topic_partition.topic, ASSUMED).stored for part in task)


def total_bytes(ranges: Sequence[OffsetRange], sizes: Mapping[str, RecordSize]) -> float:
    """Return the estimated bytes of all ranges, as they are stored."""
    return sum(part.size * sizes.get(part.topic_partition.topic, ASSUMED).stored for part in ranges)


def _known(leader: int | None) -> int:
    return -1 if leader is None else leader


def _task_count(ranges: Sequence[OffsetRange], packing: Packing, work: float) -> int:
    wanted = min(packing.cores, math.ceil(work / TASK_BYTES))
    to_latest = sum(part.to_latest for part in ranges)
    count = max(wanted, min(packing.cores, to_latest), packing.least_tasks, math.ceil(work / PACKED_BYTES), 1)
    return min(count, len(ranges))


def _split_large(
    ranges: Sequence[OffsetRange], cores: int, work: Callable[[OffsetRange], float]
) -> Sequence[OffsetRange]:
    """Return the ranges, the large ones in parts if the read then ends earlier."""
    works = [work(part) for part in ranges]
    share = max(sum(works) / cores, PART_BYTES)
    if cores == 1 or max(works, default=0) <= share:
        return ranges
    before = _longest(works, cores)
    for piece in (share, max(share / 2, PART_BYTES)):
        split = [
            some
            for part, its in zip(ranges, works, strict=True)
            for some in parts(part, min(math.ceil(its / piece), part.size) if its > piece else 1)
        ]
        if _longest([work(part) for part in split], cores) <= _WORTH * before:
            return split
    return ranges


def _longest(works: Sequence[float], cores: int) -> float:
    """Return the work of the core that ends last, if each takes the next task when it is free."""
    loads = [0.0] * min(cores, len(works))  # other cores get nothing
    for its in works:
        heapq.heapreplace(loads, loads[0] + its)
    return max(loads)


def _cut(ranges: Sequence[OffsetRange], works: Sequence[float], count: int) -> list[tuple[OffsetRange, ...]]:
    """Return ``count`` tasks of adjacent ranges with about the same work; each has one at least."""
    ends = list(accumulate(works))
    tasks, begin = [], 0
    for number in range(1, count):
        wanted = ends[-1] * number / count
        at = bisect_left(ends, wanted)
        # ``at`` ranges end before the wanted work; with one more they end behind it.
        if at < len(ends) and ends[at] - wanted < wanted - (ends[at - 1] if at else 0.0):
            at += 1
        end = min(max(at, begin + 1), len(ranges) - (count - number))
        tasks.append(tuple(ranges[begin:end]))
        begin = end
    return [*tasks, tuple(ranges[begin:])]


def _limited(task: Sequence[OffsetRange], most: int) -> Iterator[tuple[OffsetRange, ...]]:
    """Yield a task in several where it has more offsets; a single range has no more."""
    some: list[OffsetRange] = []
    offsets = 0
    for part in task:
        if some and offsets + part.size > most:
            yield tuple(some)
            some, offsets = [], 0
        some.append(part)
        offsets += part.size
    yield tuple(some)


@dataclass(frozen=True, slots=True)
class PlanTimes:
    """The time to look up the offsets of a batch, and then to plan its tasks."""

    look_up_s: float
    plan_s: float


def plan_summary(tasks: Sequence[ReadTask], stored_bytes: float, times: PlanTimes, left: int | None) -> str:
    """Return the line of the driver's log about the ``tasks`` of a batch.

    stored_bytes: the estimated size of their records. left: the number of offsets behind the batch that are
    there already; None for a batch query, and a batch that was planned before a restart.
    """
    ranges = [part for task in tasks for part in task.ranges]
    named = [f"{part.topic_partition} from {part.start} to {part.end}" for part in ranges[:_RANGES_NAMED]]
    named += [""] * (len(ranges) - len(named))  # only counted
    text = (
        f"planned {sum(part.size for part in ranges):,} offsets, about {stored_bytes:,.0f} bytes, as tasks: "
        f"{len(tasks)}, ranges: {len(ranges)} ({first_of(named, _RANGES_NAMED)}); "
        f"offsets looked up in {times.look_up_s:.3f} s, planned in {times.plan_s:.3f} s"
    )
    return text if left is None else f"{text}; lag after this batch {left:,}"


def offsets_left(end: Mapping[TopicPartition, int], newest: Mapping[TopicPartition, int]) -> int:
    """Return the number of offsets between the ends of a batch and of the logs."""
    return sum(max(0, newest.get(tp, offset) - offset) for tp, offset in end.items())
