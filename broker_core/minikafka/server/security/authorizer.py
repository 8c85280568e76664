"""Whether somebody may do something, as Kafka's SimpleAclAuthorizer decides it: 0.10.1's, and 2.1's for the
operations that came later. Pure: an authorizer is a value, replaced as a whole when rules change, so that any
thread may ask it without a lock.

- Rules about a resource and rules about all of its type (``*``) hold together.
- A rule that denies goes before any that allows; without one that allows, nobody may.
- Whoever may read, write, delete or alter something may also describe it, and whoever may alter settings see
  them. Nothing follows from being denied: who may not describe may still read.
- Super users may do everything, whatever the rules say.
- Where there is no rule at all, nobody may, unless ``allow.everyone.if.no.acl.matching_acls``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from ipaddress import IPv6Address, ip_address

from minikafka.base.acls import (
    WILDCARD_HOST,
    WILDCARD_PRINCIPAL,
    WILDCARD_RESOURCE,
    Acl,
    AclFilter,
    Operation,
    Permission,
    Resource,
)
from minikafka.base.errors import ConfigError

DENY_ALL = frozenset({Acl(WILDCARD_PRINCIPAL, Permission.DENY, WILDCARD_HOST, Operation.ALL)})
"""In place of rules that cannot be read: one of them may have denied."""

_IMPLIED_BY = {
    Operation.DESCRIBE: (Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER),
    Operation.DESCRIBE_CONFIGS: (Operation.ALTER_CONFIGS,),
}
"""Operation -> those that bring it along when they are allowed."""


@dataclass(frozen=True, slots=True)
class Authorizer:
    """All rules of a cluster, and who stands above them."""

    super_users: frozenset[str] = frozenset()
    """Principals, ``TYPE:NAME``."""
    allow_everyone_if_no_acl_found: bool = False
    acls: Mapping[Resource, frozenset[Acl]] = field(default_factory=dict)
    """Resource -> its rules; none is empty."""

    def allows(self, principal: str, host: str, operation: Operation, resource: Resource) -> bool:
        """Return whether ``principal`` at ``host`` (``normalize_host``) may do ``operation`` there."""
        if principal in self.super_users:
            return True
        every = Resource(resource.type, WILDCARD_RESOURCE)
        acls = self.acls.get(resource, frozenset()) | self.acls.get(every, frozenset())
        if not acls:
            return self.allow_everyone_if_no_acl_found
        implied_by, allowed = _IMPLIED_BY.get(operation, ()), False
        for acl in acls:
            if acl.principal not in (principal, WILDCARD_PRINCIPAL) or acl.host not in (host, WILDCARD_HOST):
                continue
            meant = acl.operation in (operation, Operation.ALL)
            if acl.permission is Permission.DENY and meant:
                return False
            if acl.permission is Permission.ALLOW and (meant or acl.operation in implied_by):
                allowed = True
        return allowed

    def matching_acls(self, filters: Iterable[AclFilter]) -> Iterator[tuple[Resource, Acl]]:
        """The rules that one of ``filters`` finds, each once."""
        wanted = tuple(filters)
        for resource, acls in self.acls.items():
            for acl in acls:
                if any(one.matches(resource, acl) for one in wanted):
                    yield resource, acl

    def with_acls(self, resource: Resource, acls: frozenset[Acl]) -> Authorizer:
        """The authorizer with other rules about one resource; none: the resource is forgotten."""
        others = {known: rules for known, rules in self.acls.items() if known != resource}
        return replace(self, acls={**others, resource: acls} if acls else others)

    def with_all_acls(self, acls: Mapping[Resource, frozenset[Acl]]) -> Authorizer:
        """The authorizer with these rules and no others."""
        return replace(self, acls=dict(acls))


def parse_super_users(text: str) -> frozenset[str]:
    """The principals in the value of ``super.users``, between semicolons. ConfigError for what is none."""
    users = frozenset(part.strip() for part in text.split(";")) - {""}
    for user in users:
        if ":" not in user:
            raise ConfigError("super.users", user, "principals as User:NAME, with ';' between them")
    return users


def normalize_host(address: str) -> str:
    """An address as it stands in rules, which is as Java writes it: IPv6 in eight groups without leading
    zeros, an IPv4 address that came through an IPv6 socket as the former. What is no address stays as it is.
    """
    try:
        parsed = ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if not isinstance(parsed, IPv6Address):
        return str(parsed)
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return ":".join(f"{int(group, 16):x}" for group in parsed.exploded.split(":"))
