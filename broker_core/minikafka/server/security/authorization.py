"""The requester, the results of authorization, and the ways to authorize a request.

A request is allowed or denied as a whole, or item by item: then the denied items are taken out of it, and
their errors are added to the response.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from minikafka.base.acls import CLUSTER, CLUSTER_OPERATIONS, Operation, ResourceType, operation_bits
from minikafka.base.errors import ErrorCode
from minikafka.base.values import fast_value

TOPIC_DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
GROUP_DENIED = ErrorCode.GROUP_AUTHORIZATION_FAILED
CLUSTER_DENIED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
TRANSACTIONAL_ID_DENIED = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED

NO_OFFSET = -1


def denial_message(operation: Operation, topic: str = "") -> str:
    """Return the error message for a denied operation on ``topic``, or on the cluster."""
    resource = f"topic {topic!r}" if topic else "the cluster"
    return f"not authorized: {operation.label} on {resource}"


@fast_value
class Requester:
    """The client that sent a request, and its permissions."""

    may: Callable[[Operation, ResourceType, str], bool]
    may_on_any: Callable[[Operation, ResourceType], bool]
    """Returns True if the client may do an operation on at least one resource of a type."""
    topic_name: Callable[[bytes], str | None]
    """Returns the name of the topic with an id; None: there is no such topic."""

    def may_on_topic(self, operation: Operation, name: str) -> bool:
        """Return True if the client may do ``operation`` on a topic."""
        return self.may(operation, ResourceType.TOPIC, name)

    def may_on_group(self, operation: Operation, name: str) -> bool:
        """Return True if the client may do ``operation`` on a group."""
        return self.may(operation, ResourceType.GROUP, name)

    def may_on_cluster(self, operation: Operation) -> bool:
        """Return True if the client may do ``operation`` on the cluster."""
        return self.may(operation, CLUSTER.type, CLUSTER.name)

    def may_create(self, topic: str) -> bool:
        """Return True if the client may create ``topic``."""
        return self.may_on_cluster(Operation.CREATE) or self.may_on_topic(Operation.CREATE, topic)


@fast_value
class AuthorizationResult:
    """The outcome for a request that is denied in whole or in part."""

    request: Any
    """The allowed part of the request; None: nothing is allowed."""
    answer: Callable[[Any], Any]
    """Add the denials to the handler's response; takes None when no handler ran."""
    needs_no_response: bool = False
    """True when the client expects no response (acks=0)."""


RequestAuthorizer = Callable[[Requester, int, Any], AuthorizationResult | None]
"""Takes the requester, the version and the request; returns None when all of the request is allowed."""


def cluster_operations(requester: Requester) -> int:
    """Return the bits of the operations on the cluster that the client may do: none without Describe."""
    if not requester.may_on_cluster(Operation.DESCRIBE):
        return 0
    return operation_bits(filter(requester.may_on_cluster, CLUSTER_OPERATIONS))


# --- requests that are allowed or denied as a whole ---------------------------------------------------------


def all_or_nothing(may: Callable[[Requester, Any], bool], denial: Callable[[Any], Any]) -> RequestAuthorizer:
    def authorize(requester: Requester, version: int, request: Any) -> AuthorizationResult | None:
        return None if may(requester, request) else AuthorizationResult(None, lambda _: denial(request))

    return authorize


def cluster_request(operation: Operation, denial: Callable[[Any], Any]) -> RequestAuthorizer:
    return all_or_nothing(lambda requester, _: requester.may_on_cluster(operation), denial)


# --- requests of which each item is allowed or denied -------------------------------------------------------


def each_item(
    items: str, may: Callable[[Requester, Any], bool], rows: str, row: Callable[[Any], Any], nothing: Any
) -> RequestAuthorizer:
    """Return an authorizer that checks each item of the request's field ``items``.

    For a denied item ``row`` is appended to the field ``rows`` of the response; ``nothing`` is an empty
    response.
    """

    def authorize(requester: Requester, version: int, request: Any) -> AuthorizationResult | None:
        allowed: list[Any] = []
        denied: list[Any] = []
        for item in getattr(request, items):
            (allowed if may(requester, item) else denied).append(item)
        if not denied:
            return None

        def answer(served: Any) -> Any:
            base = nothing if served is None else served
            return replace(base, **{rows: (*getattr(base, rows), *map(row, denied))})

        return AuthorizationResult(replace(request, **{items: tuple(allowed)}) if allowed else None, answer)

    return authorize


def each_topic(operation: Operation, row: Callable[[Any], Any], nothing: Any) -> RequestAuthorizer:
    return each_item(
        "topics",
        lambda requester, topic: requester.may_on_topic(operation, topic.name),
        "topics",
        row,
        nothing,
    )


def denied_topic(
    topic_row: Callable[[str, tuple[Any, ...]], Any],
    row: Callable[[Any, ErrorCode], Any],
    partitions: str = "partitions",
) -> Callable[..., Any]:
    """Return a function of a topic of the request that makes its row, with an error for each partition."""

    def denied(topic: Any, code: ErrorCode = TOPIC_DENIED) -> Any:
        return topic_row(topic.name, tuple(row(part, code) for part in getattr(topic, partitions)))

    return denied


def only(rows: str, may_see: Callable[[Any], bool]) -> Callable[[Any], Any]:
    """Return a function that keeps the visible ones in the field ``rows`` of a response."""
    return lambda served: replace(served, **{rows: tuple(filter(may_see, getattr(served, rows)))})


def only_topics(requester: Requester) -> Callable[[Any], Any]:
    return only("topics", lambda topic: requester.may_on_topic(Operation.DESCRIBE, topic.name))
