"""Fetch: read message sets of partitions from given offsets. Followers replicate with it too.

Versions 0 and 1 carry messages of magic 0 only, so newer ones are converted down. Version 1: throttle_time_ms
in the response. Version 2: magic 1. Version 3: a limit for the whole response; the order of the partitions
matters, as the first of them that has data gets at least one message whatever its size. Version 4: magic 2,
and the isolation level: a consumer that reads only committed records gets nothing at or above the last stable
offset, and a list of the aborted transactions. Version 5: log start offsets. Version 7: sessions, in which
only changes are sent; a session id of 0 in the response declines. Version 9: the leader epoch that the client
knows. Version 10: zstd. Versions 6 and 8 are the same as their predecessors. The limit may cut off the last
message of ``records``.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby

from minikafka.base.ids import TopicPartition
from minikafka.base.values import fast_value
from minikafka.wire.api import Api, ApiKey
from minikafka.wire.frame_parts import Part
from minikafka.wire.framing import MAX_FRAME_BYTES
from minikafka.wire.schema import (
    INT8,
    INT16,
    INT32,
    INT64,
    NULLABLE_RECORDS,
    STRING,
    ArrayOf,
    Struct,
    array,
    by_topic,
    field,
)

NO_LIMIT = 0x7FFFFFFF
"""``max_bytes`` in versions without this field."""
READ_UNCOMMITTED = 0
READ_COMMITTED = 1
"""``isolation_level``."""
NO_SESSION = 0
"""``session_id`` of a request without a session."""
NEW_SESSION_EPOCH = 0
"""``session_epoch`` of a request for a new session."""
FINAL_EPOCH = -1
"""``session_epoch`` of a request outside of any session, as all are before version 7."""

LARGEST_MESSAGE_BYTES = 128 << 20
"""More than any broker accepts by default: a request has at most 100 MiB. A larger response is rejected,
unless the fetch itself requests that many bytes.
"""
_BESIDE_RECORDS_BYTES = 16 << 20
"""The limit of a response without its records."""
WHOLE_MESSAGE_SINCE = 3
"""The first version with ``max_bytes``, and with a complete first message whatever its size."""


@fast_value
class FetchPartition:
    """A partition to read: the start offset, and the maximum bytes."""

    index: int
    current_leader_epoch: int
    fetch_offset: int
    log_start_offset: int
    partition_max_bytes: int


@fast_value
class FetchTopic:
    """The partitions of one topic."""

    name: str
    partitions: tuple[FetchPartition, ...]


@fast_value
class ForgottenTopic:
    """Partitions that leave a session."""

    name: str
    partitions: tuple[int, ...]


@fast_value
class FetchRequest:
    """A request for messages that waits up to ``max_wait_ms`` for ``min_bytes``. ``replica_id`` is -1 for
    consumers.
    """

    replica_id: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation_level: int
    session_id: int
    session_epoch: int
    topics: tuple[FetchTopic, ...]
    forgotten_topics: tuple[ForgottenTopic, ...] = ()


@fast_value
class AbortedTransaction:
    """An aborted transaction: the producer's batches from ``first_offset`` to its next marker are invalid."""

    producer_id: int
    first_offset: int


@fast_value
class FetchPartitionResponse:
    """Messages of one partition. Decoded, ``records`` is a view of the response; None if it is null there.

    ``aborted_transactions`` is null for isolation level READ_UNCOMMITTED.
    """

    index: int
    error_code: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted_transactions: tuple[AbortedTransaction, ...] | None
    records: Part | None


@fast_value
class FetchTopicResponse:
    """The partitions of one topic."""

    name: str
    partitions: tuple[FetchPartitionResponse, ...]


@fast_value
class FetchResponse:
    """The messages, in the order of the request."""

    throttle_time_ms: int
    error_code: int
    session_id: int
    topics: tuple[FetchTopicResponse, ...]


