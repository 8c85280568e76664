"""LeaderAndIsr: the controller says which partitions this broker leads, and which it follows.

Version 1 says of each whether its replica is new. Answered once this broker has taken over, with an error for
each partition whose log cannot be opened, or that no controller can mean; STALE_CONTROLLER_EPOCH, and nothing
is done, for a controller that is one no longer.
"""

from __future__ import annotations

from minikafka.base.errors import ErrorCode
from minikafka.server.context import RequestContext
from minikafka.server.control import controller_requests as messages
from minikafka.server.replication.replica_manager import ReplicaManager
from minikafka.wire.apis.leader_and_isr import (
    LeaderAndIsrPartitionError,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
)


def handle(replicas: ReplicaManager, context: RequestContext, request: LeaderAndIsrRequest) -> None:
    """Serve one request, as a job."""
    leaderships, leaders, refused = messages.parse_leader_and_isr(request)

    def respond() -> LeaderAndIsrResponse:
        codes = {**replicas.become(leaderships, leaders), **refused}
        answers = tuple(LeaderAndIsrPartitionError(*key, code) for key, code in codes.items())
        return LeaderAndIsrResponse(ErrorCode.NONE, answers)

    def refuse() -> LeaderAndIsrResponse:
        return LeaderAndIsrResponse(ErrorCode.STALE_CONTROLLER_EPOCH, ())

    replicas.obey(request.controller_epoch, context, respond, refuse)
