"""The errors of a transactional producer: what follows from each code, and what the user can do."""

from __future__ import annotations

from minikafka.base.errors import (
    BrokerError,
    ErrorCode,
    LocalWireError,
    MinikafkaError,
    NetworkError,
    RemoteWireError,
)
from minikafka.clients.network.response_errors import denied
from minikafka.clients.produce.transaction_requests import (
    AddOffsets,
    CommitOffsets,
    FindCoordinator,
    Operation,
)

MOVED_CODES = frozenset({ErrorCode.NOT_COORDINATOR_FOR_GROUP, ErrorCode.GROUP_COORDINATOR_NOT_AVAILABLE})
"""The coordinator is another broker, or none: it is looked up again."""
RETRIED_CODES = frozenset(
    {
        ErrorCode.GROUP_LOAD_IN_PROGRESS,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)
"""Another request is in its way, or something is not known yet: the request is repeated."""
FENCED_CODES = frozenset({ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH})
"""The producer is not the newest one of its id."""
FATAL_CODES = frozenset(
    {
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
    }
)
"""No request of this producer will succeed."""
NEW_ID_CODES = frozenset({ErrorCode.UNKNOWN_PRODUCER_ID, ErrorCode.INVALID_PRODUCER_ID_MAPPING})
"""The coordinator does not know the id any more: InitProducerId gives another one."""
_REJOIN_CODES = frozenset(
    {
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.FENCED_INSTANCE_ID,
    }
)


def is_lost(error: MinikafkaError) -> bool:
    """Return True if a request may have been served, and the same may succeed later."""
    cause = error.__cause__
    is_interrupt = isinstance(cause, BaseException) and not isinstance(cause, Exception)  # such as Ctrl-C
    return isinstance(error, NetworkError | RemoteWireError) or (
        is_interrupt and not isinstance(error, BrokerError | LocalWireError)
    )


def fencing_reason(open_ms: int, timeout_ms: int) -> str:
    """Return why a producer was fenced whose transaction was open for so long, and what to do."""
    if open_ms > timeout_ms:
        return (
            f"its transaction was open for {open_ms} ms, and the coordinator aborts those that are open for "
            f"longer than transaction.timeout.ms={timeout_ms}; close this producer, and use a longer "
            "time-out or shorter transactions"
        )
    return (
        "another producer with this transactional.id was started; close this one, and run one at a time with "
        "each id"
    )


def operation_hint(operation: Operation, code: ErrorCode, transactional_id: str, timeout_ms: int) -> str:
    """Return what the user can do about the error of an operation; empty if nothing is known."""
    if code is ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
        return denied("Write", f"TransactionalId:{transactional_id}")
    if code is ErrorCode.INVALID_TRANSACTION_TIMEOUT:
        return (
            f"transaction.timeout.ms={timeout_ms} is longer than transaction.max.timeout.ms of the brokers "
            "allows: lower it, or raise that setting of the brokers"
        )
    if code is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        return (
            denied("Write", "the topic")
            if not isinstance(operation, CommitOffsets)
            else denied("Read", "the topic")
        )
    group = _group_of(operation)
    if code is ErrorCode.GROUP_AUTHORIZATION_FAILED:
        return denied("Read", f"Group:{group}")
    if code in _REJOIN_CODES:
        return (
            f"group {group!r} has rebalanced, and other members may have read these partitions already; poll "
            "again"
        )
    return ""


def _group_of(operation: Operation) -> str:
    if isinstance(operation, CommitOffsets):
        return operation.group.group_id
    if isinstance(operation, AddOffsets):
        return operation.group_id
    return operation.key if isinstance(operation, FindCoordinator) else ""
