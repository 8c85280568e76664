"""The ranges that tasks read, and what was lost between two micro-batches. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from minikafka.base.errors import MinikafkaError
from minikafka.base.ids import TopicPartition
from pyspark_minikafka.planning.recreated import loss_text


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Records ``start`` (inclusive) to ``end`` (exclusive) of one partition.

    from_earliest, to_latest: the range means the first, or the last, record of the log at the time of the
    read; ``start`` and ``end`` are their offsets at the time of planning.
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
    losses: one sentence for each possible loss of records (``failOnDataLoss``).
    """

    ranges: tuple[OffsetRange, ...]
    losses: tuple[str, ...]


class DataLoss(MinikafkaError):
    """Records that the query should have read no longer exist."""

    def __init__(self, losses: Iterable[str]) -> None:
        self.losses = tuple(losses)
        super().__init__(self.losses)

    def __str__(self) -> str:
        return (
            f"{'; '.join(self.losses)}. Some data may have been lost: deleted by retention, or with its "
            "topic, before the query read it. To continue without it, set the option failOnDataLoss to false"
        )


def new_partitions(
    start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]
) -> list[TopicPartition]:
    """Return the partitions of ``end`` that are not in ``start``, in order."""
    return sorted(set(end) - set(start))


def moved_back(
    start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]
) -> list[TopicPartition]:
    """Return the partitions whose end is before the position of the query, in order: the topic was recreated
    or the log truncated. A high watermark that lags just after an election never becomes an end, see
    ``Planner.available``.
    """
    return sorted(tp for tp in start if tp in end and end[tp] < start[tp])


def plan_stream(
    start: Mapping[TopicPartition, int],
    end: Mapping[TopicPartition, int],
    earliest: Mapping[TopicPartition, int],
    recreated: Collection[TopicPartition] = (),
) -> Plan:
    """Plan the ranges of a micro-batch.

    earliest: the first offsets of ``new_partitions(start, end)`` and of ``moved_back(start, end)``; these are
    read from there. It is unknown which records of a log that moved back were read before, so none is left
    out.
    recreated: partitions whose topic is known to be another one. The batch reads nothing of them, and ends
    where the next one begins.
    """
    losses = []
    begins = {tp: offset for tp, offset in start.items() if tp in end}
    for tp in new_partitions(start, end):
        if tp not in earliest:
            losses.append(f"cannot find the first offset of the new partition {tp}")
            continue
        begins[tp] = earliest[tp]
        if begins[tp] != 0:
            losses.append(f"the new partition {tp} starts at offset {begins[tp]} instead of 0")
    deleted = sorted(set(start) - set(end))
    if deleted:
        losses.append(f"partitions {', '.join(map(str, deleted))} are gone")
    for tp in sorted(tp for tp in recreated if tp in begins):
        losses.append(
            f"{loss_text([tp])} after the query had read {tp} to offset {begins[tp]}; reading from its first "
            f"offset, {end[tp]}"
        )
        begins[tp] = end[tp]
    for tp in moved_back(begins, end):
        loss = f"the end of {tp} moved back from offset {begins[tp]} to {end[tp]}"
        first = begins[tp] = min(earliest.get(tp, end[tp]), end[tp])
        losses.append(
            f"{loss}: the topic was recreated or its log truncated; reading from its first offset, {first}"
        )
    ranges = (OffsetRange(tp, begins[tp], end[tp]) for tp in sorted(begins) if end[tp] > begins[tp])
    return Plan(tuple(ranges), tuple(losses))
