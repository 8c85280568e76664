"""The znodes of Kafka 0.10.1's SimpleAclAuthorizer: who may do what.

    /kafka-acl/TYPE/NAME                ResourceAcls; TYPE is Topic, Group or Cluster
    /kafka-acl-changes/acl_changes_N    AclChange, sequential: the text TYPE:NAME

A resource's znode is written under the condition of its version, and goes with its last rule; then the change
is told. Labels are read in any case, as the release reads them. ``from_json`` is as in ``paths``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

from minikafka.base.acls import Acl, Operation, Permission, Resource, ResourceType
from minikafka.base.errors import BrokerError, CoordinationError, ErrorCode
from minikafka.registry.node import Node, dump
from minikafka.registry.store import is_znode_name

ACLS = "/kafka-acl"
ACL_CHANGES = "/kafka-acl-changes"
ACL_CHANGE_PREFIX = "acl_changes_"

_Label = TypeVar("_Label", ResourceType, Operation, Permission)


def acl_path(resource: Resource) -> str:
    """Where the rules about ``resource`` stand. INVALID_REQUEST for a name that cannot be part of a path."""
    if not is_znode_name(resource.name):
        raise BrokerError(
            ErrorCode.INVALID_REQUEST, f"{resource.name!r} cannot be the name of a resource in ZooKeeper"
        )
    return f"{ACLS}/{resource.type.label}/{resource.name}"


def resource_type_of(label: str) -> ResourceType:
    """The type whose resources stand below ``ACLS/label``. CoordinationError when there is none."""
    return _labelled(ResourceType, label, f"{ACLS}/{label}")


@dataclass(frozen=True, slots=True)
class ResourceAcls:
    """All rules about one resource."""

    acls: frozenset[Acl] = frozenset()

    def to_json(self) -> bytes:
        """Bytes for ``acl_path(resource)``."""
        rules = [
            {
                "principal": acl.principal,
                "permissionType": acl.permission.label,
                "operation": acl.operation.label,
                "host": acl.host,
            }
            for acl in sorted(self.acls)
        ]
        return dump({"version": 1, "acls": rules})

    @classmethod
    def from_json(cls, data: bytes, path: str) -> ResourceAcls:
        """The rules in ``data``: none where there is no data."""
        if not data:
            return cls()
        node = Node(data, path)
        if node.integer("version") != 1:
            raise node.error("version", "1")
        return cls(frozenset(_acl(node, fields, path) for fields in node.objects("acls")))


@dataclass(frozen=True, slots=True)
class AclChange:
    """The news that there are other rules about a resource."""

    resource: Resource

    def to_json(self) -> bytes:
        """Bytes for a new znode under ``ACL_CHANGES``: a text, for once."""
        return str(self.resource).encode()

    @classmethod
    def from_json(cls, data: bytes, path: str) -> AclChange:
        """The news in ``data``."""
        label, separator, name = data.decode("utf-8", "replace").partition(":")
        if not separator or not name:
            raise CoordinationError(f"{path}: TYPE:NAME is wanted, this is {data[:200]!r}")
        return cls(Resource(_labelled(ResourceType, label, path), name))


def _acl(node: Node, fields: dict[str, object], path: str) -> Acl:
    texts = [fields.get(key) for key in ("principal", "permissionType", "host", "operation")]
    if not all(isinstance(text, str) and text for text in texts):
        raise node.error("acls", "made of objects with a principal, permissionType, operation and host")
    principal, permission, host, operation = map(str, texts)
    if ":" not in principal:
        raise node.error("acls", "about principals, as User:NAME,")
    return Acl(
        principal, _labelled(Permission, permission, path), host, _labelled(Operation, operation, path)
    )


def _labelled(kind: type[_Label], label: str, path: str) -> _Label:
    for member in kind:
        if member.label.lower() == label.lower():
            return member
    known = ", ".join(member.label for member in kind)
    raise CoordinationError(f"{path}: {label[:200]!r} is none of {known}")
