"""Fetch: message sets of partitions that this broker has, sent directly from the log files.

Versions: 1 adds throttle_time_ms, 2 allows magic 1, 3 adds max_bytes for the whole response and keeps the
order of partitions, 4 allows magic 2 and adds the isolation level with its fields, 5 the log start offset, 7
sessions, 9 leader epochs, 10 says that the client supports zstd, 11 allows consumers to read from followers
and adds their rack, 12 the epoch of the message before the offset, 13 names topics by their ids, 15 has the
follower in ``replica_state``, 16 names the new leaders of partitions and their addresses. 14 tells a follower
that messages are in tiered storage, and 17 the leader in which directory a follower is, which only KRaft
uses: here nothing is tiered, and the directory is ignored as in Kafka. Newer messages are converted down:
versions 0 and 1 get magic 0, 2 and 3 magic 1, and zstd batches UNSUPPORTED_COMPRESSION_TYPE, as do versions
before 10 for every topic whose own ``compression.type`` is zstd. Fetches of sessions are served in
``server.replication.session_fetch``, all others here: the session id in their responses is 0, so that the
client names all its partitions each time.

Behaviour

    The response waits until ``min_bytes`` are available, for at most ``max_wait_ms`` and no longer than a
    connection may be idle. An error of any partition is returned at once; a repeated partition is an error.
    Up to version 2 a partition's data is cut at ``partition_max_bytes`` even within a message; from version 3
    on the first partition with data returns at least one whole message. Messages at and above the high
    watermark are not returned. A consumer that received part of other partitions' data and does not name them
    waits less (``partition.purgatory``). A follower, identified by ``replica_id``, reads up to the log end;
    its fetch offsets advance the high watermark. With ``replica.selector.class`` the leader names a follower
    in the consumer's rack instead of sending messages (KIP-392); that one sends those below its own high
    watermark. If the log had another message before the offset, the response says where that epoch ended.
    Down-conversion happens while the response is sent
    (``server.core.converted_records``): the last message of a partition may then be cut off, in version 3
    too.

    An id becomes a name when the request arrives, so that all that follows has names. A topic that is deleted
    has an unknown id from then on, also if another one of the name is created: UNKNOWN_TOPIC_ID. If that
    happens while the fetch waits, or after its session has learned the name: UNKNOWN_TOPIC_OR_PARTITION, and
    INCONSISTENT_TOPIC_ID once the other topic exists. A topic without id, in a cluster whose
    ``inter.broker.protocol.version`` is below 2.8, can only be fetched by its name, in version 12.
"""

from __future__ import annotations

import logging
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from minikafka.base.errors import ErrorCode
from minikafka.base.ids import TopicPartition
from minikafka.server.context import RequestContext
from minikafka.server.core.broker import Broker, DelayedRequest
from minikafka.server.core.converted_records import PLAIN_BYTES
from minikafka.server.core.new_leaders import NewLeaders
from minikafka.server.replication.fetch_data import (
    MAGIC_2_SINCE,
    FetchData,
    FetchPartitionData,
    bound_of,
    has_more,
    max_wait_ms,
    partial_reads_of,
    partition_steps,
    read_partition,
    record_sent,
    topic_error,
)
from minikafka.server.replication.session_fetch import note_follower, serve_in_session
from minikafka.server.workers.work_pool import Steps, begin_here
from minikafka.wire.api import partitions_of
from minikafka.wire.apis.fetch import (
    NO_SESSION,
    READ_COMMITTED,
    TOPIC_IDS_SINCE,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    FetchTopicResponse,
)

_log = logging.getLogger(__name__)


class _DelayedFetch(DelayedRequest):
    """A fetch that waits for ``min_bytes`` (Kafka's DelayedFetch)."""

    def __init__(self, broker: Broker, context: RequestContext, request: FetchRequest) -> None:
        """``request``: with the names of topics in every version."""
        super().__init__(broker, context)
        self._request = request
        self._all_data: FetchData = {}
        self._size = 0
        self._asked: Mapping[Any, FetchPartition] = {}
        """Partition -> its part of the request, once the request waits."""
        self._topic_ids: Mapping[str, bytes] = {}
        """Topic -> its id in the request, once the request waits."""

    def satisfied(self, key: Hashable | None = None) -> bool:
        asked = self._asked.get(key) if self._context.version >= MAGIC_2_SINCE else None
        if asked is None:
            self._all_data = _collect(self._broker, self._context, self._request)
            self._size = sum(data.size_bytes for data in self._all_data.values())
            final = any(data.is_final for data in self._all_data.values())
            return final or self._size >= self._request.min_bytes
        # An event concerns only one of the requested partitions.
        topic_partition = TopicPartition(*key)  # type: ignore[misc]
        others = self._size - self._all_data[topic_partition].size_bytes
        left = max(0, self._request.max_bytes - others)
        data = read_partition(
            self._broker,
            self._context,
            self._request,
            topic_partition,
            asked,
            left,
            first=others == 0,
            topic_id=self._topic_ids[topic_partition.topic],
        )
        self._all_data[topic_partition] = data
        self._size = others + data.size_bytes
        return data.is_final or self._size >= self._request.min_bytes

    def outdated(self) -> bool:
        """Return True if a partition has changed since ``satisfied`` read it."""
        partitions = self._broker.partitions
        return any(
            data.partition is None
            or data.partition is not partitions.get(topic_partition)
            or bound_of(self._request, data.partition) != data.bound
            for topic_partition, data in self._all_data.items()
        )

    def complete(self) -> None:
        broker = self._broker
        steps = _answer(broker, self._context, self._request, self._all_data)
        begin_here(broker.pool, self._context.exchange, broker.clock, steps)

    def keys(self) -> list[Hashable]:
        self._asked = dict(partitions_of(self._request.topics))
        self._topic_ids = {topic.name: topic.topic_id for topic in self._request.topics}
        return list(self._all_data)

    def max_wait_ms(self) -> int:
        """Return the maximum time to wait."""
        throttled = any(data.throttled for data in self._all_data.values())
        return max_wait_ms(self._broker, self._context, self._request, self._all_data, throttled=throttled)


