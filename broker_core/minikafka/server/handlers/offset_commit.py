"""OffsetCommit: store the offsets that a group has consumed.

Versions: 0 stores in ZooKeeper, later ones in the offsets topic. 1 adds generation, member and a timestamp
for each partition, 2 to 4 replace it with one retention time, 3 adds throttle_time_ms, 6 the leader epoch, 7
the instance ids of static members; 9 is the first that members of the newer protocol (KIP-848), of which
there are none here, may send.

Unknown partitions and too long metadata fail on their own; the rest is one commit. The response is sent when
every in-sync replica has it, or after ``offsets.commit.timeout.ms``. Generation -1 without a member is a
consumer with manual assignment; the group must then be empty. While ZooKeeper is unavailable, version 0 gets
REQUEST_TIMED_OUT, and the commit may still be made.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from minikafka.base.errors import ErrorCode
from minikafka.base.ids import TopicPartition
from minikafka.groups.events import MemberIdentity
from minikafka.groups.messages import NEVER_MS, OffsetCommitValue
from minikafka.registry.consumer_offsets import write_offsets
from minikafka.server.context import RequestContext
from minikafka.server.core.broker import Broker
from minikafka.server.core.deferred_response import OFFSETS_PER_JOB, answer_by_jobs, portions
from minikafka.server.groups.checked_commits import checked_commits
from minikafka.server.groups.group_coordinator import GroupCoordinator
from minikafka.server.workers.work_pool import Steps, begin_here
from minikafka.wire.apis.offset_commit import (
    DEFAULT_RETENTION,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

_Errors = dict[TopicPartition, ErrorCode]


def handle(coordinator: GroupCoordinator, context: RequestContext, request: OffsetCommitRequest) -> Steps:
    """Serve one OffsetCommit request."""
    broker = coordinator.broker
    now_ms = broker.clock.now_ms()
    checked = yield from checked_commits(
        broker, request.topics, lambda part: _value(part, request.retention_time_ms, now_ms)
    )
    commits = checked.commits

    def response(error: ErrorCode) -> OffsetCommitResponse:
        return _response(request, {**checked.errors, **dict.fromkeys(commits, error)})

    def reply(error: ErrorCode) -> Steps:
        if checked.step_bytes:
            yield checked.step_bytes
        context.reply(response(error))

    if not commits:
        context.reply(response(ErrorCode.NONE))
    elif context.version == 0:
        _commit_to_zookeeper(broker, context, request.group_id, commits, response)
    else:
        coordinator.commit(
            request.group_id,
            MemberIdentity(request.member_id, request.group_instance_id),
            request.generation_id,
            commits,
            lambda error: begin_here(broker.pool, context.exchange, broker.clock, reply(error)),
        )


def _value(part: OffsetCommitRequestPartition, retention_ms: int, now_ms: int) -> OffsetCommitValue:
    own_time = part.commit_timestamp != DEFAULT_RETENTION
    return OffsetCommitValue(
        offset=part.committed_offset,
        leader_epoch=part.committed_leader_epoch,
        metadata=part.committed_metadata or "",
        commit_timestamp_ms=part.commit_timestamp if own_time else now_ms,
        expire_timestamp_ms=NEVER_MS if retention_ms == DEFAULT_RETENTION else now_ms + retention_ms,
    )


def _commit_to_zookeeper(
    broker: Broker,
    context: RequestContext,
    group_id: str,
    commits: dict[TopicPartition, OffsetCommitValue],
    response: Callable[[ErrorCode], OffsetCommitResponse],
) -> None:
    def write(some: Sequence[tuple[TopicPartition, int]]) -> None:
        write_offsets(broker.zk_client.store, group_id, dict(some))

    offsets = [(topic_partition, value.offset) for topic_partition, value in commits.items()]
    answer_by_jobs(
        broker,
        context,
        portions(offsets, OFFSETS_PER_JOB),
        write,
        lambda: response(ErrorCode.NONE),
        lambda error: response(error.code),
        elsewhere=ErrorCode.GROUP_COORDINATOR_NOT_AVAILABLE,
    )


def _response(request: OffsetCommitRequest, errors: _Errors) -> OffsetCommitResponse:
    return OffsetCommitResponse(
        throttle_time_ms=0,
        topics=tuple(
            OffsetCommitResponseTopic(
                name=topic.name,
                partitions=tuple(
                    OffsetCommitResponsePartition(
                        part.partition_index, errors[TopicPartition(topic.name, part.partition_index)]
                    )
                    for part in topic.partitions
                ),
            )
            for topic in request.topics
        ),
    )
