"""The authorizer: SimpleAclAuthorizer of Kafka 0.10.1, and for later operations AclAuthorizer of Kafka 3.9.

Pure: an authorizer is an immutable value that is replaced as a whole when ACLs change, so any thread may ask
it without a lock.

- ACLs of a resource, of prefixes of its name, and of all resources of its type (``*``) apply together.
- A DENY takes precedence over any ALLOW; without an ALLOW the operation is denied.
- READ, WRITE, DELETE and ALTER imply DESCRIBE; ALTER_CONFIGS implies DESCRIBE_CONFIGS. A DENY implies
  nothing: a principal that is denied DESCRIBE may still READ.
- Super users may do everything, whatever the ACLs say.
- A resource without any ACL is denied to all, unless ``allow.everyone.if.no.acl.found``.
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
    PatternType,
    Permission,
    Resource,
    ResourceType,
)
from minikafka.base.errors import ConfigError

DENY_ALL = frozenset({Acl(WILDCARD_PRINCIPAL, Permission.DENY, WILDCARD_HOST, Operation.ALL)})
"""Used in place of ACLs that cannot be read, since one of them may be a DENY."""

_IMPLIED_BY = {
    Operation.DESCRIBE: (Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER),
    Operation.DESCRIBE_CONFIGS: (Operation.ALTER_CONFIGS,),
}
"""Operation -> the operations that imply it when they are allowed."""


@dataclass(frozen=True, slots=True)
class Authorizer:
    """All ACLs of a cluster, and its super users."""

    super_users: frozenset[str] = frozenset()
    """Principals, ``TYPE:NAME``."""
    allow_everyone_if_no_acl_found: bool = False
    acls: Mapping[Resource, frozenset[Acl]] = field(default_factory=dict)
    """Resource -> its ACLs, never empty."""
    _prefix_lengths: frozenset[tuple[ResourceType, int]] = field(init=False, repr=False, compare=False)
    """The lengths of the prefixes that have ACLs, to look up those of a name without a search."""

    def __post_init__(self) -> None:
        lengths = frozenset(
            (resource.type, len(resource.name))
            for resource in self.acls
            if resource.pattern is PatternType.PREFIXED
        )
        object.__setattr__(self, "_prefix_lengths", lengths)

    def allows(self, principal: str, host: str, operation: Operation, resource: Resource) -> bool:
        """Return True if ``principal`` at ``host`` (``normalize_host``) may do ``operation`` there."""
        if principal in self.super_users:
            return True
        acls = self._applicable(resource)
        if not acls:
            return self.allow_everyone_if_no_acl_found
        implied_by, allowed = _IMPLIED_BY.get(operation, ()), False
        for acl in acls:
            if not _is_about(acl, principal, host):
                continue
            meant = acl.operation in (operation, Operation.ALL)
            if acl.permission is Permission.DENY and meant:
                return False
            if acl.permission is Permission.ALLOW and (meant or acl.operation in implied_by):
                allowed = True
        return allowed

    def _applicable(self, resource: Resource) -> frozenset[Acl]:
        """Return the ACLs that hold for a resource; for a prefix, those that hold for all of its names."""
        every = Resource(resource.type, WILDCARD_RESOURCE)
        acls = self.acls.get(resource, frozenset()) | self.acls.get(every, frozenset())
        for kind, length in self._prefix_lengths:
            if kind is resource.type and length <= len(resource.name):
                prefix = Resource(kind, resource.name[:length], PatternType.PREFIXED)
                acls |= self.acls.get(prefix, frozenset())
        return acls

    def allows_on_any(self, principal: str, host: str, operation: Operation, kind: ResourceType) -> bool:
        """Return True if ``principal`` may do ``operation`` on a resource of ``kind``, whichever (KIP-679).

        If everyone may use resources without ACLs, a resource without any is assumed, unless an ACL denies
        the operation on all resources.
        """
        if principal in self.super_users:
            return True
        if self.allow_everyone_if_no_acl_found:
            every = self.acls.get(Resource(kind, WILDCARD_RESOURCE), frozenset())
            return not any(
                acl.permission is Permission.DENY
                and _is_about(acl, principal, host)
                and acl.operation in (operation, Operation.ALL)
                for acl in every
            )
        return any(
            self.allows(principal, host, operation, resource)
            for resource in self.acls
            if resource.type is kind
        )

    def matching_acls(self, filters: Iterable[AclFilter]) -> Iterator[tuple[Resource, Acl]]:
        """Yield the ACLs that match any of ``filters``, each once."""
        wanted = tuple(filters)
        for resource, acls in self.acls.items():
            for acl in acls:
                if any(acl_filter.matches(resource, acl) for acl_filter in wanted):
                    yield resource, acl

    def with_acls(self, resource: Resource, acls: frozenset[Acl]) -> Authorizer:
        """Return an authorizer with ``acls`` for ``resource``; an empty set removes the resource."""
        others = {known: rules for known, rules in self.acls.items() if known != resource}
        return replace(self, acls={**others, resource: acls} if acls else others)

    def with_all_acls(self, acls: Mapping[Resource, frozenset[Acl]]) -> Authorizer:
        """Return an authorizer with exactly these ACLs."""
        return replace(self, acls=dict(acls))


def _is_about(acl: Acl, principal: str, host: str) -> bool:
    return acl.principal in (principal, WILDCARD_PRINCIPAL) and acl.host in (host, WILDCARD_HOST)


def parse_super_users(text: str) -> frozenset[str]:
    """Parse ``super.users``: principals separated by semicolons. Raises ConfigError."""
    users = frozenset(part.strip() for part in text.split(";")) - {""}
    for user in users:
        if ":" not in user:
            raise ConfigError("super.users", user, "must be principals as User:NAME, separated by ';'")
    return users


def normalize_host(address: str) -> str:
    """Return ``address`` as ACLs spell it, which is Java's form.

    IPv6 has eight groups without leading zeros; an IPv4-mapped IPv6 address becomes IPv4. Text that is no
    address is returned unchanged.
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
