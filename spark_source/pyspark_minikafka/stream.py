"""Streaming reads: ``spark.readStream.format("minikafka")``.

Two processes hold a reader. A runner, one for each query, asks for offsets and plans batches; a planner
worker makes another reader, whose ``read`` goes to the executors. The second one sees nothing that the first
one remembers.

Which offset means what, and why batch 0's end carries its own start, stands in ``offsets``. Spark 4.2 and
later ask ``latestOffset(start, limit)``; before, ``latestOffset()`` must know by itself where the query is.
It does: a query that goes on from a checkpoint has its last offset told by ``partitions(last, last)`` before
anything else is asked, except by Spark's wrapper for the trigger AvailableNow, which captures the end first.

On those older Sparks the Scala shim makes limits and AvailableNow possible: it hands a question to ``commit``
and takes the answer from the next ``latestOffset()``::

    {"minikafka:ask": {"what": "next", "start": OFFSET, "everything": false}}  the end of the next batch
    {"minikafka:ask": {"what": "prepare"}}                                     AvailableNow: null
    {"minikafka:ask": {"what": "newest"}}                                      for the progress
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from minikafka.base.clock import Clock, SystemClock
from minikafka.base.errors import MinikafkaError
from minikafka.base.ids import TopicPartition
from pyspark_minikafka import catalog, report, resume, workers
from pyspark_minikafka.location import Target, locate
from pyspark_minikafka.lookup import make_planner
from pyspark_minikafka.offsets import OffsetJson, Offsets, StreamOffset, to_json
from pyspark_minikafka.options import Mode, SourceOptions, source_options
from pyspark_minikafka.planner import Planner
from pyspark_minikafka.rate import Patience
from pyspark_minikafka.schema import check_user_schema
from pyspark_minikafka.tasks import input_partitions

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

    from pyspark_minikafka.groups import GroupProgress


ASK_KEY = "minikafka:ask"
"""In an offset that the Scala shim hands to ``commit``: no offset, but a question."""

_WAYS = (
    "Use Spark 4.2 or later, put the Scala shim's jar into spark.jars (python -m pyspark_minikafka.shim "
    "prints its path), or set spark.sql.streaming.triggerAvailableNowWrapper.enabled to true for the "
    "session, which a source does not see. With that, with another trigger, or where this is meant, set the "
    "option minikafka.single.batch to allow. What earlier runs left out comes with new records, or with a "
    "new checkpoint"
)
SINGLE_BATCH = (
    "before Spark 4.2, Trigger.AvailableNow on a Python source is one batch, without the closing batch that "
    "Spark's own Kafka connector gets: of a query with a watermark in append mode, the windows which that "
    f"batch closes are missing, until a later run brings new records. {_WAYS}"
)
NO_LIMIT = (
    "maxOffsetsPerTrigger has no effect before Spark 4.2 without the Scala shim: a batch takes all there is"
)


class SingleBatchRefused(MinikafkaError):
    """A query with a watermark, on a Spark that may run it as one batch and never close its windows."""

    def __init__(self, checkpoint: resume.Place, watermark_ms: int) -> None:
        super().__init__(
            f"the query has a watermark ({watermark_ms} ms, in {checkpoint}), and Spark before 4.2 does not "
            "tell a Python source its trigger: with Trigger.AvailableNow, closed windows would be missing. "
            f"{_WAYS}"
        )


class StreamReader(DataSourceStreamReader):
    """The reader of a stream in every Spark release; picklable until it has planned a batch."""

    def __init__(
        self,
        options: SourceOptions,
        plan: tuple[Planner, Target] | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.options = options
        self._planner_and_target = plan
        self._clock = clock or SystemClock()
        self._patience = Patience()
        self._start: StreamOffset | None = None
        self._newest: Offsets | None = None
        self._target: Offsets | None = None
        self._group: GroupProgress | None = None

    @workers.plainly()
    def initialOffset(self) -> OffsetJson:  # noqa: N802
        """Return the start of a new query. Spark asks twice for batch 0 and must get the same offset."""
        return self._initial().to_json()

    @workers.plainly()
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The tasks of the micro-batch from ``start`` to ``end``."""
        if start == end:
            return []
        planner, target = self._plan()
        begun, ends = StreamOffset.from_json(start), StreamOffset.from_json(end)
        if self._target is not None:
            planner.check_still_there({**ends.positions, **self._target})
        planner.check_topics(begun, ends)
        ranges = planner.stream(begun, ends)
        return input_partitions(ranges, target)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Record batches of one task; runs on an executor."""
        from pyspark_minikafka.reading import read  # the driver's processes only plan

        return read(partition, self.options)

    @workers.plainly()
    def commit(self, end: dict[str, Any]) -> None:
        """The batch that ends there is done. Spark says so with the next one, and of the last one never."""
        self._reached(StreamOffset.from_json(end).positions)

    def stop(self) -> None:
        """The query has ended."""
        from pyspark_minikafka import cache

        if self._group is None:
            cache.close_all()
            return
        from pyspark_minikafka import groups

        with groups.undisturbed():
            self._group.close()
            cache.close_all()

    def _plan(self) -> tuple[Planner, Target]:
        if self._planner_and_target is None:
            target = locate(self.options.location)
            if self.options.groups.commit is not None:
                from pyspark_minikafka import groups

                self._group = groups.follow(self.options, target)
            self._planner_and_target = make_planner(self.options, target), target
        return self._planner_and_target

    def _initial(self) -> StreamOffset:
        if self._start is None:
            self._start = self._plan()[0].initial()
        return self._start

    def _reached(self, position: Mapping[TopicPartition, int]) -> None:
        """All before ``position`` was read, and the sink has it."""
        self._plan()
        if self._group is not None:
            self._group.reached(position)

    def _next(self, start: OffsetJson, *, everything: bool) -> OffsetJson:
        """The end of the batch after ``start``; everything: without the limits of the options."""
        begun = StreamOffset.from_json(start)
        self._plan()[0].check_topics(begun)
        position = begun.positions
        self._reached(position)
        if self._target is None:
            ends = self._fresh(position)
            if not everything and self._too_little(position, ends):
                return start
        else:
            # Nothing more will come, so that there is nothing to wait for.
            ends = self._within_target(position)
        limit = self.options.trigger.max_offsets
        if limit is not None and not everything:
            ends = self._plan()[0].limited(limit, position, ends)
        return self._after(start, begun, ends)

    def _capture(self) -> None:
        """From now on nothing newer than what is there at this moment is given (AvailableNow)."""
        self._target = self._fresh({})

    def _newest_json(self) -> OffsetJson | None:
        return None if self._newest is None else to_json(self._newest)

    def _within_target(self, position: Mapping[TopicPartition, int]) -> Offsets:
        assert self._target is not None
        overlooked = [tp for tp, offset in position.items() if self._target.get(tp, -1) < offset]
        if overlooked:
            # A broker that was just starting may not have known them then, and a new leader not how far
            # they were read; this run reads nothing of them.
            present = self._plan()[0].available(position)
            found = (tp for tp in overlooked if present.get(tp, -1) >= position[tp])
            self._target.update({tp: position[tp] for tp in found})
        return dict(self._target)

    def _after(self, start: OffsetJson, begun: StreamOffset, ends: Offsets) -> OffsetJson:
        """The next offset, which ends at ``ends``; ``start``, the JSON of ``begun``, when nothing is new."""
        begin = begun.positions
        if begun.initial:
            # Never behind the start, which may be newer than what was captured for AvailableNow.
            ends = {tp: max(end, begin.get(tp, end)) for tp, end in ends.items()}
            return StreamOffset(ends, batch_start=begin).to_json()
        return start if ends == begin else to_json(ends)

    def _too_little(self, start: Mapping[TopicPartition, int], ends: Offsets) -> bool:
        """Return whether the batch must wait for ``minOffsetsPerTrigger``."""
        trigger = self.options.trigger
        if trigger.min_offsets is None:
            return False
        now_ms = self._clock.monotonic_ms()
        return self._patience.holds_back(trigger.min_offsets, trigger.max_delay_ms, now_ms, start, ends)

    def _fresh(self, known: Mapping[TopicPartition, int]) -> Offsets:
        self._newest = self._plan()[0].available(known)
        return dict(self._newest)


class RefusedReader(DataSourceStreamReader):
    """The reader of a query whose options are refused: whatever it is asked, it raises why.

    Spark's runner calls ``stop`` of a reader that was never made, and tells of that error in place of the
    refusal.
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

    @workers.plainly()
    def _refuse(self) -> NoReturn:
        raise self.problem


