"""The ACLs in ZooKeeper, read and changed as 0.10.1's SimpleAclAuthorizer does it.

A change is written conditionally on the znode's version, and computed again if another process wrote
meanwhile. The znode is deleted with its last ACL. Then all brokers are notified, even if nothing had to be
changed: an earlier call may have failed between the write and the notification. So every call can be
repeated. Labels are read in any case, as the release reads them.

ACLs of prefixes have a tree and notifications of their own, as in 2.0: 0.10.1 would take them for ACLs of
one name.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from minikafka.base.acls import Acl, Operation, PatternType, Permission, Resource, ResourceType
from minikafka.base.errors import BadVersion, BrokerError, CoordinationError, ErrorCode, NodeExists, NoNode
from minikafka.registry.node import Node, dump, invalid
from minikafka.registry.store import Store, is_znode_name
from minikafka.registry.znodes import Kind, Znodes, children, read_or_raise

ACLS = "/kafka-acl"
ACL_CHANGES = "/kafka-acl-changes"
PREFIXED_ACLS = "/kafka-acl-extended/prefixed"
EXTENDED_ACL_CHANGES = "/kafka-acl-extended-changes"
ACL_CHANGE_PREFIX = "acl_changes_"
_ROOTS = {PatternType.LITERAL: ACLS, PatternType.PREFIXED: PREFIXED_ACLS}

_Label = TypeVar("_Label", ResourceType, Operation, Permission)

_ATTEMPTS_MAX = 100
"""An attempt fails only if another process has written successfully meanwhile."""

Acls = frozenset[Acl]


def acl_path(resource: Resource) -> str:
    """Return the path of the znode of the ACLs of ``resource``.

    Raises INVALID_REQUEST for a name that cannot be part of a path.
    """
    if not is_znode_name(resource.name):
        raise BrokerError(
            ErrorCode.INVALID_REQUEST, f"invalid resource name: {resource.name!r} cannot be a znode name"
        )
    return f"{_ROOTS[resource.pattern]}/{resource.type.label}/{resource.name}"


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
    """The notification that the ACLs of a resource have changed.

    0.10.1 and 3.9 read types in any case. 3.9 writes all in capitals, and types of two words with ``_``.
    """

    resource: Resource

    def to_text(self) -> bytes:
        """Return the data for a new znode under ``ACL_CHANGES``."""
        kind = self.resource.type
        return f"{kind.name if '_' in kind.name else kind.label}:{self.resource.name}".encode()

    @classmethod
    def from_text(cls, data: bytes, path: str) -> AclChange:
        """Parse the data of a znode under ``ACL_CHANGES``."""
        label, _, name = data.decode("utf-8", "replace").partition(":")
        kind = _notified_type(label)
        if kind is None or not is_znode_name(name):
            raise invalid(path, "expected TYPE:NAME, such as Topic:orders", data)
        return cls(Resource(kind, name))

    def to_json(self) -> bytes:
        """Return the data for a new znode under ``EXTENDED_ACL_CHANGES``."""
        resource = self.resource
        return dump(
            {
                "version": 1,
                "resourceType": resource.type.name,
                "name": resource.name,
                "patternType": resource.pattern.name,
            }
        )

    @classmethod
    def from_json(cls, data: bytes, path: str) -> AclChange:
        """Parse the data of a znode under ``EXTENDED_ACL_CHANGES``."""
        node = Node(data, path)
        if node.integer("version") != 1:
            raise node.error("version", "1")
        kind, name = _notified_type(node.text("resourceType")), node.text("name")
        if kind is None or not is_znode_name(name):
            raise node.error("resourceType", "a type of resources, with a name that can be one of a znode")
        if node.text("patternType") != PatternType.PREFIXED.name:
            raise node.error("patternType", PatternType.PREFIXED.name)
        return cls(Resource(kind, name, PatternType.PREFIXED))


def _notified_type(label: str) -> ResourceType | None:
    wanted = label.replace("_", "").lower()
    return next((kind for kind in ResourceType if kind.label.lower() == wanted), None)


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


RESOURCE_ACLS = Kind(
    f"{ACLS}/TYPE/NAME",
    "the ACLs of a resource; TYPE is Topic, Group or Cluster",
    "0.10.1 (version 1)",
    ResourceAcls.from_json,
    ResourceAcls.to_json,
    "only super users may use the resource until its ACLs are removed with `minikafka acl remove`, or the "
    f"znode is fixed and a change is notified in {ACL_CHANGES}",
)
"""It is not taken for absent: a resource whose ACLs are unknown is closed (``StoredAcls.unreadable``)."""

PREFIX_ACLS = Kind(
    f"{PREFIXED_ACLS}/TYPE/NAME",
    "the ACLs of the resources whose names begin with NAME",
    "2.0 (version 1)",
    ResourceAcls.from_json,
    ResourceAcls.to_json,
    f"as for {RESOURCE_ACLS.path}; changes are notified in {EXTENDED_ACL_CHANGES}",
)

_KINDS = {PatternType.LITERAL: RESOURCE_ACLS, PatternType.PREFIXED: PREFIX_ACLS}

ACL_CHANGE = Kind(
    f"{ACL_CHANGES}/{ACL_CHANGE_PREFIX}N",
    "the resource whose ACLs have changed, as TYPE:NAME; sequential",
    "0.10.1",
    AclChange.from_text,
    AclChange.to_text,
    "the notification is passed over; change the ACLs again if brokers do not use them",
)

EXTENDED_ACL_CHANGE = Kind(
    f"{EXTENDED_ACL_CHANGES}/{ACL_CHANGE_PREFIX}N",
    "the prefix whose ACLs have changed; sequential",
    "2.0 (version 1)",
    AclChange.from_json,
    AclChange.to_json,
    ACL_CHANGE.remedy,
)


@dataclass(frozen=True, slots=True)
class StoredAcls:
    """All ACLs of a cluster."""

    acls: dict[Resource, Acls]
    unreadable: dict[Resource, str]
    """The resources whose ACLs are unknown, with the problems of their znodes."""


@dataclass(frozen=True, slots=True)
class AclsChanged:
    """The ACLs of a resource before and after a change."""

    before: Acls
    after: Acls


def read_acls(store: Store) -> StoredAcls:
    """Return all ACLs."""
    znodes = Znodes(store)
    stored = StoredAcls({}, {})
    for pattern, root in _ROOTS.items():
        paths: dict[str, Resource] = {}
        for label in children(store, root):
            above = f"{root}/{label}"
            try:
                kind = _labelled(ResourceType, label, above)
            except CoordinationError as error:
                znodes.warn(above, f"ignored unknown ACLs: {error}; remove the znode")
                continue
            paths.update(
                {f"{above}/{name}": Resource(kind, name, pattern) for name in children(store, above)}
            )
        found, problems = znodes.read_all_with_problems(paths, _KINDS[pattern])
        stored.acls.update({paths[path]: value.acls for path, (value, _) in found.items() if value.acls})
        stored.unreadable.update({paths[path]: problem for path, problem in problems.items()})
    return stored


def read_resource(store: Store, resource: Resource) -> Acls | None:
    """Return the ACLs of one resource; None if they are unreadable."""
    path = acl_path(resource)
    found, problems = Znodes(store).read_all_with_problems([path], _KINDS[resource.pattern])
    if problems:
        return None
    return found[path][0].acls if path in found else frozenset()


def change_resource(store: Store, resource: Resource, change: Callable[[Acls], Acls]) -> AclsChanged:
    """Replace the ACLs of a resource by those that ``change`` returns for them.

    Raises BrokerError INVALID_REQUEST for a name that cannot be part of a path, and CoordinationError if the
    stored ACLs cannot be read or the new ones are too large for a znode.
    """
    path = acl_path(resource)
    for _ in range(_ATTEMPTS_MAX):
        try:
            before, stat = read_or_raise(store, path, _KINDS[resource.pattern])
            version: int | None = stat.version
        except NoNode:
            before, version = ResourceAcls(), None
        after = change(before.acls)
        try:
            _replace(store, path, before.acls, after, version)
        except (BadVersion, NoNode, NodeExists):
            continue
        _notify(store, resource)
        return AclsChanged(before.acls, after)
    raise CoordinationError(
        f"failed to write {path}: it was changed concurrently in each of {_ATTEMPTS_MAX} attempts; try again"
    )


def delete_resource(store: Store, resource: Resource) -> Acls | None:
    """Delete all ACLs of a resource, and return them; None if they were unreadable."""
    known = read_resource(store, resource)
    try:
        store.delete(acl_path(resource))
    except NoNode:
        known = frozenset()
    _notify(store, resource)
    return known


def _replace(store: Store, path: str, before: Acls, after: Acls, version: int | None) -> None:
    if after == before and (after or version is None):
        return
    if version is None:
        store.create(path, ResourceAcls(after).to_json(), make_parents=True)
    elif after:
        store.write(path, ResourceAcls(after).to_json(), version)
    else:
        store.delete(path, version)


def _notify(store: Store, resource: Resource) -> None:
    change = AclChange(resource)
    if resource.pattern is PatternType.PREFIXED:
        path, data = f"{EXTENDED_ACL_CHANGES}/{ACL_CHANGE_PREFIX}", change.to_json()
    else:
        path, data = f"{ACL_CHANGES}/{ACL_CHANGE_PREFIX}", change.to_text()
    store.create(path, data, sequential=True, make_parents=True)
