"""The ACLs in ZooKeeper, read and changed as 0.10.1's SimpleAclAuthorizer does it (znodes: ``acl_paths``).

A change is written conditionally on the znode's version, and computed again if another process wrote
meanwhile. The znode is deleted with its last ACL. Then all brokers are notified, even if nothing had to be
changed: an earlier call may have failed between the write and the notification. So every call can be
repeated.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from minikafka.base.acls import Acl, Resource
from minikafka.base.errors import (
    BadVersion,
    CoordinationError,
    CoordinationLost,
    NodeExists,
    NoNode,
    SessionExpired,
)
from minikafka.registry.acl_paths import (
    ACL_CHANGE_PREFIX,
    ACL_CHANGES,
    ACLS,
    AclChange,
    ResourceAcls,
    acl_path,
    resource_type_of,
)
from minikafka.registry.store import Store

_ATTEMPTS_MAX = 100
"""An attempt fails only if another process has written successfully meanwhile."""

Acls = frozenset[Acl]


@dataclass(frozen=True, slots=True)
class StoredAcls:
    """All ACLs of a cluster."""

    acls: dict[Resource, Acls]
    unreadable: dict[Resource, str]
    """Resource -> the error of its znode, which could not be read."""
    unknown: tuple[str, ...]
    """Errors of the znodes below ``ACLS`` that are no resource types."""


@dataclass(frozen=True, slots=True)
class AclsChanged:
    """The ACLs of a resource before and after a change."""

    before: Acls
    after: Acls


def read_acls(store: Store) -> StoredAcls:
    """Return all ACLs. A znode that cannot be read does not hide the others."""
    stored = StoredAcls({}, {}, ())
    unknown: list[str] = []
    paths: dict[str, Resource] = {}
    for label in _children(store, ACLS):
        try:
            kind = resource_type_of(label)
        except CoordinationError as error:
            unknown.append(str(error))
            continue
        resources = [Resource(kind, name) for name in _children(store, f"{ACLS}/{label}")]
        paths.update({f"{ACLS}/{label}/{resource.name}": resource for resource in resources})
    for path, (data, _) in store.read_all(paths).items():
        try:
            acls = ResourceAcls.from_json(data, path).acls
        except CoordinationError as error:
            stored.unreadable[paths[path]] = str(error)
            continue
        if acls:
            stored.acls[paths[path]] = acls
    return StoredAcls(stored.acls, stored.unreadable, tuple(unknown))


def read_resource(store: Store, resource: Resource) -> Acls:
    """Return the ACLs of one resource. Raises CoordinationError if they cannot be read."""
    path = acl_path(resource)
    try:
        data, _ = store.read(path)
    except NoNode:
        return frozenset()
    return ResourceAcls.from_json(data, path).acls


def change_resource(store: Store, resource: Resource, change: Callable[[Acls], Acls]) -> AclsChanged:
    """Replace the ACLs of a resource by those that ``change`` returns for them.

    Raises BrokerError INVALID_REQUEST for a name that cannot be part of a path, and CoordinationError if the
    stored ACLs cannot be read or the new ones are too large for a znode.
    """
    path = acl_path(resource)
    for _ in range(_ATTEMPTS_MAX):
        try:
            data, stat = store.read(path)
        except NoNode:
            before, version = ResourceAcls(), None
        else:
            before, version = ResourceAcls.from_json(data, path), stat.version
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
    path = acl_path(resource)
    known: Acls | None = frozenset()
    try:
        known = read_resource(store, resource)
    except (CoordinationLost, SessionExpired):
        raise
    except CoordinationError:
        known = None
    try:
        store.delete(path)
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
    path = f"{ACL_CHANGES}/{ACL_CHANGE_PREFIX}"
    store.create(path, AclChange(resource).to_json(), sequential=True, make_parents=True)


def _children(store: Store, path: str) -> list[str]:
    try:
        return store.children(path)
    except NoNode:
        return []
