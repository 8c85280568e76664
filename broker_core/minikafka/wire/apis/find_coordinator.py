"""FindCoordinator: the coordinator of a group or a transactional id (GroupCoordinator in 0.10.1).

Version 1: the type of the key, throttle_time_ms and the error message; 2 is the same.
"""

from __future__ import annotations

from enum import IntEnum

from minikafka.base.values import fast_value
from minikafka.wire.api import Api, ApiKey
from minikafka.wire.schema import INT8, INT16, INT32, NULLABLE_STRING, STRING, Struct, field


class CoordinatorType(IntEnum):
    """The type of ``key``."""

    GROUP = 0
    TRANSACTION = 1


@fast_value
class FindCoordinatorRequest:
    """The group or transactional id to look up. ``key_type`` is a CoordinatorType, or an unknown number."""

    key: str
    key_type: int = CoordinatorType.GROUP


@fast_value
class FindCoordinatorResponse:
    """The coordinator. With an error there is none: node -1, an empty host, port -1."""

    throttle_time_ms: int
    error_code: int
    error_message: str | None
    node_id: int
    host: str
    port: int


FIND_COORDINATOR = Api(
    ApiKey.FIND_COORDINATOR,
    "FindCoordinator",
    0,
    2,
    request=Struct(
        FindCoordinatorRequest,
        field("key", STRING, "the group, or the transactional id"),
        field("key_type", INT8, "0 group, 1 transaction", since=1, default=int(CoordinatorType.GROUP)),
    ),
    response=Struct(
        FindCoordinatorResponse,
        field("throttle_time_ms", INT32, since=1, default=0),
        field("error_code", INT16),
        field("error_message", NULLABLE_STRING, since=1),
        field("node_id", INT32, "-1 with an error"),
        field("host", STRING),
        field("port", INT32),
    ),
)
