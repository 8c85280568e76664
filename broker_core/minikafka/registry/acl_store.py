"""Rules in ZooKeeper, read and changed as 0.10.1's SimpleAclAuthorizer does it (znodes: ``acl_paths``).

A change is written under the condition of the znode's version, and made again from what somebody else wrote
meanwhile; the last rule takes the znode with it. Then all brokers are told, also where nothing had to be
changed: an earlier try may have written it and not got so far. So every call can be repeated.
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

_TRIES = 100
"""Each that fails is a write of somebody else that did not."""

Rules = frozenset[Acl]


@dataclass(frozen=True, slots=True)
class StoredAcls:
    """All rules of a cluster."""

    acls: dict[Resource, Rules]
    unreadable: dict[Resource, str]
    """What is wrong with the znodes of which the rules are not known."""
    unknown: tuple[str, ...]
    """What stands among the types of resources and is none, in words."""


@dataclass(frozen=True, slots=True)
class AclsChanged:
    """The rules about a resource before a change, and after it."""

    before: Rules
    after: Rules


def read_acls(store: Store) -> StoredAcls:
    """Every rule. What cannot be read does not keep the others back."""
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
        paths.update({f"{ACLS}/{label}/{one.name}": one for one in resources})
    for path, (data, _) in store.read_all(paths).items():
        try:
            acls = ResourceAcls.from_json(data, path).acls
        except CoordinationError as error:
            stored.unreadable[paths[path]] = str(error)
            continue
        if acls:
            stored.acls[paths[path]] = acls
    return StoredAcls(stored.acls, stored.unreadable, tuple(unknown))


def read_resource(store: Store, resource: Resource) -> Rules:
    """The rules about one resource. CoordinationError where they cannot be read."""
    path = acl_path(resource)
    try:
        data, _ = store.read(path)
    except NoNode:
        return frozenset()
    return ResourceAcls.from_json(data, path).acls


def change_resource(store: Store, resource: Resource, change: Callable[[Rules], Rules]) -> AclsChanged:
    """Give a resource the rules that ``change`` makes of those that it has.

    Raises BrokerError INVALID_REQUEST for a name that ZooKeeper cannot keep, CoordinationError where what
    stands there cannot be read, or what is to stand there is larger than a znode.
    """
    path = acl_path(resource)
    for _ in range(_TRIES):
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
    raise CoordinationError(f"{path} was changed by others {_TRIES} times while it was to be written")


def forget_resource(store: Store, resource: Resource) -> Rules | None:
    """Take away all rules about a resource, also where they cannot be read; what they were, None for that."""
    path = acl_path(resource)
    known: Rules | None = frozenset()
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


def _replace(store: Store, path: str, before: Rules, after: Rules, version: int | None) -> None:
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
