"""Parses the options of ``minikafka acl`` into rules, and checks them before any request."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from ipaddress import ip_address

from minikafka.base.acls import (
    CLUSTER,
    CLUSTER_OPERATIONS,
    GROUP_OPERATIONS,
    TOPIC_OPERATIONS,
    WILDCARD_HOST,
    WILDCARD_RESOURCE,
    Acl,
    Operation,
    PatternType,
    Permission,
    Resource,
    ResourceType,
)
from minikafka.base.errors import ConfigError
from minikafka.base.ids import check_topic_name
from minikafka.security.principals import KafkaPrincipal

_ALL = Operation.ALL
_VALID_OPERATIONS = {
    ResourceType.TOPIC: {_ALL, *TOPIC_OPERATIONS},
    ResourceType.GROUP: {_ALL, *GROUP_OPERATIONS},
    ResourceType.CLUSTER: {_ALL, *CLUSTER_OPERATIONS},
}
"""The operations that a rule about a resource of each type may name."""

Rule = tuple[Resource, Acl]


class ResourcePattern(str, Enum):
    """The values of ``--resource-pattern-type``."""

    LITERAL = "literal"
    PREFIXED = "prefixed"


def parse_pattern(text: str | ResourcePattern) -> ResourcePattern:
    """Parse ``--resource-pattern-type``. Raise ConfigError."""
    if text not in list(ResourcePattern):
        raise ConfigError("--resource-pattern-type", text, "must be literal or prefixed")
    return ResourcePattern(text)


@dataclass(frozen=True, slots=True)
class Role:
    """The options that stand for the operations of a producer or consumer."""

    producer: bool = False
    consumer: bool = False
    idempotent: bool = False

    def __bool__(self) -> bool:
        return self.producer or self.consumer or self.idempotent


@dataclass(frozen=True, slots=True)
class AclSelection:
    """The principals, hosts and operations that options name. An empty tuple for options that are not set."""

    principals: tuple[tuple[str, Permission], ...]
    allow_hosts: tuple[str, ...]
    deny_hosts: tuple[str, ...]
    operations: tuple[Operation, ...]

    @classmethod
    def of(
        cls,
        allowed: Sequence[str] | None,
        denied: Sequence[str] | None,
        allow_hosts: Sequence[str] | None,
        deny_hosts: Sequence[str] | None,
        operations: Sequence[str] | None,
    ) -> AclSelection:
        """Parse the texts. Raise ConfigError with the option's name."""
        principals: list[tuple[str, Permission]] = []
        for option, names, hosts, permission in (
            ("allow", allowed, allow_hosts, Permission.ALLOW),
            ("deny", denied, deny_hosts, Permission.DENY),
        ):
            if hosts and not names:
                raise ConfigError(f"--{option}-host", hosts[0], f"requires --{option}-principal")
            checked = (parse_principal(name, f"--{option}-principal") for name in names or ())
            principals += [(name, permission) for name in checked]
        return cls(
            tuple(principals),
            tuple(parse_host(host, "--allow-host") for host in allow_hosts or ()),
            tuple(parse_host(host, "--deny-host") for host in deny_hosts or ()),
            tuple(map(parse_operation, operations or ())),
        )

    def acls(self, operations: Iterable[Operation]) -> list[Acl]:
        """Return the rules of these operations for all principals."""
        return [
            Acl(principal, permission, host, operation)
            for principal, permission in self.principals
            for host in self._hosts(permission) or (WILDCARD_HOST,)
            for operation in operations
        ]

    def matches(self, acl: Acl) -> bool:
        """Return True if a rule matches the options; options that are not set match anything."""
        if self.operations and acl.operation not in self.operations:
            return False
        if not self.principals:
            return True
        hosts = self._hosts(acl.permission)
        return (acl.principal, acl.permission) in self.principals and (not hosts or acl.host in hosts)

    def _hosts(self, permission: Permission) -> tuple[str, ...]:
        return self.allow_hosts if permission is Permission.ALLOW else self.deny_hosts


def parse_resources(
    topics: Sequence[str] | None,
    groups: Sequence[str] | None,
    names: ResourcePattern,
    *,
    cluster: bool,
    required: bool = True,
) -> list[Resource]:
    """Return the named resources, without duplicates. Raise ConfigError for none if ``required``."""
    pattern = PatternType[names.name]
    found = [Resource(ResourceType.TOPIC, _topic(name.strip()), pattern) for name in topics or ()]
    for name in groups or ():
        if not name.strip() or "/" in name:
            raise ConfigError("--group", name, "must be a group's name without '/', or '*' for all")
        found.append(Resource(ResourceType.GROUP, name.strip(), pattern))
    if pattern is PatternType.PREFIXED and (cluster or any(one.name == WILDCARD_RESOURCE for one in found)):
        allowed = f"requires prefixes of names, not --cluster or {WILDCARD_RESOURCE!r}"
        raise ConfigError("--resource-pattern-type", names.value, allowed)
    found += [CLUSTER] * cluster
    if required and not found:
        raise ConfigError("--topic", None, "required; or set --group G or --cluster")
    return list(dict.fromkeys(found))


