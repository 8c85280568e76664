"""Options and what a cluster says -> the offsets and ranges of a query. Only the driver plans.

Every question about the cluster goes through a ``Lookup``, and every warning and pause through what the
planner is given, so that all its decisions run without a broker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from minikafka.base.errors import BrokerError, ErrorCode
from minikafka.base.ids import INTERNAL_TOPICS, TopicPartition
from pyspark_minikafka import ranges, rate
from pyspark_minikafka.offsets import (
    EARLIEST,
    LATEST,
    OffsetBound,
    Offsets,
    StreamOffset,
    batch_start,
    check_specified,
)
from pyspark_minikafka.options import Assign, SourceOptions, Subscribe
from pyspark_minikafka.ranges import DataLoss, OffsetRange

FOREIGN_FIRST_BATCH = (
    "the first batch in this checkpoint was planned by another source and never finished, and where it "
    "started (latest at that time) is unknown here; finish it with that source first"
)


class Lookup(Protocol):
    """What planning asks of a cluster. Both questions may raise NetworkError or a retriable BrokerError."""

    def partitions(self, *, refresh: bool) -> Mapping[str, tuple[int, ...]]:
        """Every topic with the numbers of its partitions;
        not from memory with ``refresh``. Creates no topic.
        """

    def offsets(self, wanted: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
        """The offset of each partition at EARLIEST or LATEST; one that does not exist is left out."""


class Planner:
    """Decides for one query what to read.

    warn: takes a sentence for the user's log. pause: waits that many milliseconds.
    """

    def __init__(
        self,
        options: SourceOptions,
        lookup: Lookup,
        *,
        warn: Callable[[str], None],
        pause: Callable[[int], None],
    ) -> None:
        self._options = options
        self._lookup = lookup
        self._warn = warn
        self._pause = pause

    def batch(self) -> tuple[OffsetRange, ...]:
        """The ranges of a batch query, with ``latest`` bound to what is there now."""
        partitions = self._assigned()
        start = self._resolve("startingOffsets", self._options.starting, partitions)
        end = self._resolve("endingOffsets", self._options.ending, partitions)
        return ranges.plan_batch(start, end)

    def initial(self) -> StreamOffset:
        """Where a new streaming query starts."""
        partitions = self._assigned()
        positions = self._resolve("startingOffsets", self._options.starting, partitions)
        return StreamOffset(positions, initial=True)

    def available(self, known: Iterable[TopicPartition] = ()) -> Offsets:
        """The end offset of every partition that the query reads.

        known: partitions that were there before. One that seems to be missing is asked for again some times
        before it counts as gone, because a broker that has just started does not know all its topics.
        """
        known = set(known)
        ends: Offsets = {}
        for attempt in range(self._options.offset_retries + 1):
            if attempt:
                self._pause(self._options.offset_retry_interval_ms)
            found, _ = self._present(refresh=attempt > 0)
            ends = dict(self._lookup.offsets(dict.fromkeys(found, LATEST)))
            if known <= set(ends):
                break
        return ends

    def limited(self, limit: int, start: Mapping[TopicPartition, int], end: Offsets) -> Offsets:
        """The ends of a micro-batch of about ``limit`` records;
        new partitions count from their first offset.
        """
        new = ranges.new_partitions(start, end)
        begins = dict(start)
        if new:
            begins.update(self._lookup.offsets(dict.fromkeys(new, EARLIEST)))
        return rate.limited(limit, begins, end)

    def stream(self, start: StreamOffset, end: StreamOffset) -> tuple[OffsetRange, ...]:
        """The ranges of the micro-batch from ``start`` to ``end``, the same ones whenever it is planned."""
        if start.initial and end.batch_start is None and self._options.starting.moves:
            self._lost([FOREIGN_FIRST_BATCH])
        begin = batch_start(start, end)
        new = ranges.new_partitions(begin, end.positions)
        first = self._lookup.offsets(dict.fromkeys(new, EARLIEST)) if new else {}
        plan = ranges.plan_stream(begin, end.positions, first)
        self._lost(plan.losses)
        return plan.ranges

    def _assigned(self) -> tuple[TopicPartition, ...]:
        """The partitions that the query reads.

        What is named must be there: UNKNOWN_TOPIC_OR_PARTITION if not.
        """
        missing: list[str] = []
        for attempt in range(self._options.offset_retries + 1):
            if attempt:
                self._pause(self._options.offset_retry_interval_ms)
            found, missing = self._present(refresh=True)
            if not missing:
                return found
        raise BrokerError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"{', '.join(missing)} cannot be read because the cluster does not have it: check the name, or "
            "create the topic first",
        )

    def _present(self, *, refresh: bool) -> tuple[tuple[TopicPartition, ...], list[str]]:
        """Partitions of the query that the cluster has, in order, and the names that it does not have."""
        topics = self._lookup.partitions(refresh=refresh)
        strategy = self._options.strategy
        if isinstance(strategy, Assign):
            found = [tp for tp in strategy.partitions if tp.partition in topics.get(tp.topic, ())]
            return tuple(found), [str(tp) for tp in strategy.partitions if tp not in found]
        if isinstance(strategy, Subscribe):
            names = [name for name in strategy.topics if name in topics]
            missing = [name for name in strategy.topics if name not in topics]
        else:
            names = [name for name in topics if name not in INTERNAL_TOPICS and strategy.matches(name)]
            missing = []
        return tuple(sorted(TopicPartition(name, p) for name in names for p in topics[name])), missing

    def _resolve(self, name: str, bound: OffsetBound, partitions: Iterable[TopicPartition]) -> Offsets:
        """A definite offset for every partition.

        An offset that stands in the options must lie within its log, or records that were asked for are lost.
        """
        if bound.offsets is None:
            return self._all(dict.fromkeys(partitions, bound.default))
        given = check_specified(name, bound, partitions)
        first = self._all(dict.fromkeys(given, EARLIEST))
        last = self._all(dict.fromkeys(given, LATEST))
        resolved: Offsets = {}
        losses = []
        for tp, offset in sorted(given.items()):
            resolved[tp] = {EARLIEST: first[tp], LATEST: last[tp]}.get(offset, offset)
            if not first[tp] <= resolved[tp] <= last[tp]:
                losses.append(f"{name} asks for offset {offset} of {tp}, which has {first[tp]} to {last[tp]}")
                resolved[tp] = min(max(offset, first[tp]), last[tp])
        self._lost(losses)
        return resolved

    def _all(self, wanted: Mapping[TopicPartition, int]) -> Offsets:
        found = dict(self._lookup.offsets(wanted)) if wanted else {}
        missing = sorted(set(wanted) - set(found))
        if missing:
            raise BrokerError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"{', '.join(map(str, missing))} vanished while the query was planned",
            )
        return found

    def _lost(self, losses: Iterable[str]) -> None:
        losses = list(losses)
        if losses and self._options.fail_on_data_loss:
            raise DataLoss(losses)
        for loss in losses:
            self._warn(f"{loss}. Some data may have been lost; the query goes on (failOnDataLoss is false)")
