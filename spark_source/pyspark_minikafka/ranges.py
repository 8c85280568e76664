"""The ranges that tasks read, and what was lost between two micro-batches. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from minikafka.base.errors import MinikafkaError
from minikafka.base.ids import TopicPartition


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Records ``start`` (inclusive) to ``end`` (exclusive) of one partition.

    from_earliest, to_latest: the first record that is there, or the last one, is meant, which may be others
    by the time that a task reads; ``start`` and ``end`` are where they were when the query was planned.
    """

    topic_partition: TopicPartition
    start: int
    end: int
    from_earliest: bool = False
    to_latest: bool = False

    @property
    def size(self) -> int:
        """Number of offsets; an upper bound of the number of records."""
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class Plan:
    """The ranges and losses of one batch.

    ranges: in order of topic and partition; empty ones are left out.
    losses: one sentence for each thing that may mean lost records (``failOnDataLoss``).
    """

    ranges: tuple[OffsetRange, ...]
    losses: tuple[str, ...]


class DataLoss(MinikafkaError):
    """Records that the query should have read are not there any more."""

    def __init__(self, losses: Iterable[str]) -> None:
        self.losses = tuple(losses)
        super().__init__(self.losses)

    def __str__(self) -> str:
        return (
            f"{'; '.join(self.losses)}. Some data may have been lost: deleted by retention, or with its "
            "topic, before the query read it. To go on without it set the option failOnDataLoss to false"
        )


def new_partitions(
    start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]
) -> list[TopicPartition]:
    """Partitions that appeared after ``start`` was taken, in order."""
    return sorted(set(end) - set(start))


def went_back(start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]) -> list[TopicPartition]:
    """Partitions whose end is before what was read of them: their topic was made again, or their log cut. A
    high watermark that lags just after an election never becomes an end, see ``Planner.available``.
    """
    return sorted(tp for tp in start if tp in end and end[tp] < start[tp])


def plan_stream(
    start: Mapping[TopicPartition, int],
    end: Mapping[TopicPartition, int],
    earliest: Mapping[TopicPartition, int],
) -> Plan:
    """The ranges of a micro-batch.

    earliest: first offset of each of ``new_partitions(start, end)`` and of those that ``went_back``; they
    are read from there. Which records of a log that went back were read before, nobody can tell, so none is
    left out.
    """
    losses = []
    begins = {tp: offset for tp, offset in start.items() if tp in end}
    for tp in new_partitions(start, end):
        if tp not in earliest:
            losses.append(f"the first offset of the new partition {tp} cannot be found")
            continue
        begins[tp] = earliest[tp]
        if begins[tp] != 0:
            losses.append(f"the new partition {tp} starts at offset {begins[tp]} instead of 0")
    gone = sorted(set(start) - set(end))
    if gone:
        losses.append(f"partitions {', '.join(map(str, gone))} are gone")
    for tp in went_back(begins, end):
        loss = f"the end of {tp} went back from offset {begins[tp]} to {end[tp]}: its topic was made again"
        first = begins[tp] = min(earliest.get(tp, end[tp]), end[tp])
        losses.append(f"{loss}, or its log was cut, so that it is read from its first offset, {first}")
    ranges = (OffsetRange(tp, begins[tp], end[tp]) for tp in sorted(begins) if end[tp] > begins[tp])
    return Plan(tuple(ranges), tuple(losses))
