"""DeleteGroups: delete groups without members, and their offsets. Sent to the coordinator of each.

All versions are the same.
"""

from minikafka.base.values import fast_value
from minikafka.wire.api import Api, ApiKey
from minikafka.wire.fields import Int16, Int32


@fast_value
class DeleteGroupsRequest:
    """The names of the groups."""

    groups_names: tuple[str, ...]


@fast_value
class DeletableGroupResult:
    """The result for one group."""

    group_id: str
    error_code: Int16


@fast_value
class DeleteGroupsResponse:
    """The results for the groups of the request."""

    throttle_time_ms: Int32
    results: tuple[DeletableGroupResult, ...]


DELETE_GROUPS = Api(ApiKey.DELETE_GROUPS, "DeleteGroups", 0, 2, DeleteGroupsRequest, DeleteGroupsResponse)
