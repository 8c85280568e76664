"""OffsetDelete: delete committed offsets of a group (KIP-496).

The coordinator refuses those of topics that a member consumes (GROUP_SUBSCRIBED_TO_TOPIC), and all of a group
whose members are not consumers (NON_EMPTY_GROUP). Partitions that do not exist fail on their own.
"""

from __future__ import annotations

from minikafka.base.errors import BrokerError, ErrorCode
from minikafka.base.ids import TopicPartition
from minikafka.server.context import RequestContext
from minikafka.server.groups.group_coordinator import GroupCoordinator
from minikafka.server.workers.work_pool import Steps
from minikafka.wire.apis.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)

PARTITION_BYTES = 500
"""Estimated memory of a partition until it is answered."""


def handle(coordinator: GroupCoordinator, context: RequestContext, request: OffsetDeleteRequest) -> Steps:
    """Serve one OffsetDelete request."""
    metadata_cache = coordinator.broker.metadata_cache
    yield sum(len(topic.partitions) for topic in request.topics) * PARTITION_BYTES
    errors: dict[TopicPartition, ErrorCode] = {}
    for topic in request.topics:
        for part in topic.partitions:
            key = TopicPartition(topic.name, part.partition_index)
            unknown = metadata_cache.leadership(key) is None
            errors[key] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if unknown else ErrorCode.NONE
    wanted = [key for key, error in errors.items() if error is ErrorCode.NONE]
    try:
        errors |= coordinator.delete_offsets(request.group_id, wanted)
    except BrokerError as error:
        context.reply(OffsetDeleteResponse(error.code, 0, ()))
        return
    rows = tuple(
        OffsetDeleteResponseTopic(
            topic.name,
            tuple(
                OffsetDeleteResponsePartition(
                    part.partition_index, errors[TopicPartition(topic.name, part.partition_index)]
                )
                for part in topic.partitions
            ),
        )
        for topic in request.topics
    )
    context.reply(OffsetDeleteResponse(ErrorCode.NONE, 0, rows))
