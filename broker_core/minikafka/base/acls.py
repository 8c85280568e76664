"""Who may do what: the words that the protocol, ZooKeeper and the broker's decisions share.

The numbers are the protocol's (2.1's), the labels stand in ZooKeeper. 0.10.1 knows the resources TOPIC, GROUP
and CLUSTER, and the operations up to CLUSTER_ACTION; its authorizer fails on a label that it does not know.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

WILDCARD_PRINCIPAL = "User:*"
ANONYMOUS = "User:ANONYMOUS"
"""Who has not said who it is, as nobody does on a plain-text listener."""
WILDCARD_HOST = "*"
WILDCARD_RESOURCE = "*"
"""The name of the resource that stands for all of its type."""


class _Labelled(IntEnum):
    @property
    def label(self) -> str:
        """What it is called in ZooKeeper: ``ClusterAction``."""
        return "".join(map(str.capitalize, self.name.split("_")))


class ResourceType(_Labelled):
    """What a permission is about."""

    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6


class Operation(_Labelled):
    """What somebody does."""

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


class Permission(_Labelled):
    """Whether they may. DENY goes before ALLOW."""

    DENY = 2
    ALLOW = 3


@dataclass(frozen=True, slots=True, order=True)
class Resource:
    """One topic, group or cluster, or with the name ``WILDCARD_RESOURCE`` all of a type."""

    type: ResourceType
    name: str

    def __str__(self) -> str:
        return f"{self.type.label}:{self.name}"


CLUSTER = Resource(ResourceType.CLUSTER, "kafka-cluster")


@dataclass(frozen=True, slots=True, order=True)
class Acl:
    """One rule about a resource."""

    principal: str
    """``TYPE:NAME``; ``WILDCARD_PRINCIPAL``."""
    permission: Permission
    host: str
    """An address as Java writes it; ``WILDCARD_HOST``."""
    operation: Operation

    def __str__(self) -> str:
        verb = f"{self.permission.label.lower()} {self.operation.label}"
        return f"{self.principal}: {verb} from {self.host}"


@dataclass(frozen=True, slots=True)
class AclFilter:
    """Rules that are asked for, by what they say: None asks for all. This is equality: a filter for READ does
    not find ALL.
    """

    resource_type: ResourceType | None = None
    resource_name: str | None = None
    principal: str | None = None
    host: str | None = None
    operation: Operation | None = None
    permission: Permission | None = None
    match_wildcard: bool = False
    """Whether ``resource_name`` also finds rules about all resources, which hold for that one too (MATCH)."""

    def matches(self, resource: Resource, acl: Acl) -> bool:
        """Whether a rule is among those."""
        is_wildcard = self.match_wildcard and resource.name == WILDCARD_RESOURCE
        return (
            self.resource_type in (resource.type, None)
            and (is_wildcard or self.resource_name in (resource.name, None))
            and self.principal in (acl.principal, None)
            and self.host in (acl.host, None)
            and self.operation in (acl.operation, None)
            and self.permission in (acl.permission, None)
        )