class UnlimitedReader(StreamReader):
    """For Spark 4.0 and 4.1, which ask for the latest offset without saying from where, unless the Scala shim
    asks as later ones do.
    """

    _last: OffsetJson | None = None
    _question: Mapping[str, Any] | None = None
    _told = False

    @workers.plainly()
    def initialOffset(self) -> OffsetJson:  # noqa: N802
        # Only a new query is asked; ``latestOffset`` may come first where the checkpoint has another place.
        self._reached(self._initial().positions)
        return super().initialOffset()

    @workers.plainly()
    def latestOffset(self) -> OffsetJson:  # type: ignore[override]  # noqa: N802
        """The end of what is there, or the answer to the shim. Called all the time while the query waits."""
        if self._question is not None:
            question, self._question = self._question, None
            return self._answer(question)
        self._tell_of_single_batches()
        begin = self._initial().to_json() if self._last is None else self._last
        begun = StreamOffset.from_json(begin)
        self._plan()[0].check_topics(begun)
        if self._last is not None:
            self._reached(begun.positions)
        ends = self._fresh(begun.positions)
        return begin if self._too_little(begun.positions, ends) else self._after(begin, begun, ends)

    @workers.plainly()
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
            self._capture()
            return None  # type: ignore[return-value]
        return self._newest_json()  # type: ignore[return-value]

    def _tell_of_single_batches(self) -> None:
        """Say what Spark leaves out here; SingleBatchRefused where the query is known to have a watermark.

        Nothing tells a source the trigger of its query, or its watermark. Only a checkpoint does that the
        options name, from its first committed batch on.
        """
        if self._told:
            return
        self._told = True
        if self.options.trigger.max_offsets is not None:
            report.warn_once(NO_LIMIT)
        if self.options.single_batch_allowed:
            return
        watermark_ms = resume.watermark_ms(self.options.checkpoint)
        if watermark_ms is not None and self._last is None:
            return  # it was not told where it is: Spark's wrapper for AvailableNow, which does all batches
        if watermark_ms and self.options.checkpoint is not None:
            raise SingleBatchRefused(self.options.checkpoint, watermark_ms)
        report.warn_once(SINGLE_BATCH)


