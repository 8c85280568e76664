"""CreateAcls: create ACLs. Version 1 adds the resource pattern type.

Types, operations and permissions are numbers (``base.acls``).
"""

from __future__ import annotations

from minikafka.base.values import fast_value
from minikafka.wire.api import Api, ApiKey
from minikafka.wire.apis.describe_acls import ACL_FIELDS, LITERAL
from minikafka.wire.schema import INT8, INT16, INT32, NULLABLE_STRING, STRING, Struct, array, field


@fast_value
class AclCreation:
    """An ACL, and its resource."""

    resource_type: int
    resource_name: str
    resource_pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int


@fast_value
class CreateAclsRequest:
    """The ACLs to create."""

    creations: tuple[AclCreation, ...]


@fast_value
class AclCreationResult:
    """The result for one ACL."""

    error_code: int
    error_message: str | None = None


@fast_value
class CreateAclsResponse:
    """The results for the ACLs, in the order of the request."""

    throttle_time_ms: int
    results: tuple[AclCreationResult, ...]


CREATE_ACLS = Api(
    ApiKey.CREATE_ACLS,
    "CreateAcls",
    0,
    1,
    request=Struct(
        CreateAclsRequest,
        array(
            "creations",
            AclCreation,
            field("resource_type", INT8),
            field("resource_name", STRING),
            field("resource_pattern_type", INT8, "3 literal, 4 prefixed", since=1, default=LITERAL),
            *ACL_FIELDS,
        ),
    ),
    response=Struct(
        CreateAclsResponse,
        field("throttle_time_ms", INT32),
        array(
            "results", AclCreationResult, field("error_code", INT16), field("error_message", NULLABLE_STRING)
        ),
    ),
    max_elements=100_000,  # with four strings each
)