def build_rules(resources: Sequence[Resource], asked: AclSelection, role: Role) -> list[Rule]:
    """Return the rules that the options mean, without duplicates. Raise ConfigError if they conflict."""
    if role:
        rules = _role_rules(resources, asked, role)
    else:
        operations = asked.operations or (Operation.ALL,)
        for resource in resources:
            _check_operations(resource, operations)
        rules = [(resource, acl) for resource in resources for acl in asked.acls(operations)]
    return list(dict.fromkeys(rules))


def _role_rules(resources: Sequence[Resource], asked: AclSelection, role: Role) -> list[Rule]:
    kinds = {resource.type for resource in resources}
    option = "--producer" if role.producer else "--consumer"
    if role.idempotent and not role.producer:
        raise ConfigError("--idempotent", True, "requires --producer")
    if asked.operations:
        raise ConfigError(option, True, "cannot be combined with --operation")
    if any(permission is Permission.DENY for _, permission in asked.principals):
        raise ConfigError(option, True, "cannot be combined with --deny-principal")
    if ResourceType.TOPIC not in kinds:
        raise ConfigError(option, True, "requires --topic T")
    if role.consumer and ResourceType.GROUP not in kinds:
        raise ConfigError("--consumer", True, "requires --group G")
    if ResourceType.CLUSTER in kinds or (ResourceType.GROUP in kinds and not role.consumer):
        other = "--cluster" if ResourceType.CLUSTER in kinds else "--group"
        raise ConfigError(option, True, f"cannot be combined with {other}")
    rules: list[Rule] = []
    for resource in resources:
        operations: list[Operation] = []
        if resource.type is ResourceType.TOPIC:
            operations = [Operation.WRITE] * role.producer + [Operation.READ] * role.consumer
            operations.append(Operation.DESCRIBE)
        elif role.consumer:
            operations = [Operation.READ]
        rules += [(resource, acl) for acl in asked.acls(operations)]
    if role.producer:
        of_cluster = [Operation.CREATE] + [Operation.IDEMPOTENT_WRITE] * role.idempotent
        rules += [(CLUSTER, acl) for acl in asked.acls(of_cluster)]
    return rules


def rule_filter(
    resources: Sequence[Resource], asked: AclSelection, role: Role
) -> Callable[[Rule], bool] | None:
    """Return a predicate for the rules that the options name; None for all of them. Raise ConfigError."""
    if role:
        if not asked.principals:
            raise ConfigError("--allow-principal", None, "required with --producer and --consumer")
        exact = frozenset(build_rules(resources, asked, role))
        return lambda rule: rule in exact
    if not asked.principals and not asked.operations:
        return None
    return lambda rule: asked.matches(rule[1])


def parse_principal(text: str, option: str) -> str:
    """Parse ``User:NAME``. Raise ConfigError."""
    try:
        return str(KafkaPrincipal.parse(text.strip()))
    except ValueError:
        raise ConfigError(option, text, "must be User:NAME, or User:* for all") from None


def parse_host(text: str, option: str) -> str:
    """Parse an address into the form of rules. Raise ConfigError for a name: brokers see only addresses."""
    from minikafka.security.authorizer import normalize_host

    if text.strip() == WILDCARD_HOST:
        return WILDCARD_HOST
    try:
        ip_address(text.strip())
    except ValueError:
        allowed = "must be an IP address, or * for all; brokers do not resolve names"
        raise ConfigError(option, text, allowed) from None
    return normalize_host(text.strip())


def parse_operation(text: str) -> Operation:
    """Parse ``Read``, in any case, also ``CLUSTER_ACTION``. Raise ConfigError."""
    wanted = text.strip().replace("_", "").replace("-", "").lower()
    for operation in Operation:
        if operation.label.lower() == wanted:
            return operation
    known = ", ".join(operation.label for operation in Operation)
    raise ConfigError("--operation", text, f"must be one of {known}")


def _topic(name: str) -> str:
    if name != "*":
        check_topic_name(name)
    return name


def _check_operations(resource: Resource, operations: Iterable[Operation]) -> None:
    fitting = _VALID_OPERATIONS[resource.type]
    for operation in operations:
        if operation not in fitting:
            known = ", ".join(known_operation.label for known_operation in sorted(fitting))
            kind = resource.type.label.lower()
            raise ConfigError("--operation", operation.label, f"must be one of {known} for a {kind}")