if HAS_LIMITS:

    class LimitedReader(StreamReader, SupportsTriggerAvailableNow):
        """For Spark 4.2 and later: limits of a batch, and the trigger AvailableNow."""

        @workers.plainly()
        def latestOffset(self, start: OffsetJson, limit: ReadLimit) -> OffsetJson:  # noqa: N802
            """The end of the batch after ``start``. Called all the time while the query waits."""
            return self._next(start, everything=isinstance(limit, ReadAllAvailable))

        def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
            """The limit per batch. Spark has none of two, so where there are both, the lower one is ours to
            keep. The trigger Once asks for everything whatever this says.
            """
            trigger = self.options.trigger
            if trigger.max_offsets is not None:
                return ReadMaxRows(trigger.max_offsets)
            return ReadAllAvailable() if trigger.min_offsets is None else ReadMinRows(trigger.min_offsets)

        def reportLatestOffset(self) -> OffsetJson | None:  # noqa: N802
            return self._newest_json()

        @workers.plainly()
        def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
            self._capture()


def reader(options: Mapping[str, str], schema: StructType) -> StreamReader | RefusedReader:
    """The reader for the running Spark."""
    try:
        catalog.refuse_without_options(options)
        parsed = source_options(options, Mode.STREAM)
        check_user_schema(schema, parsed.include_headers)
    except MinikafkaError as problem:
        return RefusedReader(problem)
    return LimitedReader(parsed) if HAS_LIMITS else UnlimitedReader(parsed)
