"""FindCoordinator: the coordinator of a group or a transactional id (GroupCoordinator in 0.10.1).

Version 1: the type of the key, throttle_time_ms and the error message; 2 is the same.
"""

from enum import IntEnum
from typing import Annotated

from minikafka.base.values import fast_value
from minikafka.wire.api import Api, ApiKey
from minikafka.wire.fields import Int8, Int16, Int32, since


class CoordinatorType(IntEnum):
    """The type of ``key``."""

    GROUP = 0
    TRANSACTION = 1


@fast_value
class FindCoordinatorRequest:
    """The group or transactional id to look up. ``key_type`` is a CoordinatorType, or an unknown number."""

    key: Annotated[str, "the group, or the transactional id"]
    key_type: Annotated[Int8, since(1, default=0), "0 group, 1 transaction"] = CoordinatorType.GROUP


@fast_value
class FindCoordinatorResponse:
    """The coordinator. With an error there is none: node -1, an empty host, port -1."""

    throttle_time_ms: Annotated[Int32, since(1, default=0)]
    error_code: Int16
    error_message: Annotated[str | None, since(1)]
    node_id: Annotated[Int32, "-1 with an error"]
    host: str
    port: Int32


FIND_COORDINATOR = Api(
    ApiKey.FIND_COORDINATOR, "FindCoordinator", 0, 2, FindCoordinatorRequest, FindCoordinatorResponse
)
