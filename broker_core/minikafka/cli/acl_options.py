"""From the options of ``minikafka acl`` to rules: checked before anything is asked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from ipaddress import ip_address

from minikafka.base.acls import CLUSTER, WILDCARD_HOST, Acl, Operation, Permission, Resource, ResourceType
from minikafka.base.errors import ConfigError
from minikafka.base.ids import check_topic_name

_ALL = Operation.ALL
_VALID_OPERATIONS = {
    ResourceType.TOPIC: {
        *(_ALL, Operation.READ, Operation.WRITE, Operation.CREATE, Operation.DELETE, Operation.ALTER),
        *(Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS),
    },
    ResourceType.GROUP: {_ALL, Operation.READ, Operation.DESCRIBE, Operation.DELETE},
    ResourceType.CLUSTER: {
        *(_ALL, Operation.CREATE, Operation.CLUSTER_ACTION, Operation.DESCRIBE, Operation.ALTER),
        *(Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS, Operation.IDEMPOTENT_WRITE),
    },
}
"""What can be done to each: 2.1's ``AclCommand.ResourceTypeToValidOperations``."""

Rule = tuple[Resource, Acl]


@dataclass(frozen=True, slots=True)
class Role:
    """What somebody is to be able to do, in one word."""

    producer: bool = False
    consumer: bool = False
    idempotent: bool = False

    def __bool__(self) -> bool:
        return self.producer or self.consumer or self.idempotent


@dataclass(frozen=True, slots=True)
class AclSelection:
    """Who, from where, and what. An empty tuple stands for what was not given."""

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
        """Check the texts. Raises ConfigError under the option's name."""
        principals: list[tuple[str, Permission]] = []
        for option, names, hosts, permission in (
            ("allow", allowed, allow_hosts, Permission.ALLOW),
            ("deny", denied, deny_hosts, Permission.DENY),
        ):
            if hosts and not names:
                raise ConfigError(f"--{option}-host", hosts[0], f"goes with --{option}-principal")
            checked = (parse_principal(name, f"--{option}-principal") for name in names or ())
            principals += [(name, permission) for name in checked]
        return cls(
            tuple(principals),
            tuple(parse_host(host, "--allow-host") for host in allow_hosts or ()),
            tuple(parse_host(host, "--deny-host") for host in deny_hosts or ()),
            tuple(map(parse_operation, operations or ())),
        )

    def acls(self, operations: Iterable[Operation]) -> list[Acl]:
        """Rules of these operations for all who are named."""
        return [
            Acl(principal, permission, host, operation)
            for principal, permission in self.principals
            for host in self._hosts(permission) or (WILDCARD_HOST,)
            for operation in operations
        ]

    def means(self, acl: Acl) -> bool:
        """Whether a rule says what was given; what was not given may be anything."""
        if self.operations and acl.operation not in self.operations:
            return False
        if not self.principals:
            return True
        hosts = self._hosts(acl.permission)
        return (acl.principal, acl.permission) in self.principals and (not hosts or acl.host in hosts)

    def _hosts(self, permission: Permission) -> tuple[str, ...]:
        return self.allow_hosts if permission is Permission.ALLOW else self.deny_hosts


def parse_resources(
    topics: Sequence[str] | None, groups: Sequence[str] | None, *, cluster: bool, required: bool = True
) -> list[Resource]:
    """What is named, each once. ConfigError for nothing where something is ``required``."""
    found = [Resource(ResourceType.TOPIC, _topic(name.strip())) for name in topics or ()]
    for name in groups or ():
        if not name.strip() or "/" in name:
            raise ConfigError("--group", name, "a group's name, without '/'; '*' for all")
        found.append(Resource(ResourceType.GROUP, name.strip()))
    found += [CLUSTER] * cluster
    if required and not found:
        raise ConfigError("--topic", None, "say what it is about: --topic T, --group G or --cluster")
    return list(dict.fromkeys(found))


def build_rules(resources: Sequence[Resource], asked: AclSelection, role: Role) -> list[Rule]:
    """The rules that the options stand for, each once. ConfigError where they do not go together."""
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
        raise ConfigError("--idempotent", True, "goes with --producer")
    if asked.operations:
        raise ConfigError(option, True, "says which operations: leave --operation out")
    if any(permission is Permission.DENY for _, permission in asked.principals):
        raise ConfigError(option, True, "says what somebody may: leave --deny-principal out")
    if ResourceType.TOPIC not in kinds:
        raise ConfigError(option, True, "of which topic? give --topic T")
    if role.consumer and ResourceType.GROUP not in kinds:
        raise ConfigError("--consumer", True, "in which group? give --group G")
    if ResourceType.CLUSTER in kinds or (ResourceType.GROUP in kinds and not role.consumer):
        raise ConfigError(option, True, "is about topics (and a consumer's group), and names no more")
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
    """Which of the resources' rules the options name; None for all of them. Raises ConfigError."""
    if role:
        if not asked.principals:
            raise ConfigError("--allow-principal", None, "say whose rules as a producer or consumer")
        exact = frozenset(build_rules(resources, asked, role))
        return lambda rule: rule in exact
    if not asked.principals and not asked.operations:
        return None
    return lambda rule: asked.means(rule[1])


def parse_principal(text: str, option: str) -> str:
    """``User:NAME``. Raises ConfigError."""
    kind, colon, name = text.strip().partition(":")
    if not (kind and colon and name):
        raise ConfigError(option, text, "must be User:NAME; User:* is everybody")
    return text.strip()


def parse_host(text: str, option: str) -> str:
    """An address as rules have it. ConfigError for a name: brokers see addresses only."""
    from minikafka.server.security.authorizer import normalize_host

    if text.strip() == WILDCARD_HOST:
        return WILDCARD_HOST
    try:
        ip_address(text.strip())
    except ValueError:
        raise ConfigError(option, text, "an IP address, or * for all; brokers know no names") from None
    return normalize_host(text.strip())


def parse_operation(text: str) -> Operation:
    """``Read``, in any case, also ``CLUSTER_ACTION``. Raises ConfigError."""
    wanted = text.strip().replace("_", "").replace("-", "").lower()
    for one in Operation:
        if one.label.lower() == wanted:
            return one
    known = ", ".join(one.label for one in Operation)
    raise ConfigError("--operation", text, f"one of {known}")


def _topic(name: str) -> str:
    if name != "*":
        check_topic_name(name)
    return name


def _check_operations(resource: Resource, operations: Iterable[Operation]) -> None:
    fitting = _VALID_OPERATIONS[resource.type]
    for operation in operations:
        if operation not in fitting:
            known = ", ".join(one.label for one in sorted(fitting))
            kind = resource.type.label.lower()
            raise ConfigError("--operation", operation.label, f"nobody does that to a {kind}: {known}")
