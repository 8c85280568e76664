"""DescribeAcls: the ACLs that match a filter.

Version 1 adds the resource pattern type; version 0 means literal names. Versions 2 and 3 have no new fields;
from 3 on there are ACLs of users, about delegation tokens (KIP-373). Types, operations and permissions are
numbers (``base.acls``), with 1 for any in filters.
"""

from typing import Annotated

from minikafka.base.acls import PatternType
from minikafka.base.values import fast_value
from minikafka.wire.api import Api, ApiKey
from minikafka.wire.fields import Int8, Int16, Int32, since

ANY = 1
"""In a filter: every type, operation, permission or pattern type."""
MATCH = 2
"""The pattern type, in a filter, of ACLs that apply to the name, also about ``*`` and prefixes of it."""


@fast_value
class AclBindingFilter:
    """A filter; None matches all."""

    resource_type_filter: Annotated[Int8, "1: any"]
    resource_name_filter: Annotated[str | None, "null: any"]
    pattern_type_filter: Annotated[
        Int8, since(1, default=PatternType.LITERAL), "1 any, 2 match, 3 literal, 4 prefixed"
    ]
    principal_filter: Annotated[str | None, "null: any"]
    host_filter: Annotated[str | None, "null: any"]
    operation: Annotated[Int8, "1: any"]
    permission_type: Annotated[Int8, "1 any, 2 deny, 3 allow"]


@fast_value
class DescribeAclsRequest(AclBindingFilter):
    """The filter of the ACLs to describe."""


@fast_value
class AclDescription:
    """An ACL, without its resource."""

    principal: str
    host: str
    operation: Int8
    permission_type: Annotated[Int8, "2 deny, 3 allow"]


@fast_value
class DescribeAclsResource:
    """The ACLs of one resource."""

    resource_type: Int8
    resource_name: str
    pattern_type: Annotated[Int8, since(1, default=PatternType.LITERAL), "3 literal, 4 prefixed"]
    acls: tuple[AclDescription, ...]


@fast_value
class DescribeAclsResponse:
    """The matching ACLs; empty with an error."""

    throttle_time_ms: Int32
    error_code: Int16
    error_message: str | None
    resources: tuple[DescribeAclsResource, ...]


DESCRIBE_ACLS = Api(ApiKey.DESCRIBE_ACLS, "DescribeAcls", 0, 3, DescribeAclsRequest, DescribeAclsResponse)
