"""Conversion of ACLs and filters between the wire (numbers) and ``base.acls``.

ACLs of prefixes are refused beside brokers before 2.0, which would not enforce them.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TypeVar

from minikafka.base.acls import (
    CLUSTER,
    Acl,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    Resource,
    ResourceType,
)
from minikafka.base.errors import BrokerError, ErrorCode
from minikafka.security.authorizer import Authorizer
from minikafka.security.principals import KafkaPrincipal
from minikafka.wire.apis.create_acls import AclCreation
from minikafka.wire.apis.describe_acls import ANY, MATCH, AclBindingFilter

Number = TypeVar("Number", bound=IntEnum)

NO_AUTHORIZER = "no authorizer is configured on this broker: set authorizer.class.name"


def check_authorizer(authorizer: Authorizer | None) -> Authorizer:
    """Return ``authorizer``. Raise SECURITY_DISABLED when there is none."""
    if authorizer is None:
        raise BrokerError(ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER)
    return authorizer


def acl_of_creation(creation: AclCreation, *, enforces_prefixes: bool) -> tuple[Resource, Acl]:
    """Return the resource and the ACL.

    Raise INVALID_REQUEST, or UNSUPPORTED_VERSION for a prefix if not all brokers enforce those.
    """
    pattern = _known(PatternType, creation.resource_pattern_type, "resource pattern type")
    if pattern is PatternType.PREFIXED and not enforces_prefixes:
        raise BrokerError(
            ErrorCode.UNSUPPORTED_VERSION,
            "ACLs of prefixes require inter.broker.protocol.version of 2.0 or newer: older brokers do not "
            "enforce them",
        )
    kind = _known(ResourceType, creation.resource_type, "resource type")
    if not creation.resource_name:
        raise _invalid("the resource name is empty")
    if kind is ResourceType.CLUSTER and creation.resource_name != CLUSTER.name:
        raise _invalid(f"the cluster resource is named {CLUSTER.name}, not {creation.resource_name!r}")
    try:
        KafkaPrincipal.parse(creation.principal)
    except ValueError as error:
        raise _invalid(str(error)) from None
    if not creation.host:
        raise _invalid("the host is empty: expected an address, or * for all hosts")
    return Resource(kind, creation.resource_name, pattern), Acl(
        creation.principal,
        _known(Permission, creation.permission_type, "permission"),
        creation.host,
        _known(Operation, creation.operation, "operation"),
    )


def find_matching_acls(authorizer: Authorizer, fields: AclBindingFilter) -> list[tuple[Resource, Acl]]:
    """Return the ACLs that a filter matches, sorted. Raise INVALID_REQUEST for an invalid filter."""
    if fields.pattern_type_filter not in {ANY, MATCH, *PatternType}:
        raise _invalid(f"invalid pattern_type_filter={fields.pattern_type_filter}")
    wanted = AclFilter(
        resource_type=_known_or_any(ResourceType, fields.resource_type_filter, "resource type"),
        resource_name=fields.resource_name_filter,
        principal=fields.principal_filter,
        host=fields.host_filter,
        operation=_known_or_any(Operation, fields.operation, "operation"),
        permission=_known_or_any(Permission, fields.permission_type, "permission"),
        pattern=(
            None if fields.pattern_type_filter in (ANY, MATCH) else PatternType(fields.pattern_type_filter)
        ),
        match=fields.pattern_type_filter == MATCH,
    )
    return sorted(authorizer.matching_acls([wanted]))


def _known_or_any(kind: type[Number], number: int, what: str) -> Number | None:
    return None if number == ANY else _known(kind, number, what)


def _known(kind: type[Number], number: int, what: str) -> Number:
    try:
        return kind(number)
    except ValueError:
        known = ", ".join(f"{member.value} ({member.name})" for member in kind)
        raise _invalid(f"invalid {what} {number}: expected {known}") from None


def _invalid(message: str) -> BrokerError:
    return BrokerError(ErrorCode.INVALID_REQUEST, message)
