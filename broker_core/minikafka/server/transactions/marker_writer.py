"""The markers that end transactions, appended to the partitions that this broker leads.

A partition's result is known once every in-sync replica has its marker, or that failed. With the marker in a
partition of ``__consumer_offsets``, the group coordinator commits or drops the offsets in the transaction.

As in Kafka, a marker is appended for a producer that the log does not know, too: the log must refuse a late
batch of its former epochs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from minikafka.base.errors import ErrorCode
from minikafka.base.ids import OFFSETS_TOPIC, TopicPartition
from minikafka.base.values import fast_value
from minikafka.records.format.message_set import Codec
from minikafka.server.coordination.partition_writer import PartitionWriter
from minikafka.server.core.broker import Broker
from minikafka.server.core.deferred_response import portions
from minikafka.server.groups.group_coordinator import GroupCoordinator
from minikafka.server.workers.work_pool import Steps

REPLICATION_TIMEOUT_MS = 30_000
"""The limit for the replication of a marker: the default of Kafka's ``request.timeout.ms``."""
MARKERS_PER_STEP = 50


@fast_value
class EndMarker:
    """The end of one transaction, for some of its partitions."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    commit: bool
    partitions: tuple[TopicPartition, ...]


MarkerResults = dict[TopicPartition, ErrorCode]
"""The result of each partition of a marker."""
MarkersWritten = Callable[[Sequence[MarkerResults]], None]
"""Called outside of the lock with the results of each marker."""


def _never() -> bool:
    return False


class _Writing:
    """The results of some markers, until all are known."""

    def __init__(self, broker: Broker, markers: Sequence[EndMarker], done: MarkersWritten) -> None:
        self._broker = broker
        self._done = done
        self._results: list[MarkerResults] = [{} for _ in markers]
        self._left = sum(len(marker.partitions) for marker in markers)

    def add(self, number: int, topic_partition: TopicPartition, error: ErrorCode) -> None:
        """Add the result of one partition of a marker. Called within a step."""
        self._results[number][topic_partition] = error
        self._left -= 1
        if self._left == 0:
            self._broker.after(partial(self._done, self._results))


class MarkerWriter:
    """Appends markers, and tells the group coordinator."""

    def __init__(self, broker: Broker, groups: GroupCoordinator) -> None:
        self._broker = broker
        self._groups = groups
        self._writer = PartitionWriter(broker, Codec.NONE, REPLICATION_TIMEOUT_MS)

    def write(
        self, markers: Sequence[EndMarker], done: MarkersWritten, is_late: Callable[[], bool] = _never
    ) -> Steps:
        """Append markers. ``done`` is called, perhaps later, with a result for each partition of each.

        ``is_late`` tells before each append whether the sender may have given the markers up: then they get
        REQUEST_TIMED_OUT. Return the steps that do it, for a pool or in a loop; others get the lock between
        them.
        """
        rows = [
            (number, marker, topic_partition)
            for number, marker in enumerate(markers)
            for topic_partition in marker.partitions
        ]
        writing = _Writing(self._broker, markers, done)
        if not rows:
            done([{} for _ in markers])
        for portion in portions(rows, MARKERS_PER_STEP):
            self._broker.run(partial(self._append, portion, writing, is_late))
            yield 0

    def _append(
        self,
        rows: Sequence[tuple[int, EndMarker, TopicPartition]],
        writing: _Writing,
        is_late: Callable[[], bool],
    ) -> None:
        if is_late():
            for number, _, topic_partition in rows:
                writing.add(number, topic_partition, ErrorCode.REQUEST_TIMED_OUT)
            return
        for number, marker, topic_partition in rows:
            self._writer.append_end_marker(
                topic_partition,
                marker.producer_id,
                marker.producer_epoch,
                marker.coordinator_epoch,
                partial(self._written, writing, number, marker, topic_partition),
                commit=marker.commit,
            )

    def _written(
        self,
        writing: _Writing,
        number: int,
        marker: EndMarker,
        topic_partition: TopicPartition,
        error: ErrorCode,
        offset: int,
    ) -> None:
        """Take the outcome for one partition. Called within a step."""
        if error is ErrorCode.NONE and topic_partition.topic == OFFSETS_TOPIC:
            self._groups.transaction_completed(
                topic_partition, marker.producer_id, offset, commit=marker.commit
            )
        writing.add(number, topic_partition, error)
