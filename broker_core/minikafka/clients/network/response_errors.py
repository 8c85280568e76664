"""Errors in responses: those of codes, the rule of which requests may be retried, and hints for messages."""

from __future__ import annotations

from collections.abc import Collection

from minikafka.base.errors import BrokerError, ErrorCode, MinikafkaError, NetworkError, RemoteWireError

NOT_ENOUGH_REPLICAS_CODES = frozenset(
    {ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND}
)
"""Codes for acks=all with fewer replicas in sync than ``min.insync.replicas``."""

_AUTHORIZATION_CODES = frozenset({ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.GROUP_AUTHORIZATION_FAILED})


def is_retriable(error: MinikafkaError) -> bool:
    """Return True if the same request may succeed later, perhaps with another broker."""
    return isinstance(error, (NetworkError, RemoteWireError)) or (
        isinstance(error, BrokerError) and error.is_retriable
    )


def error_of(code: int, message: str | None, otherwise: str = "") -> BrokerError | None:
    """Return the error of a row in a response, or None. ``otherwise``: the detail of one without message."""
    found = ErrorCode.of(code)
    return None if found is ErrorCode.NONE else BrokerError(found, message or otherwise)


def raise_for_code(code: int, message: str | None, otherwise: str = "") -> None:
    """Raise what ``error_of`` returns, unless it is None."""
    error = error_of(code, message, otherwise)
    if error is not None:
        raise error


def raise_for_group(code: int, doing: str, group_id: str, operation: str) -> None:
    """Raise as ``raise_for_code``; if access rules deny the ``operation``, the error names it."""
    hint = authorization_hint(ErrorCode.of(code), operation, f"Group:{group_id}")
    raise_for_code(code, f"{doing} group {group_id!r}{hint}")


def authorization_hint(code: ErrorCode, operation: str, resource: str) -> str:
    """Return the end of an error message that names the missing ACL; empty for other codes."""
    return f"; {denied(operation, resource)}" if code in _AUTHORIZATION_CODES else ""


def denied(operation: str, resource: str) -> str:
    """Return a message that names the missing ACL."""
    return f"not authorized: {operation} on {resource} (see `minikafka acl list`)"


def not_enough_replicas_hint(in_sync: Collection[int] | None) -> str:
    """Return the end of a message for NOT_ENOUGH_REPLICAS_CODES; ``in_sync`` is None if unknown."""
    brokers = "" if in_sync is None else f" (brokers: {', '.join(map(str, in_sync)) or 'none'})"
    return f"; fewer replicas are in sync{brokers} than the topic's min.insync.replicas"
