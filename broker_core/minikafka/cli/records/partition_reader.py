"""Reads topics from their start positions, continuously or to an end, and detects the deletion of one."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from minikafka.base.errors import BrokerError, ErrorCode, MinikafkaError, OffsetOutOfRange
from minikafka.base.files import Buffer
from minikafka.base.ids import TopicPartition
from minikafka.base.text import first_of
from minikafka.base.times import utc_text
from minikafka.cli.connection.connect import existing_topic
from minikafka.cli.records.output import Message, MessageLine
from minikafka.cli.terminal.output import note
from minikafka.clients.admin.admin import LATEST, Admin
from minikafka.clients.fetch.isolation_level import IsolationLevel
from minikafka.clients.fetch.range_fetcher import RangeFetcher, check_readable
from minikafka.clients.fetch.read_ranges import Anchor, PartitionRange, ReadRange, find_ranges
from minikafka.clients.group.fetched_records import bytes_of_rows
from minikafka.clients.network.cluster import ClusterClient
from minikafka.records.columns import Columns, DamagedEntry, decode_pieces
from minikafka.records.format.headers import read_headers
from minikafka.records.format.message_set import iterate
from minikafka.records.format.record import Headers

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


def read_positions(
    cluster: ClusterClient,
    topics: Sequence[str],
    wanted: ReadRange,
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    numbers: Collection[int] | None = None,
) -> tuple[Positions, Positions | None]:
    """Return the offset to start from in each partition, and the offset to end at; None for no end.

    numbers: the partitions of each topic; None for all. Raise BrokerError for a topic or a partition that
    does not exist. An offset outside a partition's range is moved to the nearer end of the range, with a note
    on stderr, because one number is used for many partitions.
    """
    admin = Admin(cluster)
    partitions = [tp for topic in topics for tp in existing_topic(admin, topic).chosen(numbers)]
    found = find_ranges(cluster, partitions, wanted, cluster.deadline(), isolation)
    starts = {tp: part.start for tp, part in found.items()}
    ends = {tp: part.end for tp, part in found.items() if part.end is not None}
    _note_outside(found, wanted)
    return starts, None if wanted.end is None else ends


def _note_outside(found: Mapping[TopicPartition, PartitionRange], wanted: ReadRange) -> None:
    """Print notes about the partitions whose log does not have the requested start."""
    start, waits = wanted.start, wanted.end is None
    first = {tp: part.log_start for tp, part in found.items()}
    end = {tp: part.log_end for tp, part in found.items()}
    late = [tp for tp, part in found.items() if part.requested is None]
    asked = {tp: part.requested for tp, part in found.items() if part.requested is not None}
    beyond = [tp for tp, offset in asked.items() if offset > end[tp]]
    deleted = [tp for tp, offset in asked.items() if offset < first[tp]]
    when = f"no message at or after {utc_text(start.value)} in"
    _note(when, late, "ends at", end, "waiting at the end for new ones" if waits else "nothing to read there")
    sign = "+" if start.anchor is Anchor.START else ""
    offset = f"offset {sign}{start.value}"
    then = "waiting at the end for new messages" if waits else "nothing to read there"
    _note(f"no {offset} yet in", beyond, "ends at", end, then)
    _note(f"{offset} was deleted in", deleted, "starts at", first, "reading from there")


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """The options of a read. rack: that of the reader, to read from followers in it (KIP-392).

    whole: yield stored records, with their producers and attributes. control: with ``whole``, also the
    control records of transactions.
    """

    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED
    rack: str = ""
    whole: bool = False
    control: bool = False


def read_partitions(
    cluster: ClusterClient,
    positions: Positions,
    options: ReadOptions = ReadOptions(),
    ends: Positions | None = None,
) -> Iterator[tuple[TopicPartition, Message]]:
    """Yield the messages from ``positions`` to before ``ends``, each partition in order, or without end.
    Update ``positions``.

    With READ_COMMITTED a partition is read up to its first open transaction, and on when that has ended; a
    note says once that it waits.

    Raise MinikafkaError once a topic is deleted, also if it is recreated.
    """
    admin, isolation = Admin(cluster), options.isolation
    deadline, next_check = cluster.deadline(), cluster.deadline(0)
    noted = isolation is not IsolationLevel.READ_COMMITTED
    while True:
        try:
            reached = ends
            if reached is None:
                reached = _known(admin.offsets(dict.fromkeys(positions, LATEST), isolation=isolation))
            for tp, end in reached.items():
                if end < positions[tp] and ends is None:
                    _check_end(cluster, tp, positions[tp], isolation)
                yield from _read(cluster, positions, tp, end, options)
            finished = all(end <= positions[tp] for tp, end in reached.items())
            if next_check.expired and finished:
                noted = noted or note_open_transactions(admin, positions, waits=ends is None)
                _check_readable(cluster, positions)
                next_check = cluster.deadline(READABLE_EVERY_MS)
            if finished and ends is not None:
                return
            deadline = cluster.deadline()
        except BrokerError as error:
            if error.code not in _GONE or deadline.expired:
                raise
            _check_topics(cluster, positions)
            finished = True
        sys.stdout.flush()
        if finished:
            cluster.waiter.wait(POLL_INTERVAL_MS)


def note_open_transactions(admin: Admin, positions: Mapping[TopicPartition, int], *, waits: bool) -> bool:
    """Print a note about the partitions whose next message belongs to an open transaction, or is after one.
    Return True if there are any.
    """
    ends = _known(admin.offsets(dict.fromkeys(positions, LATEST)))
    stable = _known(admin.offsets(dict.fromkeys(positions, LATEST), isolation=IsolationLevel.READ_COMMITTED))
    held = [tp for tp, offset in positions.items() if stable[tp] <= offset < ends[tp]]
    then = "waiting for its end" if waits else "ending before it"
    if held:
        place = f"--topic {held[0].topic} --partition {held[0].partition}"
        then += (
            f"; `minikafka txn describe-producers {place}` shows its producer, `minikafka txn find-hanging "
            f"{place}` whether nobody will end it"
        )
    _note("an open transaction holds back messages of", held, "which ends at", ends, then)
    return bool(held)


def _check_readable(cluster: ClusterClient, positions: Positions) -> None:
    """Raise BrokerError if access rules forbid to read one of the topics."""
    firsts = {tp.topic: (tp, position) for tp, position in reversed(positions.items())}
    for tp, position in firsts.values():
        check_readable(cluster, tp, position)


def _read(
    cluster: ClusterClient, positions: Positions, tp: TopicPartition, end: int, options: ReadOptions
) -> Iterator[tuple[TopicPartition, Message]]:
    """Yield the messages of a partition up to ``end``."""
    isolation = options.isolation
    try:
        while positions[tp] < end:
            # The existence of the topic is checked here, sooner than a fetcher would give up.
            for data in RangeFetcher(
                cluster, tp, positions[tp], end, unretried_codes=_GONE, isolation=isolation, rack=options.rack
            ):
                # A compressed batch may start before the requested offset.
                if options.whole:
                    read = _whole_records(data, positions[tp], end, control=options.control)
                else:
                    read = _lines(tp, data, positions[tp], end)
                for record in read:
                    positions[tp] = record.offset + 1
                    yield tp, record
            positions[tp] = end
    except OffsetOutOfRange as error:
        if error.offset > error.end_offset:
            _check_end(cluster, tp, error.offset, isolation)
        else:
            first = {tp: error.start_offset}
            _note(f"offset {error.offset} was deleted in", [tp], "starts at", first, "reading from there")
            positions[tp] = error.start_offset


def _whole_records(data: Buffer, start: int, end: int, *, control: bool) -> Iterator[Message]:
    """Yield the records of a set between two offsets, with ``control`` also control records."""
    found = (record for record in iterate(data) if start <= record.offset < end)
    return found if control else (record for record in found if not record.control)


def _lines(tp: TopicPartition, data: Buffer, start: int, end: int) -> Iterator[Message]:
    """Yield the messages of a set between two offsets, decoded all at once."""
    try:
        for columns in decode_pieces(data, start, end, headers=True):
            yield from lines_of(columns)
    except DamagedEntry as damage:
        raise BrokerError(damage.code, f"{tp} at offset {damage.offset}: {damage.detail}") from None


def lines_of(columns: Columns) -> Iterator[MessageLine]:
    """Return the messages of decoded columns, which have headers."""
    count, raw = columns.count, columns.headers
    headers: Iterable[Headers] = itertools.repeat(())
    if raw is not None and count and raw.ends[count] > raw.ends[0]:
        headers = [read_headers(row or b"") for row in bytes_of_rows(raw.ends, raw.data, None, 0, count)]
    return map(
        MessageLine,
        columns.offsets.tolist(),
        columns.timestamps.tolist(),
        bytes_of_rows(columns.key_ends, columns.keys, columns.key_validity, 0, count),
        bytes_of_rows(columns.value_ends, columns.values, columns.value_validity, 0, count),
        headers,
    )


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


def _check_topics(cluster: ClusterClient, positions: Positions) -> None:
    """Raise MinikafkaError if a topic no longer exists, or has lost partitions."""
    for topic in sorted({tp.topic for tp in positions}):
        _check_topic(cluster, topic, positions)


def _check_topic(cluster: ClusterClient, topic: str, positions: Positions) -> None:
    cluster.invalidate(topic)
    try:
        found = cluster.topic(topic)
    except BrokerError as error:
        if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise MinikafkaError(f"topic {topic!r} was deleted while it was read") from None
        raise
    lost = [tp for tp in positions if tp.topic == topic and found.partition(tp.partition) is None]
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
