"""UpdateMetadata: the controller updates this broker's metadata cache.

Versions: 0 has one address of each broker, 1 its endpoints, 2 racks, 3 listener names, 4 offline replicas, 5
the broker's epoch, which is not checked, 7 topic ids. A request of a former controller gets
STALE_CONTROLLER_EPOCH and changes nothing.
"""

from __future__ import annotations

from minikafka.base.errors import ErrorCode
from minikafka.server.context import RequestContext
from minikafka.server.control import controller_requests as messages
from minikafka.server.replication.replica_manager import ReplicaManager
from minikafka.wire.apis.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse


def handle(replicas: ReplicaManager, context: RequestContext, request: UpdateMetadataRequest) -> None:
    """Serve one UpdateMetadata request, as a job, in the order of the controller's requests."""
    brokers, leaderships, topic_ids = messages.parse_update_metadata(request)

    def respond() -> UpdateMetadataResponse:
        replicas.update_metadata(brokers, leaderships, topic_ids)
        return UpdateMetadataResponse(ErrorCode.NONE)

    def refuse() -> UpdateMetadataResponse:
        return UpdateMetadataResponse(ErrorCode.STALE_CONTROLLER_EPOCH)

    replicas.answer_controller(request.controller_epoch, context, respond, refuse)
