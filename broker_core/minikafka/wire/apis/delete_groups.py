"""DeleteGroups: remove groups that have no members, with their offsets. Sent to the coordinator of each.

Version 1 is the same.
"""

from __future__ import annotations

from dataclasses import dataclass

from minikafka.wire.api import Api
from minikafka.wire.keys import ApiKey
from minikafka.wire.schema import INT16, INT32, STRING, ArrayOf, Struct, field


@dataclass(frozen=True, slots=True)
class DeleteGroupsRequest:
    """The names of the groups."""

    groups_names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DeletableGroupResult:
    """What became of one group."""

    group_id: str
    error_code: int


@dataclass(frozen=True, slots=True)
class DeleteGroupsResponse:
    """One row for each group of the request."""

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
        field(
            "results",
            ArrayOf(Struct(DeletableGroupResult, field("group_id", STRING), field("error_code", INT16))),
        ),
    ),
)
