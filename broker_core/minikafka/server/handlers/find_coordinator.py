"""FindCoordinator: the broker that coordinates a group or a transactional id (GroupCoordinator in 0.10.1).

Version 1 adds the key type, throttle_time_ms and the error message; from 4 on the request has several keys.
The address is that of the listener that received the request. The first request creates the internal topic.
Until the key's partition has a leader with that listener, the response is COORDINATOR_NOT_AVAILABLE, which
clients retry. Version 5, for clients that know TRANSACTION_ABORTABLE, is the same as 4; 6 allows the key type
of share groups, whose coordinator is never available, as in Kafka 3.9.
"""

from __future__ import annotations

from minikafka.base.errors import BrokerError, ErrorCode
from minikafka.base.ids import BrokerAddress
from minikafka.server.context import RequestContext
from minikafka.server.groups.group_coordinator import GroupCoordinator
from minikafka.server.transactions.transaction_coordinator import TransactionCoordinator
from minikafka.server.workers.work_pool import Steps
from minikafka.wire.apis.find_coordinator import (
    Coordinator,
    CoordinatorType,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

STEP_KEYS = 500
"""Keys looked up in one step."""
KEY_BYTES = 500
"""Estimated memory of a key until it is answered."""
_SEVERAL_KEYS_SINCE = 4
_SHARE_GROUPS_SINCE = 6
_NOBODY = BrokerAddress(-1, "", -1)

_Coordinator = GroupCoordinator | TransactionCoordinator


def handle(
    groups: GroupCoordinator,
    transactions: TransactionCoordinator,
    context: RequestContext,
    request: FindCoordinatorRequest,
) -> Steps | None:
    """Serve one FindCoordinator request."""
    is_transactional = request.key_type == CoordinatorType.TRANSACTION
    coordinator: _Coordinator = transactions if is_transactional else groups
    if context.version >= _SEVERAL_KEYS_SINCE:
        return _serve_keys(coordinator, context, request)
    found = _find(coordinator, context, request.key_type, request.key)
    context.reply(
        FindCoordinatorResponse(
            throttle_time_ms=0,
            error_code=found.error_code,
            error_message=found.error_message,
            node_id=found.node_id,
            host=found.host,
            port=found.port,
        )
    )
    return None


def _serve_keys(coordinator: _Coordinator, context: RequestContext, request: FindCoordinatorRequest) -> Steps:
    rows: list[Coordinator] = []
    for key in dict.fromkeys(request.coordinator_keys):
        if len(rows) % STEP_KEYS == STEP_KEYS - 1:
            yield len(request.coordinator_keys) * KEY_BYTES
        rows.append(_find(coordinator, context, request.key_type, key))
    context.reply(FindCoordinatorResponse(0, ErrorCode.NONE, None, -1, "", -1, tuple(rows)))


def _find(coordinator: _Coordinator, context: RequestContext, key_type: int, key: str) -> Coordinator:
    error, message = ErrorCode.NONE, None
    node = _NOBODY
    try:
        _check_key_type(key_type, context.version, coordinator)
        node = _where(coordinator, context.listener, key)
    except BrokerError as problem:
        error, message = problem.code, problem.detail
    return Coordinator(key, node.broker_id, node.host, node.port, error, message)


def _check_key_type(key_type: int, version: int, coordinator: _Coordinator) -> None:
    """Raise the error of a key that has no coordinator."""
    if isinstance(coordinator, TransactionCoordinator):
        if not coordinator.is_served:
            raise BrokerError(ErrorCode.UNSUPPORTED_VERSION, "transactions are not supported")
        return
    if key_type == CoordinatorType.SHARE and version >= _SHARE_GROUPS_SINCE:
        raise BrokerError(ErrorCode.GROUP_COORDINATOR_NOT_AVAILABLE, "share groups are not supported")
    if key_type != CoordinatorType.GROUP:
        raise BrokerError(
            ErrorCode.INVALID_REQUEST, f"unknown key type {key_type}: expected 0 (group) or 1 (transaction)"
        )


def _where(coordinator: _Coordinator, listener: str, key: str) -> BrokerAddress:
    broker, topic_partition = coordinator.broker, coordinator.partition_of(key)
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
