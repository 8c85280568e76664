"""FindCoordinator: the broker that coordinates a group (GroupCoordinator in 0.10.1).

Version 1 adds the key type, throttle_time_ms and the error message. The address is that of the listener that
received the request. The first request creates the offsets topic. Until the group's partition has a leader
with that listener, the response is COORDINATOR_NOT_AVAILABLE, which clients retry. Transactions are not
supported: UNSUPPORTED_VERSION.
"""

from __future__ import annotations

from minikafka.base.errors import BrokerError, ErrorCode
from minikafka.base.ids import BrokerAddress
from minikafka.server.context import RequestContext
from minikafka.server.groups.group_coordinator import GroupCoordinator
from minikafka.wire.apis.find_coordinator import (
    CoordinatorType,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)


def handle(coordinator: GroupCoordinator, context: RequestContext, request: FindCoordinatorRequest) -> None:
    """Serve one FindCoordinator request."""
    error, message = ErrorCode.NONE, None
    node = BrokerAddress(-1, "", -1)
    try:
        node = _where(coordinator, context.listener, request)
    except BrokerError as problem:
        error, message = problem.code, problem.detail
    context.reply(
        FindCoordinatorResponse(
            throttle_time_ms=0,
            error_code=error,
            error_message=message,
            node_id=node.broker_id,
            host=node.host,
            port=node.port,
        )
    )


def _where(coordinator: GroupCoordinator, listener: str, request: FindCoordinatorRequest) -> BrokerAddress:
    if request.key_type == CoordinatorType.TRANSACTION:
        raise BrokerError(ErrorCode.UNSUPPORTED_VERSION, "transactions are not supported")
    if request.key_type != CoordinatorType.GROUP:
        raise BrokerError(
            ErrorCode.INVALID_REQUEST, f"unknown key type {request.key_type}: expected 0 (group)"
        )
    broker, topic_partition = coordinator.broker, coordinator.partition_of(request.key)
    metadata_cache = broker.metadata_cache
    leadership = metadata_cache.leadership(topic_partition)
    if leadership is None:
        missing = f"{topic_partition} does not exist yet"
        try:
            if topic_partition.topic not in metadata_cache.topics:
                coordinator.create_topic()
        except BrokerError as error:
            missing = f"cannot create {topic_partition.topic}: {error}"
        raise BrokerError(ErrorCode.GROUP_COORDINATOR_NOT_AVAILABLE, missing)
    leader = metadata_cache.brokers.get(leadership.leader)
    not_open = leadership.leader == broker.broker_id and topic_partition not in broker.partitions
    if leader is None or not_open:
        raise BrokerError(ErrorCode.GROUP_COORDINATOR_NOT_AVAILABLE, f"{topic_partition} has no leader")
    address = leader.address(listener)
    if address is None:
        problem = f"broker {leader.broker_id}, which leads {topic_partition}, has no listener {listener}"
        raise BrokerError(ErrorCode.GROUP_COORDINATOR_NOT_AVAILABLE, problem)
    return address
