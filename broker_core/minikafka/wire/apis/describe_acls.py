"""DescribeAcls: the ACLs that match a filter. Version 1 adds the resource pattern type.

Types, operations and permissions are numbers (``base.acls``), with 1 for any in filters.
"""

from __future__ import annotations

from minikafka.base.values import fast_value
from minikafka.wire.api import Api, ApiKey
from minikafka.wire.schema import INT8, INT16, INT32, NULLABLE_STRING, STRING, Struct, array, field

ANY = 1
"""In a filter: every type, operation, permission or pattern type."""
MATCH = 2
"""The pattern type, in a filter, of ACLs that apply to the name, including those about ``*``."""
LITERAL = 3
"""The pattern type of a complete name: the only one in 0.10.1, and the one that version 0 means."""
PREFIXED = 4
"""The pattern type of a prefix of names, since 2.0."""


@fast_value
class DescribeAclsRequest:
    """The filter; None matches all."""

    resource_type_filter: int
    resource_name_filter: str | None
    pattern_type_filter: int
    principal_filter: str | None
    host_filter: str | None
    operation: int
    permission_type: int


@fast_value
class AclDescription:
    """An ACL, without its resource."""

    principal: str
    host: str
    operation: int
    permission_type: int


@fast_value
class DescribeAclsResource:
    """The ACLs of one resource."""

    resource_type: int
    resource_name: str
    pattern_type: int
    acls: tuple[AclDescription, ...]


@fast_value
class DescribeAclsResponse:
    """The matching ACLs; empty with an error."""

    throttle_time_ms: int
    error_code: int
    error_message: str | None
    resources: tuple[DescribeAclsResource, ...]


ACL_FILTER = (
    field("resource_type_filter", INT8, "1: any"),
    field("resource_name_filter", NULLABLE_STRING, "null: any"),
    field("pattern_type_filter", INT8, "1 any, 2 match, 3 literal, 4 prefixed", since=1, default=LITERAL),
    field("principal_filter", NULLABLE_STRING, "null: any"),
    field("host_filter", NULLABLE_STRING, "null: any"),
    field("operation", INT8, "1: any"),
    field("permission_type", INT8, "1 any, 2 deny, 3 allow"),
)
"""The rows of a filter, also in DeleteAcls."""
ACL_FIELDS = (
    field("principal", STRING),
    field("host", STRING),
    field("operation", INT8),
    field("permission_type", INT8, "2 deny, 3 allow"),
)
"""The rows of an ACL behind its resource, in all three requests about ACLs."""

DESCRIBE_ACLS = Api(
    ApiKey.DESCRIBE_ACLS,
    "DescribeAcls",
    0,
    1,
    request=Struct(DescribeAclsRequest, *ACL_FILTER),
    response=Struct(
        DescribeAclsResponse,
        field("throttle_time_ms", INT32),
        field("error_code", INT16),
        field("error_message", NULLABLE_STRING),
        array(
            "resources",
            DescribeAclsResource,
            field("resource_type", INT8),
            field("resource_name", STRING),
            field("pattern_type", INT8, "3 literal, 4 prefixed", since=1, default=LITERAL),
            array("acls", AclDescription, *ACL_FIELDS),
        ),
    ),
)
