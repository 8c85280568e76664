"""The znodes in which Kafka 0.10.1's SimpleAclAuthorizer keeps ACLs.

    /kafka-acl/TYPE/NAME                ResourceAcls; TYPE is Topic, Group or Cluster
    /kafka-acl-changes/acl_changes_N    AclChange, sequential: the text TYPE:NAME

A resource's znode is written conditionally on its version and deleted with its last ACL; then a change
notification is created. Labels are read in any case, as the release reads them. ``from_json`` is as in
``paths``.
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
    """Return the path of the znode of the ACLs of ``resource``.

    Raises INVALID_REQUEST for a name that cannot be part of a path.
    """
    if not is_znode_name(resource.name):
        raise BrokerError(
            ErrorCode.INVALID_REQUEST, f"invalid resource name: {resource.name!r} cannot be a znode name"
        )
    return f"{ACLS}/{resource.type.label}/{resource.name}"


def resource_type_of(label: str) -> ResourceType:
    """Return the type of the resources below ``ACLS/label``.

    Raises CoordinationError for an unknown label.
    """
    return _labelled(ResourceType, label, f"{ACLS}/{label}")


@dataclass(frozen=True, slots=True)
class ResourceAcls:
    """The ACLs of one resource."""

    acls: frozenset[Acl] = frozenset()

    def to_json(self) -> bytes:
        """Return the data for ``acl_path(resource)``."""
        acls = [
            {
                "principal": acl.principal,
                "permissionType": acl.permission.label,
                "operation": acl.operation.label,
                "host": acl.host,
            }
            for acl in sorted(self.acls)
        ]
        return dump({"version": 1, "acls": acls})

    @classmethod
    def from_json(cls, data: bytes, path: str) -> ResourceAcls:
        """Parse the ACLs in ``data``; none if there is no data."""
        if not data:
            return cls()
        node = Node(data, path)
        if node.integer("version") != 1:
            raise node.error("version", "1")
        return cls(frozenset(_acl(node, fields, path) for fields in node.objects("acls")))


@dataclass(frozen=True, slots=True)
class AclChange:
    """The notification that the ACLs of a resource have changed."""

    resource: Resource

    def to_json(self) -> bytes:
        """Return the data for a new znode under ``ACL_CHANGES``: plain text, not JSON."""
        return str(self.resource).encode()

    @classmethod
    def from_json(cls, data: bytes, path: str) -> AclChange:
        """Parse the notification in ``data``."""
        label, separator, name = data.decode("utf-8", "replace").partition(":")
        if not separator or not name:
            raise CoordinationError(f"{path}: expected TYPE:NAME, got {data[:200]!r}")
        return cls(Resource(_labelled(ResourceType, label, path), name))


def _acl(node: Node, fields: dict[str, object], path: str) -> Acl:
    texts = [fields.get(key) for key in ("principal", "permissionType", "host", "operation")]
    if not all(isinstance(text, str) and text for text in texts):
        raise node.error("acls", "a list of objects with principal, permissionType, operation and host")
    principal, permission, host, operation = map(str, texts)
    if ":" not in principal:
        raise node.error("acls", "a list of ACLs whose principals are TYPE:NAME, such as User:alice")
    return Acl(
        principal, _labelled(Permission, permission, path), host, _labelled(Operation, operation, path)
    )


def _labelled(kind: type[_Label], label: str, path: str) -> _Label:
    for member in kind:
        if member.label.lower() == label.lower():
            return member
    known = ", ".join(member.label for member in kind)
    raise CoordinationError(f"{path}: unknown name {label[:200]!r}; expected one of {known}")
