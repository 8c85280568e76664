"""DeleteAcls: delete the ACLs that match filters.

Version 1 adds the resource pattern type. Versions 2 and 3 have no new fields; from 3 on there are ACLs of
users, about delegation tokens (KIP-373). Types, operations and permissions are numbers (``base.acls``), with
1 for any in filters.
"""

from typing import Annotated

from minikafka.base.acls import PatternType
from minikafka.base.values import fast_value
from minikafka.wire.api import Api, ApiKey
from minikafka.wire.apis.describe_acls import AclBindingFilter
from minikafka.wire.fields import Int8, Int16, Int32, since


@fast_value
class DeleteAclsFilter(AclBindingFilter):
    """A filter of the ACLs to delete."""


@fast_value
class DeleteAclsRequest:
    """The filters; an ACL is deleted if any of them matches it."""

    filters: tuple[DeleteAclsFilter, ...]


@fast_value
class DeleteAclsMatchingAcl:
    """An ACL that matched, and the result of its deletion."""

    error_code: Int16
    error_message: str | None
    resource_type: Int8
    resource_name: str
    pattern_type: Annotated[Int8, since(1, default=PatternType.LITERAL), "3 literal, 4 prefixed"]
    principal: str
    host: str
    operation: Int8
    permission_type: Annotated[Int8, "2 deny, 3 allow"]


@fast_value
class DeleteAclsFilterResult:
    """The matches of one filter."""

    error_code: Int16
    error_message: str | None
    matching_acls: tuple[DeleteAclsMatchingAcl, ...]


@fast_value
class DeleteAclsResponse:
    """The results for the filters, in the order of the request."""

    throttle_time_ms: Int32
    filter_results: tuple[DeleteAclsFilterResult, ...]


DELETE_ACLS = Api(
    ApiKey.DELETE_ACLS,
    "DeleteAcls",
    0,
    3,
    DeleteAclsRequest,
    DeleteAclsResponse,
    max_elements=100_000,  # with four strings each
)
