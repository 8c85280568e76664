"""Reading a topic on and on: where to begin, what comes, and how a topic that goes away is noticed."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from minikafka.base.errors import BrokerError, ErrorCode, MinikafkaError, OffsetOutOfRange
from minikafka.base.ids import TopicPartition
from minikafka.cli.connect import existing_topic
from minikafka.cli.output import note, utc_text
from minikafka.cli.start_position import Start
from minikafka.clients.admin.admin import EARLIEST, LATEST, Admin
from minikafka.clients.fetch.range_fetcher import RangeFetcher, check_readable
from minikafka.clients.network.cluster import ClusterClient
from minikafka.records.format.message_set import iterate

if TYPE_CHECKING:
    from minikafka.records.format.message_set import StoredRecord

POLL_INTERVAL_MS = 200
"""How soon a new message is seen."""
READABLE_EVERY_MS = 5_000
"""How soon whoever waits at the end learns that they may not read the topic (any more)."""
BEHIND_PATIENCE_MS = 800
"""How long the end of a log may lie before what was read: the leader may be a new one that catches up."""
NAMED_MAX = 5
"""Partitions that a note names."""

Positions = dict[TopicPartition, int]


def starting_positions(cluster: ClusterClient, topic: str, where: Start) -> Positions:
    """The offset to begin at for each partition. Raises BrokerError for a topic that does not exist.

    An offset outside a partition's range is moved to its nearer end, as one number is meant for many
    partitions, and a note on stderr says so.
    """
    admin = Admin(cluster)
    partitions = [one.topic_partition for one in existing_topic(admin, topic).partitions]
    first = _known(admin.offsets(dict.fromkeys(partitions, EARLIEST)))
    end = _known(admin.offsets(dict.fromkeys(partitions, LATEST)))
    if where.at_end:
        return end
    if where.timestamp_ms is not None:
        found = admin.offsets(dict.fromkeys(partitions, where.timestamp_ms))
        late = [one for one in partitions if found[one] is None]
        when = utc_text(where.timestamp_ms)
        _say(f"no message as late as {when} in", late, "ends at", end, "waiting at the end for new ones")
        return {one: end[one] if offset is None else offset for one, offset in found.items()}
    if where.offset is None:
        return first
    wanted = where.offset
    beyond = [one for one in partitions if wanted > end[one]]
    gone = [one for one in partitions if wanted < first[one]]
    _say(f"no offset {wanted} yet in", beyond, "ends at", end, "waiting at the end for new messages")
    _say(f"no offset {wanted} any more in", gone, "begins at", first, "reading from there")
    return {one: min(max(wanted, first[one]), end[one]) for one in partitions}


def read_partitions(
    cluster: ClusterClient, positions: Positions
) -> Iterator[tuple[TopicPartition, StoredRecord]]:
    """Messages from ``positions`` on, each partition in order, for ever. Moves ``positions`` along.

    Raises MinikafkaError once the topic was deleted, also when there is a new one of that name.
    """
    admin = Admin(cluster)
    patience, look = cluster.deadline(), cluster.deadline(0)
    while True:
        try:
            ends = _known(admin.offsets(dict.fromkeys(positions, LATEST)))
            for one, end in ends.items():
                if end < positions[one]:
                    _check_end(cluster, one, positions[one])
                yield from _read(cluster, positions, one, end)
            if look.expired and ends == positions:
                one, position = next(iter(positions.items()))
                check_readable(cluster, one, position)
                look = cluster.deadline(READABLE_EVERY_MS)
            patience = cluster.deadline()
        except BrokerError as error:
            if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION or patience.expired:
                raise
            _check_topic(cluster, positions)
            ends = {}
        sys.stdout.flush()
        if all(end <= positions[one] for one, end in ends.items()):
            cluster.waiter.wait(POLL_INTERVAL_MS)


def _read(
    cluster: ClusterClient, positions: Positions, one: TopicPartition, end: int
) -> Iterator[tuple[TopicPartition, StoredRecord]]:
    """The messages of a partition up to ``end``."""
    try:
        while positions[one] < end:
            # Whether the topic is still there is asked here, and sooner than a fetcher would give up.
            at_once = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})
            for data in RangeFetcher(cluster, one, positions[one], end, unretried_codes=at_once):
                for record in iterate(data):
                    # A compressed set may begin before the offset that was asked for.
                    if positions[one] <= record.offset < end:
                        positions[one] = record.offset + 1
                        yield one, record
            positions[one] = end
    except OffsetOutOfRange as error:
        if error.offset > error.end_offset:
            _check_end(cluster, one, error.offset)
        else:
            first = {one: error.start_offset}
            _say(f"no offset {error.offset} any more in", [one], "begins at", first, "reading from there")
            positions[one] = error.start_offset


def _check_end(cluster: ClusterClient, one: TopicPartition, position: int) -> None:
    """Raise MinikafkaError unless the log of a partition soon reaches to what was read of it."""
    deadline = cluster.deadline(BEHIND_PATIENCE_MS)
    while True:
        end = _known(Admin(cluster).offsets({one: LATEST}))[one]
        if end >= position:
            return
        if deadline.expired:
            raise MinikafkaError(_made_anew(one.topic, f"{one} was read to {position} and ends at {end} now"))
        cluster.waiter.wait(POLL_INTERVAL_MS)


def _check_topic(cluster: ClusterClient, positions: Positions) -> None:
    """Raise MinikafkaError when the topic is not there any more, or has lost partitions."""
    topic = next(iter(positions)).topic
    cluster.invalidate(topic)
    try:
        found = cluster.topic(topic)
    except BrokerError as error:
        if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise MinikafkaError(f"topic {topic!r} was deleted while it was read") from None
        raise
    lost = [one for one in positions if found.partition(one.partition) is None]
    if lost:
        raise MinikafkaError(_made_anew(topic, f"there is no {lost[0]} any more"))


def _made_anew(topic: str, sign: str) -> str:
    return (
        f"topic {topic!r} was deleted and made anew while it was read: {sign}; run it again for the new one"
    )


def _known(offsets: Mapping[TopicPartition, int | None]) -> Positions:
    return {one: offset or 0 for one, offset in offsets.items()}


def _say(
    what: str, where: list[TopicPartition], bound: str, offsets: Mapping[TopicPartition, int], then: str
) -> None:
    """A note about the partitions ``where``, if there are any."""
    if where:
        places = [f"{one} ({bound} {offsets[one]})" for one in where[:NAMED_MAX]]
        more = f" and {len(where) - NAMED_MAX} more" if len(where) > NAMED_MAX else ""
        note(f"minikafka: {what} {', '.join(places)}{more}: {then}")
