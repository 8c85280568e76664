"""ListPartitionReassignments: the reassignments in progress, whoever has requested them.

Only the controller serves it (NOT_CONTROLLER). A partition that is not being reassigned is left out.
"""

from __future__ import annotations

from minikafka.base.errors import BrokerError, ErrorCode
from minikafka.base.ids import TopicPartition
from minikafka.server.admin.topics import check_controller, error_message_of
from minikafka.server.context import RequestContext
from minikafka.server.core.broker import Broker
from minikafka.wire.apis.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)


def handle(broker: Broker, context: RequestContext, request: ListPartitionReassignmentsRequest) -> None:
    """Serve one ListPartitionReassignments request."""
    wanted = None
    if request.topics is not None:
        wanted = {
            TopicPartition(topic.name, index) for topic in request.topics for index in topic.partition_indexes
        }
    try:
        check_controller(broker)
    except BrokerError as error:
        context.reply(ListPartitionReassignmentsResponse(0, error.code, error_message_of(error), ()))
        return
    topics: dict[str, list[OngoingPartitionReassignment]] = {}
    for key, (replicas, adding, removing) in broker.run(broker.controller.reassignments).items():
        if wanted is None or key in wanted:
            row = OngoingPartitionReassignment(key.partition, replicas, adding, removing)
            topics.setdefault(key.topic, []).append(row)
    rows = (OngoingTopicReassignment(name, tuple(partitions)) for name, partitions in topics.items())
    context.reply(ListPartitionReassignmentsResponse(0, ErrorCode.NONE, None, tuple(rows)))
