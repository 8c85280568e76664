"""CreateAcls: create ACLs.

Version 1 adds the resource pattern type. Versions 2 and 3 have no new fields; from 3 on there are ACLs of
users, about delegation tokens (KIP-373). Types, operations and permissions are numbers (``base.acls``).
"""

from typing import Annotated

from minikafka.base.acls import PatternType
from minikafka.base.values import fast_value
from minikafka.wire.api import Api, ApiKey
from minikafka.wire.fields import Int8, Int16, Int32, since


@fast_value
class AclCreation:
    """An ACL, and its resource."""

    resource_type: Int8
    resource_name: str
    resource_pattern_type: Annotated[Int8, since(1, default=PatternType.LITERAL), "3 literal, 4 prefixed"]
    principal: str
    host: str
    operation: Int8
    permission_type: Annotated[Int8, "2 deny, 3 allow"]


@fast_value
class CreateAclsRequest:
    """The ACLs to create."""

    creations: tuple[AclCreation, ...]


@fast_value
class AclCreationResult:
    """The result for one ACL."""

    error_code: Int16
    error_message: str | None = None


@fast_value
class CreateAclsResponse:
    """The results for the ACLs, in the order of the request."""

    throttle_time_ms: Int32
    results: tuple[AclCreationResult, ...]


CREATE_ACLS = Api(
    ApiKey.CREATE_ACLS,
    "CreateAcls",
    0,
    3,
    CreateAclsRequest,
    CreateAclsResponse,
    max_elements=100_000,  # with four strings each
)
