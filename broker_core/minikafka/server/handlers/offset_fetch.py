"""OffsetFetch: the committed offsets of a group.

Versions: 0 reads from ZooKeeper, later ones from the offsets topic. From 2 on null means all partitions of
the group, and the response has an error for the group; 3 adds throttle_time_ms, 5 the leader epoch. A
partition without a commit has offset -1, and in version 0 also UNKNOWN_TOPIC_OR_PARTITION; version 0 gets
REQUEST_TIMED_OUT while ZooKeeper is unavailable. The group's members do not matter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from minikafka.base.errors import BrokerError, ErrorCode
from minikafka.base.ids import TopicPartition
from minikafka.groups.messages import NO_EPOCH, OffsetCommitValue
from minikafka.registry.consumer_offsets import read_offsets
from minikafka.server.context import RequestContext
from minikafka.server.core.broker import Broker
from minikafka.server.core.deferred_response import OFFSETS_PER_JOB, answer_by_jobs, portions
from minikafka.server.groups.group_coordinator import GroupCoordinator
from minikafka.server.workers.work_pool import Steps
from minikafka.wire.apis.offset_fetch import (
    NO_OFFSET,
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)

ROW_BYTES = 300
"""Estimated memory of a row until it is encoded."""

STEP_ROWS = 500
"""Rows built in one step."""

_Row = Callable[[TopicPartition], OffsetFetchResponsePartition]


def handle(
    coordinator: GroupCoordinator, context: RequestContext, request: OffsetFetchRequest
) -> Steps | None:
    """Serve one OffsetFetch request."""
    if context.version:
        return _serve(coordinator, context, request)
    _fetch_from_zookeeper(coordinator.broker, context, request)
    return None


def _serve(coordinator: GroupCoordinator, context: RequestContext, request: OffsetFetchRequest) -> Steps:
    try:
        committed = coordinator.offsets(request.group_id, _named(request))
    except BrokerError as error:
        code = error.code
        # Versions 0 and 1 have no error field for the group: report it in each partition.
        named = (request.topics or ()) if context.version < 2 else ()
        yield sum(len(topic.partition_indexes) for topic in named) * ROW_BYTES
        context.reply(_response(named, lambda key: _none(key, code), code))
        return
    topics = request.topics
    total = len(committed) if topics is None else sum(len(topic.partition_indexes) for topic in topics)
    yield total * ROW_BYTES
    if topics is None:
        by_topic: dict[str, list[int]] = {}
        for done, key in enumerate(committed):
            by_topic.setdefault(key.topic, []).append(key.partition)
            if done % STEP_ROWS == STEP_ROWS - 1:
                yield total * ROW_BYTES
        topics = tuple(
            OffsetFetchRequestTopic(name, tuple(sorted(by_topic[name]))) for name in sorted(by_topic)
        )
    answers = []
    for topic in topics:
        rows = []
        for index in topic.partition_indexes:
            key = TopicPartition(topic.name, index)
            value = committed.get(key)
            rows.append(_none(key, ErrorCode.NONE) if value is None else _committed(key, value))
            if len(rows) % STEP_ROWS == STEP_ROWS - 1:
                yield total * ROW_BYTES
        answers.append(OffsetFetchResponseTopic(topic.name, tuple(rows)))
        yield total * ROW_BYTES
    context.reply(OffsetFetchResponse(throttle_time_ms=0, topics=tuple(answers), error_code=ErrorCode.NONE))


def _named(request: OffsetFetchRequest) -> list[TopicPartition] | None:
    """Return the requested partitions; None: all."""
    if request.topics is None:
        return None
    return [
        TopicPartition(topic.name, index) for topic in request.topics for index in topic.partition_indexes
    ]


def _fetch_from_zookeeper(broker: Broker, context: RequestContext, request: OffsetFetchRequest) -> None:
    named, keys = request.topics or (), _named(request) or []
    known = [key for key in dict.fromkeys(keys) if broker.metadata_cache.leadership(key) is not None]
    committed: dict[TopicPartition, int] = {}

    def read(some: Sequence[TopicPartition]) -> None:
        committed.update(read_offsets(broker.zk_client.store, request.group_id, some))

    def row(key: TopicPartition) -> OffsetFetchResponsePartition:
        if key not in committed:
            return _none(key, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return OffsetFetchResponsePartition(key.partition, committed[key], NO_EPOCH, "", ErrorCode.NONE)

    answer_by_jobs(
        broker,
        context,
        portions(known, OFFSETS_PER_JOB),
        read,
        lambda: _response(named, row),
        lambda error: _response(named, lambda key: _none(key, error.code)),
        len(keys) * ROW_BYTES,
        elsewhere=ErrorCode.GROUP_COORDINATOR_NOT_AVAILABLE,
    )


def _committed(key: TopicPartition, value: OffsetCommitValue) -> OffsetFetchResponsePartition:
    return OffsetFetchResponsePartition(
        partition_index=key.partition,
        committed_offset=value.offset,
        committed_leader_epoch=value.leader_epoch,
        metadata=value.metadata,
        error_code=ErrorCode.NONE,
    )


def _none(key: TopicPartition, error: ErrorCode) -> OffsetFetchResponsePartition:
    return OffsetFetchResponsePartition(key.partition, NO_OFFSET, NO_EPOCH, "", error)


def _response(
    topics: Iterable[OffsetFetchRequestTopic], row: _Row, error: ErrorCode = ErrorCode.NONE
) -> OffsetFetchResponse:
    return OffsetFetchResponse(
        throttle_time_ms=0,
        topics=tuple(
            OffsetFetchResponseTopic(
                topic.name, tuple(row(TopicPartition(topic.name, index)) for index in topic.partition_indexes)
            )
            for topic in topics
        ),
        error_code=error,
    )