def response_bytes(version: int, request: FetchRequest) -> int:
    """Return the size limit of the response to ``request``: the requested bytes, or one larger message."""
    requested = sum(part.partition_max_bytes for topic in request.topics for part in topic.partitions)
    if version >= WHOLE_MESSAGE_SINCE:
        requested = max(min(requested, request.max_bytes), LARGEST_MESSAGE_BYTES)
    return min(requested + _BESIDE_RECORDS_BYTES, MAX_FRAME_BYTES)


FETCH = Api(
    ApiKey.FETCH,
    "Fetch",
    0,
    10,
    request=Struct(
        FetchRequest,
        field("replica_id", INT32, "-1 for a consumer, the broker id of a follower"),
        field("max_wait_ms", INT32),
        field("min_bytes", INT32),
        field("max_bytes", INT32, "limit of the whole response", since=3, default=NO_LIMIT),
        field("isolation_level", INT8, "0 all, 1 committed", since=4, default=READ_UNCOMMITTED),
        field("session_id", INT32, "0: none", since=7, default=NO_SESSION),
        field("session_epoch", INT32, "0: new session, -1: no session", since=7, default=FINAL_EPOCH),
        by_topic(
            FetchTopic,
            FetchPartition,
            field("index", INT32),
            field("current_leader_epoch", INT32, "-1: unknown", since=9, default=-1),
            field("fetch_offset", INT64),
            field("log_start_offset", INT64, "of a follower", since=5, default=-1),
            field("partition_max_bytes", INT32),
        ),
        array(
            "forgotten_topics",
            ForgottenTopic,
            field("name", STRING),
            field("partitions", ArrayOf(INT32)),
            note="that leave the session",
            since=7,
            default=(),
        ),
    ),
    response=Struct(
        FetchResponse,
        field("throttle_time_ms", INT32, since=1, default=0),
        field("error_code", INT16, "of the session", since=7, default=0),
        field("session_id", INT32, "0: there is none", since=7, default=NO_SESSION),
        by_topic(
            FetchTopicResponse,
            FetchPartitionResponse,
            field("index", INT32),
            field("error_code", INT16),
            field("high_watermark", INT64, "-1 with an error"),
            field("last_stable_offset", INT64, "-1 with an error", since=4, default=-1),
            field("log_start_offset", INT64, "-1 with an error", since=5, default=-1),
            field(
                "aborted_transactions",
                ArrayOf(
                    Struct(AbortedTransaction, field("producer_id", INT64), field("first_offset", INT64)),
                    nullable=True,
                ),
                "null for isolation level 0",
                since=4,
            ),
            field("records", NULLABLE_RECORDS),
        ),
    ),
    response_bytes=response_bytes,
)


def consumer_partition(partition: int, offset: int, max_bytes: int, leader_epoch: int = -1) -> FetchPartition:
    """Return the row of a consumer for one partition."""
    return FetchPartition(partition, leader_epoch, offset, -1, max_bytes)


def fetch_topics(partitions: Mapping[TopicPartition, FetchPartition]) -> tuple[FetchTopic, ...]:
    """Return the rows of a request for ``partitions``, in their order: a topic is repeated if others are
    between its partitions. The broker fills its response in this order.
    """
    by_topic = groupby(partitions.items(), lambda row: row[0].topic)
    return tuple(FetchTopic(topic, tuple(part for _, part in rows)) for topic, rows in by_topic)


def consumer_request(
    partitions: Mapping[TopicPartition, FetchPartition],
    *,
    max_bytes: int,
    min_bytes: int = 0,
    max_wait_ms: int = 0,
    isolation_level: int = READ_UNCOMMITTED,
    replica_id: int = -1,
) -> FetchRequest:
    """Return a request for ``partitions``, in their order and outside of any session."""
    return FetchRequest(
        replica_id=replica_id,
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        isolation_level=isolation_level,
        session_id=NO_SESSION,
        session_epoch=FINAL_EPOCH,
        topics=fetch_topics(partitions),
    )
