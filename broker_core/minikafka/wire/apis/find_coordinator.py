"""FindCoordinator: the coordinator of a group or a transactional id (GroupCoordinator in 0.10.1).

Version 1: the type of the key, throttle_time_ms and the error message; 4: several keys. Versions 2, 3, 5 and
6 have no new fields.
"""

from enum import IntEnum
from typing import Annotated

from minikafka.base.values import fast_value
from minikafka.wire.api import Api, ApiKey
from minikafka.wire.fields import Int8, Int16, Int32, since, until


class CoordinatorType(IntEnum):
    """The type of ``key``."""

    GROUP = 0
    TRANSACTION = 1
    SHARE = 2


@fast_value
class FindCoordinatorRequest:
    """The group or transactional id to look up, or from version 4 on ``coordinator_keys``. ``key_type`` is a
    CoordinatorType, or an unknown number.
    """

    key: Annotated[str, until(3, default=""), "the group, or the transactional id"]
    key_type: Annotated[Int8, since(1, default=0), "0 group, 1 transaction"] = CoordinatorType.GROUP
    coordinator_keys: Annotated[tuple[str, ...], since(4), "the groups, or the transactional ids"] = ()


@fast_value
class Coordinator:
    """The coordinator of one key. With an error there is none: node -1, an empty host, port -1."""

    key: str
    node_id: Annotated[Int32, "-1 with an error"]
    host: str
    port: Int32
    error_code: Int16
    error_message: str | None


@fast_value
class FindCoordinatorResponse:
    """The coordinator, or from version 4 on ``coordinators``. With an error there is none: node -1, an empty
    host, port -1.
    """

    throttle_time_ms: Annotated[Int32, since(1, default=0)]
    error_code: Annotated[Int16, until(3, default=0)]
    error_message: Annotated[str | None, since(1, until=3)]
    node_id: Annotated[Int32, until(3, default=-1), "-1 with an error"]
    host: Annotated[str, until(3, default="")]
    port: Annotated[Int32, until(3, default=-1)]
    coordinators: Annotated[tuple[Coordinator, ...], since(4)] = ()


FIND_COORDINATOR = Api(
    ApiKey.FIND_COORDINATOR, "FindCoordinator", 0, 6, FindCoordinatorRequest, FindCoordinatorResponse
)
