"""Streaming reads: ``spark.readStream.format("minikafka")``.

Two processes have a reader. A runner, one for each query, looks up offsets and plans batches; a planner
worker makes another reader, whose ``read`` goes to the executors. The two share no state.

``offsets`` explains the offsets, and why the end of batch 0 contains its start. Spark 4.2 and later call
``latestOffset(start, limit)``; earlier ones call ``latestOffset()``, which must know the query's position by
itself. It does: for a query that resumes from a checkpoint, Spark first calls ``partitions(last, last)`` with
the last offset. The exception is Spark's wrapper for Trigger.AvailableNow, which captures the end first.

On those older Sparks the Scala shim makes limits and AvailableNow possible: it passes a question to
``commit`` and takes the answer from the next ``latestOffset()``::

    {"minikafka:ask": {"what": "next", "start": OFFSET, "everything": false}}  the end of the next batch
    {"minikafka:ask": {"what": "prepare"}}                                     AvailableNow: null
    {"minikafka:ask": {"what": "newest"}}                                      for the progress
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from minikafka.base.clock import Clock, SystemClock
from minikafka.base.errors import MinikafkaError
from minikafka.base.ids import TopicPartition
from pyspark_minikafka import catalog, report, workers
from pyspark_minikafka.checkpoint import spark_checkpoint
from pyspark_minikafka.location import Target, locate
from pyspark_minikafka.offsets import OffsetJson, Offsets, StreamOffset, to_json
from pyspark_minikafka.options.options import Mode, SourceOptions, source_options
from pyspark_minikafka.planning.lookup import make_planner, make_watch
from pyspark_minikafka.planning.planner import Planner
from pyspark_minikafka.planning.rate import TriggerDelay
from pyspark_minikafka.planning.tasks import PlanTimes, offsets_left, plan_summary
from pyspark_minikafka.planning.transaction_waits import TransactionWatch, waits_key
from pyspark_minikafka.schema import check_user_schema

try:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxRows,
        ReadMinRows,
        SupportsTriggerAvailableNow,
    )

    HAS_LIMITS = True
except ImportError:  # Spark before 4.2
    HAS_LIMITS = False

if TYPE_CHECKING:
    import pyarrow as pa

    from pyspark_minikafka.reading.groups import GroupProgress


ASK_KEY = "minikafka:ask"
"""The key of a question from the Scala shim, in place of an offset, to ``commit``."""

_REMEDIES = (
    "Use Spark 4.2 or later, put the Scala shim's jar into spark.jars (python -m pyspark_minikafka.shim "
    "prints its path), or set spark.sql.streaming.triggerAvailableNowWrapper.enabled to true for the "
    "session (a source cannot see that setting). With that setting, with another trigger, or to accept a "
    "single batch, set the option minikafka.single.batch to allow. Windows missing from earlier runs appear "
    "with new records, or with a new checkpoint"
)
SINGLE_BATCH = (
    "before Spark 4.2, Trigger.AvailableNow runs a Python source as one batch, without the closing batch of "
    "Spark's own Kafka connector: in a query with a watermark in append mode, the windows which that batch "
    f"would close are missing until a later run reads new records. {_REMEDIES}"
)
NO_LIMIT = (
    "maxOffsetsPerTrigger has no effect before Spark 4.2 without the Scala shim: a batch reads all available "
    "records"
)


class SingleBatchRefused(MinikafkaError):
    """A query with a watermark, on a Spark that may run it as one batch and never close its windows."""

    def __init__(self, checkpoint: spark_checkpoint.CheckpointLocation, watermark_ms: int) -> None:
        super().__init__(
            f"the query has a watermark ({watermark_ms} ms, in {checkpoint}), and before Spark 4.2 a Python "
            "source does not know the query's trigger: with Trigger.AvailableNow, closed windows would be "
            f"missing. {_REMEDIES}"
        )


class StreamReader(DataSourceStreamReader):
    """The reader of a stream in every Spark release; picklable until it has planned a batch."""

    def __init__(
        self, options: SourceOptions, plan: tuple[Planner, Target] | None = None, clock: Clock | None = None
    ) -> None:
        self.options = options
        self._planner_and_target = plan
        self._clock = clock or SystemClock()
        self._delay = TriggerDelay()
        self._start: StreamOffset | None = None
        self._newest: Offsets | None = None
        self._look_up_s = 0.0
        """The time of the last look-up of the ends of the logs."""
        self._target: Offsets | None = None
        self._group: GroupProgress | None = None
        self._watch: TransactionWatch | None = None

    @workers.readable_errors()
    def initialOffset(self) -> OffsetJson:  # noqa: N802
        """Return the start of a new query. Spark asks twice for batch 0 and must get the same offset."""
        return self._initial().to_json()

    @workers.readable_errors()
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return the tasks of the micro-batch from ``start`` to ``end``."""
        if start == end:
            return []
        planner, target = self._plan()
        first, last = StreamOffset.from_json(start), StreamOffset.from_json(end)
        if self._target is not None:
            planner.check_target({**last.positions, **self._target})
        planner.check_topics(first, last)
        began = time.perf_counter()
        tasks = planner.tasks(planner.stream(first, last), target, splits=False)
        times = PlanTimes(self._look_up_s, time.perf_counter() - began)
        left = None if self._newest is None else offsets_left(last.positions, self._newest)
        report.note(plan_summary(tasks, planner.planned_bytes, times, left), shown=self.options.log_tasks)
        return tasks

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the record batches of one task; runs on an executor."""
        from pyspark_minikafka.reading.task_reader import read  # the driver's processes only plan

        return read(partition, self.options)

    @workers.readable_errors()
    def commit(self, end: dict[str, Any]) -> None:
        """Record that the batch to ``end`` is done. Spark calls this with the next batch, and never for the
        last one.
        """
        self._reached(StreamOffset.from_json(end).positions)

    def stop(self) -> None:
        """Release the resources of the query, which has ended."""
        from pyspark_minikafka import cache

        if self._group is None:
            cache.close_all()
            return
        from pyspark_minikafka.reading import groups

        with groups.sigterm_deferred():
            self._group.close()
            cache.close_all()

    def _plan(self) -> tuple[Planner, Target]:
        if self._planner_and_target is None:
            target = locate(self.options.location)
            if self.options.groups.commit is not None:
                from pyspark_minikafka.reading import groups

                self._group = groups.start_progress(self.options, target)
            self._watch = make_watch(self.options, target)
            self._planner_and_target = make_planner(self.options, target), target
        return self._planner_and_target

    def _initial(self) -> StreamOffset:
        if self._start is None:
            self._start = self._plan()[0].initial()
        return self._start

    def _reached(self, position: Mapping[TopicPartition, int]) -> None:
        """Record that the sink has all records before ``position``."""
        self._plan()
        if self._group is not None:
            self._group.reached(position)

    def _next(self, start: OffsetJson, *, everything: bool) -> OffsetJson:
        """Return the end of the batch after ``start``; everything: without the limits of the options."""
        offset = StreamOffset.from_json(start)
        self._plan()[0].check_topics(offset)
        position = offset.positions
        self._reached(position)
        if self._target is None:
            ends = self._available(position)
            if not everything and self._must_wait(position, ends):
                return start
        else:
            # The query reads no newer records, so there is nothing to wait for.
            ends = self._within_target(position)
        limit = self.options.trigger.max_offsets
        if limit is not None and not everything:
            ends = self._plan()[0].limited(limit, position, ends)
        return self._next_offset(start, offset, ends)

    def _capture_target(self) -> None:
        """Fix the end of the query at the records that are available now (Trigger.AvailableNow)."""
        self._target = self._available({})

    def _newest_json(self) -> OffsetJson | None:
        if self._newest is None:
            return None
        waits = {} if self._watch is None else self._watch.waits
        return {**to_json(self._newest), **({waits_key(waits): {}} if waits else {})}

    def _within_target(self, position: Mapping[TopicPartition, int]) -> Offsets:
        assert self._target is not None
        behind = [tp for tp, offset in position.items() if self._target.get(tp, -1) < offset]
        if behind:
            # At the capture a starting broker may not have known them, or a new leader may have had a lagging
            # high watermark; this run reads nothing of them.
            present = self._plan()[0].available(position)
            found = (tp for tp in behind if present.get(tp, -1) >= position[tp])
            self._target.update({tp: position[tp] for tp in found})
        return dict(self._target)

    def _next_offset(self, start: OffsetJson, offset: StreamOffset, ends: Offsets) -> OffsetJson:
        """Return the offset with ``ends``, or ``start``, the JSON of ``offset``, if nothing is new."""
        begin = offset.positions
        if offset.initial:
            # At least the start, which may be newer than the end captured for AvailableNow.
            ends = {tp: max(end, begin.get(tp, end)) for tp, end in ends.items()}
            return StreamOffset(ends, batch_start=begin).to_json()
        return start if ends == begin else to_json(ends)

    def _must_wait(self, start: Mapping[TopicPartition, int], ends: Offsets) -> bool:
        """Return True if the batch must wait for ``minOffsetsPerTrigger``."""
        trigger = self.options.trigger
        if trigger.min_offsets is None:
            return False
        now_ms = self._clock.monotonic_ms()
        return self._delay.must_wait(trigger.min_offsets, trigger.max_delay_ms, now_ms, start, ends)

    def _available(self, known: Mapping[TopicPartition, int]) -> Offsets:
        planner, _ = self._plan()
        began = time.perf_counter()
        self._newest = planner.available(known)
        if self._watch is not None:
            self._watch.observe(known, self._newest)
        self._look_up_s = time.perf_counter() - began
        return dict(self._newest)


class RefusedReader(DataSourceStreamReader):
    """The reader of a query whose options are invalid: every method raises the error.

    If ``streamReader`` raised it, Spark's runner would call ``stop`` of a reader that does not exist, and
    report that error instead.
    """

    def __init__(self, problem: MinikafkaError) -> None:
        self.problem = problem

    def initialOffset(self) -> OffsetJson:  # noqa: N802
        return self._refuse()

    def latestOffset(self) -> OffsetJson:  # type: ignore[override]  # noqa: N802
        return self._refuse()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        self._refuse()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        self._refuse()

    @workers.readable_errors()
    def _refuse(self) -> NoReturn:
        raise self.problem


class UnlimitedReader(StreamReader):
    """The reader for Spark 4.0 and 4.1, which ask for the latest offset without a start. The Scala shim asks
    with one, as later releases do.
    """

    _last: OffsetJson | None = None
    _question: Mapping[str, Any] | None = None
    _warned = False

    @workers.readable_errors()
    def initialOffset(self) -> OffsetJson:  # noqa: N802
        # Called for a new query only; ``latestOffset`` may come first if the checkpoint has another position.
        self._reached(self._initial().positions)
        return super().initialOffset()

    @workers.readable_errors()
    def latestOffset(self) -> OffsetJson:  # type: ignore[override]  # noqa: N802
        """Return the end of the available records, or the answer to the shim. Called repeatedly while the
        query waits.
        """
        if self._question is not None:
            question, self._question = self._question, None
            return self._answer(question)
        self._check_single_batch()
        begin = self._initial().to_json() if self._last is None else self._last
        offset = StreamOffset.from_json(begin)
        self._plan()[0].check_topics(offset)
        if self._last is not None:
            self._reached(offset.positions)
        ends = self._available(offset.positions)
        return begin if self._must_wait(offset.positions, ends) else self._next_offset(begin, offset, ends)

    @workers.readable_errors()
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        planned = super().partitions(start, end)
        self._last = end
        return planned

    def commit(self, end: dict[str, Any]) -> None:
        if ASK_KEY in end:
            self._question = end[ASK_KEY]
        else:
            super().commit(end)

    def _answer(self, question: Mapping[str, Any]) -> OffsetJson:
        """Return the shim's answer; None, JSON's null, when there is no offset."""
        if question["what"] == "next":
            return self._next(question["start"], everything=question["everything"])
        if question["what"] == "prepare":
            self._capture_target()
            return None  # type: ignore[return-value]
        return self._newest_json()  # type: ignore[return-value]

    def _check_single_batch(self) -> None:
        """Warn about the closing batch that Spark omits. Raise SingleBatchRefused if the query is known to
        have a watermark.

        A source does not know the trigger or the watermark of its query. A checkpoint that the options name
        shows the watermark, from its first committed batch on.
        """
        if self._warned:
            return
        self._warned = True
        if self.options.trigger.max_offsets is not None:
            report.warn_once(NO_LIMIT)
        if self.options.single_batch_allowed:
            return
        watermark_ms = spark_checkpoint.watermark_ms(self.options.checkpoint)
        if watermark_ms is not None and self._last is None:
            return  # no position was passed: this is Spark's wrapper for AvailableNow, which runs all batches
        if watermark_ms and self.options.checkpoint is not None:
            raise SingleBatchRefused(self.options.checkpoint, watermark_ms)
        report.warn_once(SINGLE_BATCH)


if HAS_LIMITS:

    class LimitedReader(StreamReader, SupportsTriggerAvailableNow):
        """The reader for Spark 4.2 and later: limits of a batch, and Trigger.AvailableNow."""

        @workers.readable_errors()
        def latestOffset(self, start: OffsetJson, limit: ReadLimit) -> OffsetJson:  # noqa: N802
            """Return the end of the batch after ``start``. Called repeatedly while the query waits."""
            return self._next(start, everything=isinstance(limit, ReadAllAvailable))

        def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
            """Return the limit of a batch. Spark has no limit with both bounds, so if both options are set,
            the reader itself applies the minimum. Trigger.Once ignores this and asks for everything.
            """
            trigger = self.options.trigger
            if trigger.max_offsets is not None:
                return ReadMaxRows(trigger.max_offsets)
            return ReadAllAvailable() if trigger.min_offsets is None else ReadMinRows(trigger.min_offsets)

        def reportLatestOffset(self) -> OffsetJson | None:  # noqa: N802
            return self._newest_json()

        @workers.readable_errors()
        def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
            self._capture_target()


def reader(options: Mapping[str, str], schema: StructType) -> StreamReader | RefusedReader:
    """Return the reader for the running Spark."""
    try:
        catalog.refuse_without_options(options)
        parsed = source_options(options, Mode.STREAM, schema)
        check_user_schema(schema, parsed.columns, parsed.formats)
    except MinikafkaError as problem:
        return RefusedReader(problem)
    return LimitedReader(parsed) if HAS_LIMITS else UnlimitedReader(parsed)
