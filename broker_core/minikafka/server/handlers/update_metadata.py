"""UpdateMetadata: the controller says what clients are to be told.

Versions: 0 names one address of each broker, 1 its endpoints, 2 racks, 3 names of listeners, 4 offline
replicas. STALE_CONTROLLER_EPOCH, and nothing is done, for a controller that is one no longer.
"""

from __future__ import annotations

from minikafka.base.errors import ErrorCode
from minikafka.server.context import RequestContext
from minikafka.server.control import controller_requests as messages
from minikafka.server.replication.replica_manager import ReplicaManager
from minikafka.wire.apis.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse


def handle(replicas: ReplicaManager, context: RequestContext, request: UpdateMetadataRequest) -> None:
    """Serve one request, as a job: in the order in which the controller said it."""
    brokers, leaderships = messages.parse_update_metadata(request)

    def respond() -> UpdateMetadataResponse:
        replicas.update_metadata(brokers, leaderships)
        return UpdateMetadataResponse(ErrorCode.NONE)

    def refuse() -> UpdateMetadataResponse:
        return UpdateMetadataResponse(ErrorCode.STALE_CONTROLLER_EPOCH)

    replicas.obey(request.controller_epoch, context, respond, refuse)
