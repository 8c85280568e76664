"""Access control lists: the resources, operations and permissions of the protocol, ZooKeeper and brokers.

The numbers are the protocol's (3.9), the labels are those of the znodes. 0.10.1 knows the resources TOPIC,
GROUP and CLUSTER, and the operations up to CLUSTER_ACTION; its authorizer fails on an unknown label.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum

WILDCARD_PRINCIPAL = "User:*"
ANONYMOUS = "User:ANONYMOUS"
"""The principal of an unauthenticated client: every client of a plain-text listener."""
WILDCARD_HOST = "*"
WILDCARD_RESOURCE = "*"
"""The resource name that matches all resources of a type."""


class _Labelled(IntEnum):
    @property
    def label(self) -> str:
        """The name in ZooKeeper, such as ``ClusterAction``."""
        return "".join(map(str.capitalize, self.name.split("_")))


class ResourceType(_Labelled):
    """The type of a resource that an ACL protects."""

    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(IntEnum):
    """The names that a resource of an ACL stands for."""

    LITERAL = 3
    """The name itself."""
    PREFIXED = 4
    """All names that begin with it (KIP-290, since Kafka 2.0)."""


class Operation(_Labelled):
    """An operation on a resource."""

    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14


CLUSTER_OPERATIONS = (
    Operation.CREATE,
    Operation.ALTER,
    Operation.DESCRIBE,
    Operation.CLUSTER_ACTION,
    Operation.DESCRIBE_CONFIGS,
    Operation.ALTER_CONFIGS,
    Operation.IDEMPOTENT_WRITE,
)
"""The operations that there are on the cluster."""
GROUP_OPERATIONS = (Operation.READ, Operation.DELETE, Operation.DESCRIBE)
"""The operations that there are on a group."""
TOPIC_OPERATIONS = (
    Operation.READ,
    Operation.WRITE,
    Operation.CREATE,
    Operation.DELETE,
    Operation.ALTER,
    Operation.DESCRIBE,
    Operation.DESCRIBE_CONFIGS,
    Operation.ALTER_CONFIGS,
)
"""The operations that there are on a topic."""


def operation_bits(operations: Iterable[Operation]) -> int:
    """Return a set of operations as the protocol has it: one bit for each, at its number."""
    return sum(1 << operation for operation in operations)


class Permission(_Labelled):
    """The effect of an ACL. DENY has precedence over ALLOW."""

    DENY = 2
    ALLOW = 3


@dataclass(frozen=True, slots=True, order=True)
class Resource:
    """A topic, group or cluster, or with the name ``WILDCARD_RESOURCE`` all of a type."""

    type: ResourceType
    name: str
    pattern: PatternType = PatternType.LITERAL

    def __str__(self) -> str:
        prefixed = " (prefixed)" if self.pattern is PatternType.PREFIXED else ""
        return f"{self.type.label}:{self.name}{prefixed}"

    def covers(self, name: str) -> bool:
        """Return True if ACLs of this resource hold for the resource ``name`` of its type."""
        if self.pattern is PatternType.PREFIXED:
            return name.startswith(self.name)
        return self.name in (name, WILDCARD_RESOURCE)


CLUSTER = Resource(ResourceType.CLUSTER, "kafka-cluster")


@dataclass(frozen=True, slots=True, order=True)
class Acl:
    """A rule about a resource."""

    principal: str
    """``TYPE:NAME``, or ``WILDCARD_PRINCIPAL``."""
    permission: Permission
    host: str
    """An address in Java's notation, or ``WILDCARD_HOST``."""
    operation: Operation

    def __str__(self) -> str:
        verb = f"{self.permission.label.lower()} {self.operation.label}"
        return f"{self.principal}: {verb} from {self.host}"


@dataclass(frozen=True, slots=True)
class AclFilter:
    """A filter for ACLs. A field of None matches everything; any other matches equal values only, so a filter
    for READ does not find ALL.
    """

    resource_type: ResourceType | None = None
    resource_name: str | None = None
    principal: str | None = None
    host: str | None = None
    operation: Operation | None = None
    permission: Permission | None = None
    pattern: PatternType | None = None
    match: bool = False
    """True if ``resource_name`` finds all rules that hold for it: also those about all resources, and about
    prefixes of it (MATCH)."""

    @classmethod
    def of(cls, resource: Resource) -> AclFilter:
        """Return the filter for the ACLs of just that resource."""
        return cls(resource.type, resource.name, pattern=resource.pattern)

    def matches(self, resource: Resource, acl: Acl) -> bool:
        """Return True if the rule matches the filter."""
        name = self.resource_name
        return (
            self.resource_type in (resource.type, None)
            and self.pattern in (resource.pattern, None)
            and (name in (resource.name, None) or (self.match and resource.covers(str(name))))
            and self.principal in (acl.principal, None)
            and self.host in (acl.host, None)
            and self.operation in (acl.operation, None)
            and self.permission in (acl.permission, None)
        )
