"""StopReplica: the controller stops replicas on this broker, and deletes them if it says so.

The response is sent once that is done, with an error for each log that cannot be deleted (yet) and each
partition that is not valid. A request of a former controller gets STALE_CONTROLLER_EPOCH and changes nothing.
"""

from __future__ import annotations

from minikafka.base.errors import ErrorCode
from minikafka.base.ids import TopicPartition
from minikafka.server.context import RequestContext
from minikafka.server.control import controller_requests as messages
from minikafka.server.replication.replica_manager import ReplicaManager
from minikafka.wire.apis.stop_replica import (
    StopReplicaPartitionError,
    StopReplicaRequest,
    StopReplicaResponse,
)


def handle(replicas: ReplicaManager, context: RequestContext, request: StopReplicaRequest) -> None:
    """Serve one StopReplica request, as a job."""
    refused = messages.invalid_partitions(request.partitions)
    named = dict.fromkeys(
        TopicPartition(partition.topic, partition.index) for partition in request.partitions
    )
    partitions = tuple(key for key in named if key not in refused)

    def respond() -> StopReplicaResponse:
        codes = dict.fromkeys(partitions, ErrorCode.NONE)
        if request.delete_partitions:
            codes = replicas.stop_and_delete(partitions, lambda topic_partition: None)
        else:
            replicas.stop(partitions)
        answers = tuple(StopReplicaPartitionError(*key, code) for key, code in {**codes, **refused}.items())
        return StopReplicaResponse(ErrorCode.NONE, answers)

    def refuse() -> StopReplicaResponse:
        return StopReplicaResponse(ErrorCode.STALE_CONTROLLER_EPOCH, ())

    replicas.answer_controller(request.controller_epoch, context, respond, refuse)
