"""DeleteAcls: delete the ACLs that match filters. Version 1 adds the resource pattern type.

Types, operations and permissions are numbers (``base.acls``), with 1 for any in filters.
"""

from __future__ import annotations

from minikafka.base.values import fast_value
from minikafka.wire.api import Api, ApiKey
from minikafka.wire.apis.describe_acls import ACL_FIELDS, ACL_FILTER, LITERAL
from minikafka.wire.schema import INT8, INT16, INT32, NULLABLE_STRING, STRING, Struct, array, field


@fast_value
class DeleteAclsFilter:
    """A filter; None matches all."""

    resource_type_filter: int
    resource_name_filter: str | None
    pattern_type_filter: int
    principal_filter: str | None
    host_filter: str | None
    operation: int
    permission_type: int


@fast_value
class DeleteAclsRequest:
    """The filters; an ACL is deleted if any of them matches it."""

    filters: tuple[DeleteAclsFilter, ...]


@fast_value
class DeleteAclsMatchingAcl:
    """An ACL that matched, and the result of its deletion."""

    error_code: int
    error_message: str | None
    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int


@fast_value
class DeleteAclsFilterResult:
    """The matches of one filter."""

    error_code: int
    error_message: str | None
    matching_acls: tuple[DeleteAclsMatchingAcl, ...]


@fast_value
class DeleteAclsResponse:
    """The results for the filters, in the order of the request."""

    throttle_time_ms: int
    filter_results: tuple[DeleteAclsFilterResult, ...]


DELETE_ACLS = Api(
    ApiKey.DELETE_ACLS,
    "DeleteAcls",
    0,
    1,
    request=Struct(DeleteAclsRequest, array("filters", DeleteAclsFilter, *ACL_FILTER)),
    response=Struct(
        DeleteAclsResponse,
        field("throttle_time_ms", INT32),
        array(
            "filter_results",
            DeleteAclsFilterResult,
            field("error_code", INT16),
            field("error_message", NULLABLE_STRING),
            array(
                "matching_acls",
                DeleteAclsMatchingAcl,
                field("error_code", INT16),
                field("error_message", NULLABLE_STRING),
                field("resource_type", INT8),
                field("resource_name", STRING),
                field("pattern_type", INT8, "3 literal, 4 prefixed", since=1, default=LITERAL),
                *ACL_FIELDS,
            ),
        ),
    ),
    max_elements=100_000,  # with four strings each
)
