"""Plans a query: the offsets and ranges that its options select in a cluster. Runs on the driver only.

Requests to the cluster go through a ``Lookup``; warnings, pauses and the clock are arguments, so every
decision is tested without a broker. Only ``resume`` reads files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from minikafka.base.errors import BrokerError, ConfigError, ErrorCode, MinikafkaError
from minikafka.base.ids import INTERNAL_TOPICS, TopicPartition
from minikafka.base.text import counted, first_of
from pyspark_minikafka.checkpoint import subscription
from pyspark_minikafka.checkpoint.spark_checkpoint import Resume, UnknownStart, reads
from pyspark_minikafka.location import Target
from pyspark_minikafka.offsets import EARLIEST, LATEST, Offsets, StreamOffset, batch_start
from pyspark_minikafka.options.bounds import Bound, GroupBound, Newest, TimeBound
from pyspark_minikafka.options.options import SourceOptions
from pyspark_minikafka.planning import ranges, rate
from pyspark_minikafka.planning.pushdown import EVERYTHING, PushedFilters
from pyspark_minikafka.planning.ranges import DataLoss, OffsetRange
from pyspark_minikafka.planning.record_sizes import RecordSize, RecordSizes
from pyspark_minikafka.planning.recreated import RecreatedTopics, loss_text
from pyspark_minikafka.planning.splits import split
from pyspark_minikafka.planning.tasks import Packing, ReadTask, offset_bytes, pack, total_bytes
from pyspark_minikafka.private_topics import is_private
from pyspark_minikafka.strategy import Assign, Subscribe

_NAMED = 5
"""The most partitions that a message names."""


class Lookup(Protocol):
    """The look-ups of the planner. Each may raise NetworkError or a retriable BrokerError."""

    def partitions(self, *, refresh: bool) -> Mapping[str, tuple[int, ...]]:
        """Return every topic with its partition numbers; with ``refresh`` not from the cache. Create no
        topic.
        """

    def topic_ids(self) -> Mapping[str, bytes]:
        """Return the ids of the topics that ``partitions`` returned last, where brokers have ids."""

    def offsets(self, wanted: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
        """Return the offset of each partition at EARLIEST or LATEST, without partitions that do not exist."""

    def offsets_at(self, wanted: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int | None]:
        """Return the first offset of each partition at or after a timestamp in ms, None when there is none,
        without partitions that do not exist.
        """

    def logs_reach(self, wanted: Mapping[TopicPartition, int]) -> set[TopicPartition]:
        """Return the partitions whose log end is at that offset or later, whatever their high watermark."""

    def committed(self, group: str) -> Mapping[TopicPartition, int]:
        """Return all committed offsets of a consumer group. Raise for a group without any."""

    def leader(self, topic_partition: TopicPartition) -> int | None:
        """Return the leader as it was looked up last; None if it is unknown. Ask no broker."""

    def record_size(self, offsets: OffsetRange) -> RecordSize | None:
        """Look at the log once, without a retry; None if that fails."""


class NoRecordAtTime(MinikafkaError):
    """A query starts at a timestamp, and a partition has no record at or after it."""


class TargetLost(MinikafkaError):
    """Records before the end of a query with Trigger.AvailableNow no longer exist."""


class Planner:
    """Plans the batches of one query.

    warn: logs a warning for the user. pause: waits for that many milliseconds. now_ms: the wall clock, in ms
    since 1970. cores: those that the query's tasks share.
    """

    def __init__(
        self,
        options: SourceOptions,
        lookup: Lookup,
        *,
        warn: Callable[[str], None],
        pause: Callable[[int], None],
        now_ms: Callable[[], int],
        cores: int,
    ) -> None:
        self._options = options
        self._lookup = lookup
        self._warn = warn
        self._pause = pause
        self._now_ms = now_ms
        self._reads = reads(options.strategy)
        self._resume = Resume(options.checkpoint, self._reads, warn)
        self._recreated = RecreatedTopics()
        self._record_sizes = RecordSizes(lookup.record_size)
        self.planned_bytes = 0.0
        """The estimated bytes of the last ranges that ``tasks`` was called with, as stored."""
        self._packing = Packing(
            cores=cores,
            least_tasks=options.min_partitions or 1,
            most_offsets=options.max_records_per_partition,
        )

    def batch(self, filters: PushedFilters = EVERYTHING) -> tuple[OffsetRange, ...]:
        """Return the ranges of a batch query that its filters leave.

        A partition that is read to its latest record has a range even if it is empty: the end is resolved
        when the task reads.
        """
        partitions = self._assigned()
        wanted_start = self._bound(self._options.starting, partitions)
        wanted_end = self._bound(self._options.ending, partitions)
        start, end = self._resolved(wanted_start), self._resolved(wanted_end)
        newest = self._options.starting
        if isinstance(newest, Newest):
            start = wanted_start = self._newest(newest, partitions, end)
            if newest.records is not None:
                wanted_end = end  # a task that resolves the end later would return more records
        end |= self._caught_up(start, {tp: end[tp] for tp in partitions if wanted_end[tp] == LATEST})
        since = self._since(filters, [tp for tp in partitions if filters.keeps(tp)])
        found = []
        for tp in partitions:
            if start[tp] > end[tp]:
                raise ConfigError(
                    "startingOffsets", str(start[tp]), f"is beyond the end of {tp}, which is {end[tp]}"
                )
            if tp not in since:
                continue
            to_latest = wanted_end[tp] == LATEST
            if filters.end_offset is not None and filters.end_offset <= end[tp]:
                end[tp], to_latest = filters.end_offset, False
            first = max(start[tp], since[tp])
            if first < end[tp] or (to_latest and first == end[tp]):
                found.append(OffsetRange(tp, first, end[tp], wanted_start[tp] == EARLIEST, to_latest))
        return split(found, self._options.min_partitions, self._options.max_records_per_partition)

    def initial(self) -> StreamOffset:
        """Return the start of a new streaming query."""
        recorded = self._resume.initial()
        if recorded is not None:
            return StreamOffset(recorded, initial=True)
        partitions = self._assigned()
        if isinstance(self._options.starting, Newest):
            end = self._resolved(dict.fromkeys(partitions, LATEST))
            return StreamOffset(self._newest(self._options.starting, partitions, end), initial=True)
        return StreamOffset(self._resolved(self._bound(self._options.starting, partitions)), initial=True)

    def available(self, known: Mapping[TopicPartition, int]) -> Offsets:
        """Return the end offset of every partition that the query reads.

        known: the query's positions. A partition that is missing, or whose end is lower, is looked up again
        ``fetchOffset.numRetries`` times: a broker that has just started does not know all topics.

        Just after an election the high watermark may lag behind the positions until followers have fetched.
        If the log reaches that far, nothing is lost and there is nothing new to read.

        A partition whose topic was created again ends at its first offset: the next batch takes the query
        back to it.
        """
        self._recreated.forget_taken_back()
        return self._ends(known)

    def _ends(self, known: Mapping[TopicPartition, int]) -> Offsets:
        known = {tp: offset for tp, offset in known.items() if self._reads(tp)}
        ends: Offsets = {}
        for attempt in range(self._options.offset_retries + 1):
            if attempt:
                self._pause(self._options.offset_retry_interval_ms)
            found, _ = self._present(refresh=attempt > 0)
            self._recreated.observe(self._lookup.topic_ids(), known)
            recreated = self._recreated.partitions.intersection(found)
            known = {tp: offset for tp, offset in known.items() if tp not in recreated}
            ends = dict(self._lookup.offsets(dict.fromkeys(found, LATEST)))
            if recreated:
                first = self._lookup.offsets(dict.fromkeys(recreated, EARLIEST))
                # Deleted again meanwhile: where it begins is not known, so it is gone for now.
                ends = {tp: end for tp, end in ends.items() if tp not in recreated or tp in first}
                ends |= self._recreated.to_take_back(first)
            behind = {tp: offset for tp, offset in known.items() if tp in ends and ends[tp] < offset}
            if behind:
                ends |= {tp: behind[tp] for tp in self._lookup.logs_reach(behind)}
            if all(ends.get(tp, -1) >= offset for tp, offset in known.items()):
                break
        return ends

    def check_target(self, target: Mapping[TopicPartition, int]) -> None:
        """Raise TargetLost unless each partition still reaches its offset, regardless of ``failOnDataLoss``:
        a query that cannot reach its end must not look complete (as in Spark's connector).
        """
        target = {tp: offset for tp, offset in target.items() if self._reads(tp)}
        found = self._ends(target)
        recreated = self._recreated.partitions & target.keys()
        lost = [loss_text(recreated)] if recreated else []
        lost += [
            f"{tp} now ends at {found[tp]}, before {offset}" if tp in found else f"{tp} is gone"
            for tp, offset in sorted(target.items())
            if found.get(tp, -1) < offset and tp not in recreated
        ]
        if lost:
            raise TargetLost(
                "records that existed when this query with Trigger.AvailableNow started no longer exist: "
                f"{', '.join(lost)}. Restart the query to read the records that exist now"
            )

    def check_topics(self, *offsets: StreamOffset) -> None:
        """Raise SubscriptionChanged when ``offsets`` have partitions that the options do not read."""
        if not self._options.accept_changed_topics:
            subscription.check(self._options.strategy, self._options.checkpoint, *offsets)

    def limited(self, limit: int, start: Mapping[TopicPartition, int], end: Offsets) -> Offsets:
        """Return the ends of a micro-batch of about ``limit`` records. New partitions count from their first
        offset.
        """
        new = ranges.new_partitions(start, end)
        begins = dict(start)
        if new:
            begins.update(self._lookup.offsets(dict.fromkeys(new, EARLIEST)))
        return rate.limited(limit, begins, end)

    def stream(self, start: StreamOffset, end: StreamOffset) -> tuple[OffsetRange, ...]:
        """Return the ranges of the micro-batch from ``start`` to ``end``. Every planning returns the same
        ranges.
        """
        begin = dict(self._batch_start(start, end))
        dropped = subscription.dropped_partitions(self._options.strategy, begin) - set(end.positions)
        if dropped:
            self._warn(subscription.dropped_warning(dropped, begin))
            begin = {tp: offset for tp, offset in begin.items() if tp not in dropped}
        recreated = self._recreated.taken_back(begin)
        whole = [*ranges.new_partitions(begin, end.positions), *ranges.moved_back(begin, end.positions)]
        first = self._lookup.offsets(dict.fromkeys(whole, EARLIEST)) if whole else {}
        plan = ranges.plan_stream(begin, end.positions, first, recreated)
        self._report_losses(plan.losses)
        return split(plan.ranges, self._options.min_partitions, self._options.max_records_per_partition)

    def tasks(self, planned: Sequence[OffsetRange], target: Target, *, splits: bool) -> list[ReadTask]:
        """Return the tasks of the ranges of a batch, by their work or one for each (``minikafka.tasks``).

        splits: by their work, large ranges are split.
        """
        sizes = self._record_sizes.of(planned, self._now_ms())
        self.planned_bytes = total_bytes(planned, sizes)
        if self._options.by_work:
            packed = pack(planned, self._packing, sizes, self._lookup.leader, splits=splits)
        else:
            packed = [(part,) for part in planned]
        return [ReadTask(task, target, offset_bytes(task, sizes)) for task in packed]

    def _batch_start(self, start: StreamOffset, end: StreamOffset) -> Mapping[TopicPartition, int]:
        if start.initial and end.batch_start is None:
            # Another source planned this batch. The start by the options, even the earliest offset, may have
            # changed since.
            try:
                return self._resume.of_first_batch(end.positions)
            except UnknownStart as problem:
                if self._options.fail_on_data_loss:
                    raise
                self._warn(f"{problem}. The query starts where its options say (failOnDataLoss is false)")
        return batch_start(start, end)

    def _assigned(self) -> tuple[TopicPartition, ...]:
        """Return the partitions that the query reads.

        Raise UNKNOWN_TOPIC_OR_PARTITION for a named topic or partition that does not exist.
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
            f"{', '.join(missing)} does not exist in the cluster, or this client may not describe it; "
            "check the name, create the topic first, or allow this user to describe it",
        )

    def _present(self, *, refresh: bool) -> tuple[tuple[TopicPartition, ...], list[str]]:
        """Return the existing partitions of the query, in order, and the names that do not exist."""
        topics = self._lookup.partitions(refresh=refresh)
        strategy = self._options.strategy
        if isinstance(strategy, Assign):
            found = [tp for tp in strategy.partitions if tp.partition in topics.get(tp.topic, ())]
            return tuple(found), [str(tp) for tp in strategy.partitions if tp not in found]
        if isinstance(strategy, Subscribe):
            names = [name for name in strategy.topics if name in topics]
            missing = [name for name in strategy.topics if name not in topics]
        else:
            names = strategy.among(
                name for name in topics if name not in INTERNAL_TOPICS and not is_private(name)
            )
            missing = []
        return tuple(sorted(TopicPartition(name, p) for name in names for p in topics[name])), missing

    def _since(self, filters: PushedFilters, partitions: Iterable[TopicPartition]) -> Offsets:
        """Return the first offset of each partition that the query's filters leave."""
        first = dict.fromkeys(partitions, filters.first_offset)
        if filters.since_ms is None or not first:
            return first
        # Records after a time later than all present records come after the present end.
        since = self._resolved(self._at(dict.fromkeys(first, filters.since_ms), or_latest=True))
        return {tp: max(offset, since[tp]) for tp, offset in first.items()}

    def _bound(self, bound: Bound, partitions: Iterable[TopicPartition]) -> Offsets:
        """Return an offset, LATEST or EARLIEST for each partition; nothing for a start that counts back from
        the end.
        """
        if isinstance(bound, Newest):
            return {}
        if isinstance(bound, TimeBound):
            return self._at(bound.of(partitions), or_latest=bound.or_latest)
        if isinstance(bound, GroupBound):
            return self._of_group(bound.group, partitions)
        return self._within_log(f"{bound.name} asks for", dict(bound.of(partitions)))

    def _of_group(self, group: str, partitions: Iterable[TopicPartition]) -> Offsets:
        """Return the group's offsets. A partition without a commit is read from its beginning, with a
        warning.
        """
        committed = self._lookup.committed(group)
        wanted = {tp: committed.get(tp, EARLIEST) for tp in partitions}
        without = sorted(tp for tp in wanted if tp not in committed)
        if without:
            self._warn(
                f"group {group!r} has no committed offset for {counted(len(without), 'partition')} "
                f"({first_of(without, _NAMED)}); reading from the first record there"
            )
        return self._within_log(f"group {group!r} has committed", wanted)

    def _at(self, times: Mapping[TopicPartition, int], *, or_latest: bool) -> Offsets:
        found = self._lookup.offsets_at(times)
        self._check_exist(times, found)
        late = sorted(tp for tp in times if found[tp] is None)
        if late and not or_latest:
            what = ", ".join(f"{tp} (time {times[tp]} ms)" for tp in late)
            raise NoRecordAtTime(
                f"no offset matched: no record at or after the time in {what}; to start there with new "
                "records, set the option startingOffsetsByTimestampStrategy to latest"
            )
        return {tp: LATEST if (offset := found[tp]) is None else offset for tp in times}

    def _within_log(self, source: str, wanted: Offsets) -> Offsets:
        """Check that the requested offsets are within their logs, and move those that are not: requested
        records are lost then.

        source: the beginning of the message, with a verb.
        """
        named = {tp: offset for tp, offset in wanted.items() if offset >= 0}
        first, last = (self._all(dict.fromkeys(named, special)) for special in (EARLIEST, LATEST))
        beyond = {tp: offset for tp, offset in named.items() if offset > last[tp]}
        lagging = self._lookup.logs_reach(beyond) if beyond else set()
        losses = []
        for tp, offset in sorted(named.items()):
            if tp not in lagging and not first[tp] <= offset <= last[tp]:
                losses.append(f"{source} offset {offset} of {tp}, but its log has {first[tp]} to {last[tp]}")
                wanted[tp] = min(max(offset, first[tp]), last[tp])
        self._report_losses(losses)
        return wanted

    def _caught_up(
        self, start: Mapping[TopicPartition, int], latest: Mapping[TopicPartition, int]
    ) -> Offsets:
        """Return the new ends of the partitions whose ``latest`` end is before their ``start``, after waiting
        for the high watermark to reach the start.

        It may lag just after an election. If it still lags after ``fetchOffset.numRetries`` look-ups, there
        is nothing to read yet. Partitions whose log does not reach the start are left out.
        """
        behind = {tp: start[tp] for tp, offset in latest.items() if offset < start[tp]}
        lagging = self._lookup.logs_reach(behind) if behind else set()
        ends = {tp: start[tp] for tp in lagging}
        for _ in range(self._options.offset_retries if lagging else 0):
            self._pause(self._options.offset_retry_interval_ms)
            found = self._all(dict.fromkeys(lagging, LATEST))
            ends = {tp: max(end, start[tp]) for tp, end in found.items()}
            if ends == found:
                break
        return ends

    def _newest(self, bound: Newest, partitions: Iterable[TopicPartition], end: Offsets) -> Offsets:
        """Return the offsets at which the newest records before ``end`` begin."""
        if bound.duration_ms is not None:
            times = dict.fromkeys(partitions, max(0, self._now_ms() - bound.duration_ms))
            start = self._resolved(self._at(times, or_latest=True))
            return {tp: min(start[tp], end[tp]) for tp in start}
        assert bound.records is not None
        first = self._resolved(dict.fromkeys(partitions, EARLIEST))
        return rate.newest(bound.records, first, end)

    def _resolved(self, wanted: Offsets) -> Offsets:
        """Return ``wanted`` with LATEST and EARLIEST replaced by the present offsets."""
        special = {tp: offset for tp, offset in wanted.items() if offset < 0}
        return {**wanted, **self._all(special)}

    def _all(self, wanted: Mapping[TopicPartition, int]) -> Offsets:
        found = dict(self._lookup.offsets(wanted)) if wanted else {}
        self._check_exist(wanted, found)
        return found

    def _check_exist(self, wanted: Iterable[TopicPartition], found: Iterable[TopicPartition]) -> None:
        missing = sorted(set(wanted) - set(found))
        if missing:
            raise BrokerError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"{', '.join(map(str, missing))} disappeared while the query was being planned",
            )

    def _report_losses(self, losses: Iterable[str]) -> None:
        """Raise DataLoss, or log warnings if ``failOnDataLoss`` is false."""
        losses = list(losses)
        if losses and self._options.fail_on_data_loss:
            raise DataLoss(losses)
        for loss in losses:
            self._warn(f"{loss}. Some data may have been lost; the query continues (failOnDataLoss is false)")
