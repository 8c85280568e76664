"""Reads a topic continuously: its start positions, its messages, and the detection of its deletion."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from minikafka.base.errors import BrokerError, ErrorCode, MinikafkaError, OffsetOutOfRange
from minikafka.base.ids import TopicPartition
from minikafka.base.text import first_of
from minikafka.base.times import utc_text
from minikafka.cli.connect import existing_topic
from minikafka.cli.output import note
from minikafka.clients.admin.admin import LATEST, Admin
from minikafka.clients.fetch.isolation_level import IsolationLevel
from minikafka.clients.fetch.range_fetcher import RangeFetcher, check_readable
from minikafka.clients.fetch.read_ranges import Anchor, PartitionRange, Position, ReadRange, find_ranges
from minikafka.clients.network.cluster import ClusterClient
from minikafka.records.format.message_set import iterate

if TYPE_CHECKING:
    from minikafka.records.format.message_set import StoredRecord

POLL_INTERVAL_MS = 200
"""The interval of look-ups at the end of the log."""
READABLE_EVERY_MS = 5_000
"""The interval of checks, at the end of the log, that access rules still permit reading."""
LAG_TIMEOUT_MS = 800
"""The time for which the end of a log may be before the position: a new leader may still catch up."""
_GONE = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})
"""The errors of a topic that was deleted, perhaps to be made again."""
NAMED_MAX = 5
"""The most partitions that a note names."""

Positions = dict[TopicPartition, int]


def starting_positions(
    cluster: ClusterClient,
    topic: str,
    wanted: ReadRange,
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
) -> Positions:
    """Return the offset to start from in each partition. Raise BrokerError for a topic that does not exist.

    An offset outside a partition's range is moved to the nearer end of the range, with a note on stderr,
    because one number is used for many partitions.
    """
    partitions = [partition.topic_partition for partition in existing_topic(Admin(cluster), topic).partitions]
    found = find_ranges(cluster, partitions, wanted, cluster.deadline(), isolation)
    _note_outside(found, wanted.start)
    return {tp: part.start for tp, part in found.items()}


def _note_outside(found: Mapping[TopicPartition, PartitionRange], start: Position) -> None:
    """Print notes about the partitions whose log does not have the requested start."""
    first = {tp: part.log_start for tp, part in found.items()}
    end = {tp: part.log_end for tp, part in found.items()}
    late = [tp for tp, part in found.items() if part.requested is None]
    asked = {tp: part.requested for tp, part in found.items() if part.requested is not None}
    beyond = [tp for tp, offset in asked.items() if offset > end[tp]]
    deleted = [tp for tp, offset in asked.items() if offset < first[tp]]
    when = f"no message at or after {utc_text(start.value)} in"
    _note(when, late, "ends at", end, "waiting at the end for new ones")
    sign = "+" if start.anchor is Anchor.START else ""
    offset = f"offset {sign}{start.value}"
    _note(f"no {offset} yet in", beyond, "ends at", end, "waiting at the end for new messages")
    _note(f"{offset} was deleted in", deleted, "starts at", first, "reading from there")


def read_partitions(
    cluster: ClusterClient, positions: Positions, isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED
) -> Iterator[tuple[TopicPartition, StoredRecord]]:
    """Yield the messages from ``positions`` on, each partition in order, without end. Update ``positions``.

    With READ_COMMITTED a partition is read up to its first open transaction, and on when that has ended.

    Raise MinikafkaError once the topic is deleted, also if it is recreated.
    """
    admin = Admin(cluster)
    deadline, next_check = cluster.deadline(), cluster.deadline(0)
    while True:
        try:
            ends = _known(admin.offsets(dict.fromkeys(positions, LATEST), isolation=isolation))
            for tp, end in ends.items():
                if end < positions[tp]:
                    _check_end(cluster, tp, positions[tp], isolation)
                yield from _read(cluster, positions, tp, end, isolation)
            if next_check.expired and ends == positions:
                tp, position = next(iter(positions.items()))
                check_readable(cluster, tp, position)
                next_check = cluster.deadline(READABLE_EVERY_MS)
            deadline = cluster.deadline()
        except BrokerError as error:
            if error.code not in _GONE or deadline.expired:
                raise
            _check_topic(cluster, positions)
            ends = {}
        sys.stdout.flush()
        if all(end <= positions[tp] for tp, end in ends.items()):
            cluster.waiter.wait(POLL_INTERVAL_MS)


def _read(
    cluster: ClusterClient, positions: Positions, tp: TopicPartition, end: int, isolation: IsolationLevel
) -> Iterator[tuple[TopicPartition, StoredRecord]]:
    """Yield the messages of a partition up to ``end``."""
    try:
        while positions[tp] < end:
            # The existence of the topic is checked here, sooner than a fetcher would give up.
            for data in RangeFetcher(
                cluster, tp, positions[tp], end, unretried_codes=_GONE, isolation=isolation
            ):
                for record in iterate(data):
                    # A compressed batch may start before the requested offset.
                    if positions[tp] <= record.offset < end:
                        positions[tp] = record.offset + 1
                        if not record.control:
                            yield tp, record
            positions[tp] = end
    except OffsetOutOfRange as error:
        if error.offset > error.end_offset:
            _check_end(cluster, tp, error.offset, isolation)
        else:
            first = {tp: error.start_offset}
            _note(f"offset {error.offset} was deleted in", [tp], "starts at", first, "reading from there")
            positions[tp] = error.start_offset


def _check_end(cluster: ClusterClient, tp: TopicPartition, position: int, isolation: IsolationLevel) -> None:
    """Raise MinikafkaError unless the end of the log reaches ``position`` within LAG_TIMEOUT_MS."""
    deadline = cluster.deadline(LAG_TIMEOUT_MS)
    while True:
        end = _known(Admin(cluster).offsets({tp: LATEST}, isolation=isolation))[tp]
        if end >= position:
            return
        if deadline.expired:
            raise MinikafkaError(_recreated(tp.topic, f"{tp} was read to {position} and now ends at {end}"))
        cluster.waiter.wait(POLL_INTERVAL_MS)


def _check_topic(cluster: ClusterClient, positions: Positions) -> None:
    """Raise MinikafkaError if the topic no longer exists, or has lost partitions."""
    topic = next(iter(positions)).topic
    cluster.invalidate(topic)
    try:
        found = cluster.topic(topic)
    except BrokerError as error:
        if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise MinikafkaError(f"topic {topic!r} was deleted while it was read") from None
        raise
    lost = [tp for tp in positions if found.partition(tp.partition) is None]
    if lost:
        raise MinikafkaError(_recreated(topic, f"{lost[0]} no longer exists"))


def _recreated(topic: str, sign: str) -> str:
    return (
        f"topic {topic!r} was deleted and recreated while it was read: {sign}; run the command again to "
        "read the new topic"
    )


def _known(offsets: Mapping[TopicPartition, int | None]) -> Positions:
    return {tp: offset or 0 for tp, offset in offsets.items()}


def _note(
    what: str, partitions: list[TopicPartition], bound: str, offsets: Mapping[TopicPartition, int], then: str
) -> None:
    """Print a note about ``partitions``, if there are any."""
    if partitions:
        named = first_of([f"{tp} ({bound} {offsets[tp]})" for tp in partitions], NAMED_MAX)
        note(f"minikafka: {what} {named}: {then}")
