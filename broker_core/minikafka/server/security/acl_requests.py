"""Rules and filters as the APIs of ACLs carry them: numbers, and what they stand for (``base.acls``).

The rules are kept as 0.10.1 keeps them, where a name is a name: one that others begin with (PREFIXED, since
2.0) is refused in a rule and finds none in a filter.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TypeVar

from minikafka.base.acls import CLUSTER, Acl, AclFilter, Operation, Permission, Resource, ResourceType
from minikafka.base.errors import BrokerError, ErrorCode
from minikafka.server.security.authorizer import Authorizer
from minikafka.wire.apis.create_acls import AclCreation
from minikafka.wire.apis.delete_acls import DeleteAclsFilter
from minikafka.wire.apis.describe_acls import ANY, LITERAL, MATCH, PREFIXED, DescribeAclsRequest

Number = TypeVar("Number", bound=IntEnum)

NO_AUTHORIZER = "this broker has no access rules: authorizer.class.name is not set"


def check_authorizer(authorizer: Authorizer | None) -> Authorizer:
    """Raise SECURITY_DISABLED where there is none."""
    if authorizer is None:
        raise BrokerError(ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER)
    return authorizer


def acl_of_creation(creation: AclCreation) -> tuple[Resource, Acl]:
    """The rule, and what it is about. BrokerError INVALID_REQUEST, or UNSUPPORTED_VERSION for PREFIXED."""
    if creation.resource_pattern_type == PREFIXED:
        raise BrokerError(
            ErrorCode.UNSUPPORTED_VERSION, "rules here are about one name, or about all (*): no prefixes"
        )
    if creation.resource_pattern_type != LITERAL:
        raise _invalid(f"{creation.resource_pattern_type} is no type of a name for a rule: 3 is (literal)")
    kind = _known(ResourceType, creation.resource_type, "type of resource")
    if not creation.resource_name:
        raise _invalid("the resource has no name")
    if kind is ResourceType.CLUSTER and creation.resource_name != CLUSTER.name:
        raise _invalid(f"the cluster is called {CLUSTER.name}, not {creation.resource_name!r}")
    before, colon, name = creation.principal.partition(":")
    if not (before and colon and name):
        raise _invalid(f"{creation.principal!r} is no principal: TYPE:NAME is")
    if not creation.host:
        raise _invalid("the host is empty: an address, or * for all")
    return Resource(kind, creation.resource_name), Acl(
        creation.principal,
        _known(Permission, creation.permission_type, "permission"),
        creation.host,
        _known(Operation, creation.operation, "operation"),
    )


def find_matching_acls(
    authorizer: Authorizer, fields: DescribeAclsRequest | DeleteAclsFilter
) -> list[tuple[Resource, Acl]]:
    """The rules that a filter finds, in order. BrokerError INVALID_REQUEST for what is no filter."""
    if fields.pattern_type_filter not in {ANY, MATCH, LITERAL, PREFIXED}:
        raise _invalid(f"{fields.pattern_type_filter} is no type of a name for a filter")
    wanted = AclFilter(
        resource_type=_known_or_any(ResourceType, fields.resource_type_filter, "type of resource"),
        resource_name=fields.resource_name_filter,
        principal=fields.principal_filter,
        host=fields.host_filter,
        operation=_known_or_any(Operation, fields.operation, "operation"),
        permission=_known_or_any(Permission, fields.permission_type, "permission"),
        match_wildcard=fields.pattern_type_filter == MATCH,
    )
    if fields.pattern_type_filter == PREFIXED:
        return []
    return sorted(authorizer.matching_acls([wanted]))


def _known_or_any(kind: type[Number], number: int, what: str) -> Number | None:
    return None if number == ANY else _known(kind, number, what)


def _known(kind: type[Number], number: int, what: str) -> Number:
    try:
        return kind(number)
    except ValueError:
        known = ", ".join(f"{one.value} ({one.name})" for one in kind)
        raise _invalid(f"{number} is no {what}: {known}") from None


def _invalid(words: str) -> BrokerError:
    return BrokerError(ErrorCode.INVALID_REQUEST, words)
