"""OffsetFetch: the committed offsets of a group.

Versions: 0 reads from ZooKeeper, later ones from the offsets topic. From 2 on null means all partitions of
the group, and the response has an error for the group; 3 adds throttle_time_ms, 5 the leader epoch, 8 has
several groups, each at most once. A partition without a commit has offset -1, and in version 0 also
UNKNOWN_TOPIC_OR_PARTITION; version 0 gets REQUEST_TIMED_OUT while ZooKeeper is unavailable. The group's
members do not matter, nor do their ids in version 9.

With ``require_stable`` (7, KIP-447) a partition with a commit that is being replicated, or is in an open
transaction, gets UNSTABLE_OFFSET_COMMIT: the client asks again. All partitions are those with an offset.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence

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
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)

ROW_BYTES = 300
"""Estimated memory of a row until it is encoded."""

STEP_ROWS = 500
"""Rows built in one step."""

_GROUP_ERROR_SINCE = 2
_SEVERAL_GROUPS_SINCE = 8
_UNSTABLE = ErrorCode.UNSTABLE_OFFSET_COMMIT

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
    version, stable = context.version, request.require_stable
    if version < _SEVERAL_GROUPS_SINCE:
        # Versions 0 and 1 have no error field for the group: it is reported in each partition.
        in_rows = version < _GROUP_ERROR_SINCE
        topics, error = yield from _offsets(
            coordinator, request.group_id, request.topics, 0, require_stable=stable, in_rows=in_rows
        )
        context.reply(OffsetFetchResponse(0, topics, error))
        return
    groups: list[OffsetFetchResponseGroup] = []
    seen: set[str] = set()
    held_bytes = 0
    for group in request.groups:
        if group.group_id in seen:
            # A short request could ask for all offsets of a group many times.
            groups.append(OffsetFetchResponseGroup(group.group_id, (), ErrorCode.INVALID_REQUEST))
            held_bytes += ROW_BYTES
            yield held_bytes
            continue
        seen.add(group.group_id)
        topics, error = yield from _offsets(
            coordinator, group.group_id, group.topics, held_bytes, require_stable=stable
        )
        groups.append(OffsetFetchResponseGroup(group.group_id, topics, error))
        held_bytes += (1 + sum(len(topic.partitions) for topic in topics)) * ROW_BYTES
    context.reply(OffsetFetchResponse(0, (), ErrorCode.NONE, tuple(groups)))


def _offsets(
    coordinator: GroupCoordinator,
    group_id: str,
    topics: Sequence[OffsetFetchRequestTopic] | None,
    held_bytes: int,
    *,
    require_stable: bool,
    in_rows: bool = False,
) -> Generator[int, None, tuple[tuple[OffsetFetchResponseTopic, ...], ErrorCode]]:
    """Look up the offsets of one group, in steps; return their rows and the group's error.

    ``held_bytes``: the memory of the groups before it. ``in_rows``: each row has the group's error too.
    """
    try:
        wanted = None if topics is None else _named(topics)
        if require_stable:
            committed, unstable = coordinator.stable_offsets(group_id, wanted)
        else:
            committed, unstable = coordinator.offsets(group_id, wanted), set()
    except BrokerError as error:
        code = error.code
        named = (topics or ()) if in_rows else ()
        yield held_bytes + sum(len(topic.partition_indexes) for topic in named) * ROW_BYTES
        return _rows(named, lambda key: _none(key, code)), code
    total = (
        len(committed) + len(unstable)
        if topics is None
        else sum(len(topic.partition_indexes) for topic in topics)
    )
    needed_bytes = held_bytes + total * ROW_BYTES
    yield needed_bytes
    if topics is None:
        by_topic: dict[str, list[int]] = {}
        for done, key in enumerate((*committed, *unstable)):
            by_topic.setdefault(key.topic, []).append(key.partition)
            if done % STEP_ROWS == STEP_ROWS - 1:
                yield needed_bytes
        topics = [OffsetFetchRequestTopic(name, tuple(sorted(by_topic[name]))) for name in sorted(by_topic)]
    answers = []
    for topic in topics:
        rows = []
        for index in topic.partition_indexes:
            key = TopicPartition(topic.name, index)
            if (value := committed.get(key)) is not None:
                rows.append(_committed(key, value))
            else:
                rows.append(_none(key, _UNSTABLE if key in unstable else ErrorCode.NONE))
            if len(rows) % STEP_ROWS == STEP_ROWS - 1:
                yield needed_bytes
        answers.append(OffsetFetchResponseTopic(topic.name, tuple(rows)))
        yield needed_bytes
    return tuple(answers), ErrorCode.NONE


def _named(topics: Iterable[OffsetFetchRequestTopic]) -> list[TopicPartition]:
    return [TopicPartition(topic.name, index) for topic in topics for index in topic.partition_indexes]


def _fetch_from_zookeeper(broker: Broker, context: RequestContext, request: OffsetFetchRequest) -> None:
    named = request.topics or ()
    keys = _named(named)
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


def _response(topics: Iterable[OffsetFetchRequestTopic], row: _Row) -> OffsetFetchResponse:
    return OffsetFetchResponse(0, _rows(topics, row), ErrorCode.NONE)


def _rows(topics: Iterable[OffsetFetchRequestTopic], row: _Row) -> tuple[OffsetFetchResponseTopic, ...]:
    return tuple(
        OffsetFetchResponseTopic(
            topic.name, tuple(row(TopicPartition(topic.name, index)) for index in topic.partition_indexes)
        )
        for topic in topics
    )
