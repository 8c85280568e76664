"""LeaderAndIsr: the controller assigns the partitions that this broker leads or follows.

Version 1 marks new replicas. The response is sent once this broker has applied the states, with an error for
each partition whose log cannot be opened or that is not valid. A request of a former controller gets
STALE_CONTROLLER_EPOCH and changes nothing.
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
    """Serve one LeaderAndIsr request, as a job."""
    leaderships, leaders, refused = messages.parse_leader_and_isr(request)

    def respond() -> LeaderAndIsrResponse:
        codes = {**replicas.become_leader_or_follower(leaderships, leaders), **refused}
        answers = tuple(LeaderAndIsrPartitionError(*key, code) for key, code in codes.items())
        return LeaderAndIsrResponse(ErrorCode.NONE, answers)

    def refuse() -> LeaderAndIsrResponse:
        return LeaderAndIsrResponse(ErrorCode.STALE_CONTROLLER_EPOCH, ())

    replicas.answer_controller(request.controller_epoch, context, respond, refuse)