def handle(broker: Broker, context: RequestContext, request: FetchRequest) -> None:
    """Serve one fetch request, at once or when enough bytes are available."""
    most_bytes = min(broker.config.fetching.max_bytes, context.window_bytes)
    if request.max_bytes > most_bytes:
        request = replace(request, max_bytes=most_bytes, min_bytes=min(request.min_bytes, most_bytes))
    if serve_in_session(broker, context, request):
        return
    has_ids = context.version >= TOPIC_IDS_SINCE
    if has_ids:
        request = replace(request, topics=_with_names(broker, request.topics))
    if request.follower_id >= 0:
        parts = dict(partitions_of(request.topics))
        topic_ids = {topic.name: topic.topic_id for topic in request.topics} if has_ids else None
        broker.run(lambda: note_follower(broker, request.follower_id, parts, topic_ids))
    fetch = _DelayedFetch(broker, context, request)
    # Logs are read without the core's lock. Only a request that must wait checks under it for missed changes.
    if fetch.satisfied() or request.max_wait_ms <= 0:
        fetch.complete()
        return
    max_wait_ms = fetch.max_wait_ms()

    def step() -> None:
        if fetch.outdated() and fetch.satisfied():
            broker.answer(fetch)
        else:
            broker.wait(fetch, fetch.keys(), broker.clock.monotonic_ms() + max_wait_ms)

    broker.run(step)


def _with_names(broker: Broker, topics: Sequence[FetchTopic]) -> tuple[FetchTopic, ...]:
    """Return the topics of a request by ids with their names, "" for an id that this broker does not know."""
    return tuple(
        FetchTopic(broker.topic_name(topic.topic_id) or "", topic.partitions, topic_id=topic.topic_id)
        for topic in topics
    )


def serve_at_once(broker: Broker, context: RequestContext, request: FetchRequest) -> Steps:
    """Serve a consumer's request without waiting, in steps."""
    yield from _answer(broker, context, request, _collect(broker, context, request))


def _collect(broker: Broker, context: RequestContext, request: FetchRequest) -> FetchData:
    all_data: FetchData = {}
    left = request.max_bytes
    nothing_yet = True
    for topic in request.topics:
        denied = topic_error(context, request, topic.name)
        for part in topic.partitions:
            topic_partition = TopicPartition(topic.name, part.index)
            if topic_partition in all_data or denied is not None:
                # All topics of unknown ids have the same name, and the same error.
                all_data[topic_partition] = FetchPartitionData(denied or ErrorCode.INVALID_REQUEST)
                continue
            data = read_partition(
                broker,
                context,
                request,
                topic_partition,
                part,
                max(0, left),
                first=nothing_yet,
                topic_id=topic.topic_id,
            )
            all_data[topic_partition] = data
            left -= data.size_bytes
            nothing_yet = nothing_yet and data.size_bytes == 0
    return all_data


def _answer(broker: Broker, context: RequestContext, request: FetchRequest, all_data: FetchData) -> Steps:
    """Send the response. Runs in steps, as down-conversion may take long."""
    version = context.version
    committed_only = request.isolation_level == READ_COMMITTED
    partial_reads = partial_reads_of(context.exchange, request)
    record_sent(broker, request, all_data)
    leaders = NewLeaders(broker, context.listener)
    answered = []
    plain_bytes = PLAIN_BYTES
    for topic in request.topics:
        partitions = []
        for part in topic.partitions:
            topic_partition = TopicPartition(topic.name, part.index)
            data = all_data[topic_partition]
            given = yield from partition_steps(
                broker, version, topic.name, part, data, plain_bytes, leaders, committed_only=committed_only
            )
            if version < MAGIC_2_SINCE and isinstance(given.records, memoryview):
                plain_bytes -= len(given.records)
            partitions.append(given)
            if partial_reads is not None:
                partial_reads.record_response(topic_partition, has_more(data, given))
        answered.append(FetchTopicResponse(topic.name, tuple(partitions), topic_id=topic.topic_id))
    response = FetchResponse(0, ErrorCode.NONE, NO_SESSION, tuple(answered), leaders.endpoints())
    context.reply_to_fetch(response, FetchResponse(0, ErrorCode.NONE, NO_SESSION, ()))
