"""DeleteGroups: delete groups without members, and their offsets. Sent to the coordinator of each.

Versions 0 and 1 are the same.
"""

from __future__ import annotations

from minikafka.base.values import fast_value
from minikafka.wire.api import Api, ApiKey
from minikafka.wire.schema import INT16, INT32, STRING, ArrayOf, Struct, array, field


@fast_value
class DeleteGroupsRequest:
    """The names of the groups."""

    groups_names: tuple[str, ...]


@fast_value
class DeletableGroupResult:
    """The result for one group."""

    group_id: str
    error_code: int


@fast_value
class DeleteGroupsResponse:
    """The results for the groups of the request."""

    throttle_time_ms: int
    results: tuple[DeletableGroupResult, ...]


DELETE_GROUPS = Api(
    ApiKey.DELETE_GROUPS,
    "DeleteGroups",
    0,
    1,
    request=Struct(DeleteGroupsRequest, field("groups_names", ArrayOf(STRING))),
    response=Struct(
        DeleteGroupsResponse,
        field("throttle_time_ms", INT32),
        array("results", DeletableGroupResult, field("group_id", STRING), field("error_code", INT16)),
    ),
)
