"""ACLs in ZooKeeper: conditional writes, change notifications, and reads."""

from __future__ import annotations

import pytest

from minikafka.base.acls import Acl, Operation, Permission, Resource, ResourceType
from minikafka.base.clock import ManualClock
from minikafka.base.errors import BrokerError, CoordinationError
from minikafka.registry.acl_paths import ACL_CHANGES, ResourceAcls, acl_path
from minikafka.registry.acl_store import (
    Acls,
    AclsChanged,
    change_resource,
    delete_resource,
    read_acls,
    read_resource,
)
from minikafka.registry.memory import MemoryStore, MemoryZooKeeper

TOPIC = Resource(ResourceType.TOPIC, "t")
READ = Acl("User:alice", Permission.ALLOW, "*", Operation.READ)
WRITE = Acl("User:bob", Permission.DENY, "*", Operation.WRITE)
ALTER = Acl("User:eve", Permission.ALLOW, "*", Operation.ALTER)
NONE: Acls = frozenset()


@pytest.fixture
def store() -> MemoryStore:
    return MemoryZooKeeper(ManualClock(0)).connect()


def notifications(store: MemoryStore) -> list[bytes]:
    return [store.read(f"{ACL_CHANGES}/{name}")[0] for name in store.children(ACL_CHANGES)]


def test_first_acl_creates_the_znode_and_last_one_deletes_it(store: MemoryStore) -> None:
    assert change_resource(store, TOPIC, lambda acls: acls | {READ}) == AclsChanged(NONE, frozenset({READ}))
    assert read_resource(store, TOPIC) == {READ}
    assert change_resource(store, TOPIC, lambda acls: acls - {READ}) == AclsChanged(frozenset({READ}), NONE)
    assert store.exists(acl_path(TOPIC)) is None
    assert notifications(store) == [b"Topic:t"] * 2


def test_unchanged_acls_are_notified_but_not_written(store: MemoryStore) -> None:
    change_resource(store, TOPIC, lambda acls: acls | {READ})
    change_resource(store, TOPIC, lambda acls: acls | {READ})
    assert store.read(acl_path(TOPIC))[1].version == 0
    assert notifications(store) == [b"Topic:t"] * 2


def test_change_is_computed_again_after_a_concurrent_write(store: MemoryStore) -> None:
    change_resource(store, TOPIC, lambda acls: acls | {READ})
    seen: list[Acls] = []

    def change(acls: Acls) -> Acls:
        seen.append(acls)
        if len(seen) == 1:
            store.write(acl_path(TOPIC), ResourceAcls(frozenset({WRITE})).to_json())
        return acls | {ALTER}

    assert change_resource(store, TOPIC, change).after == {WRITE, ALTER}
    assert seen == [{READ}, {WRITE}]


def test_change_gives_up_after_many_conflicts(store: MemoryStore) -> None:
    def change(acls: Acls) -> Acls:
        store.delete(acl_path(TOPIC)) if acls else store.create(
            acl_path(TOPIC), ResourceAcls(frozenset({READ})).to_json(), make_parents=True
        )
        return frozenset({WRITE})

    with pytest.raises(CoordinationError, match=r"/kafka-acl/Topic/t\b.* 100 attempts"):
        change_resource(store, TOPIC, change)


def test_unreadable_acls_are_named_and_do_not_hide_others(store: MemoryStore) -> None:
    change_resource(store, TOPIC, lambda acls: acls | {READ})
    bad = Resource(ResourceType.GROUP, "g")
    store.create(acl_path(bad), b"{}", make_parents=True)
    store.create("/kafka-acl/Planet")
    stored = read_acls(store)
    assert stored.acls == {TOPIC: {READ}}
    assert list(stored.unreadable) == [bad]
    assert acl_path(bad) in stored.unreadable[bad]
    assert "Planet" in stored.unknown[0]


def test_cluster_without_acls_has_none(store: MemoryStore) -> None:
    assert read_acls(store).acls == {}
    assert read_resource(store, TOPIC) == NONE
    assert delete_resource(store, TOPIC) == NONE


def test_unreadable_acls_can_be_deleted(store: MemoryStore) -> None:
    change_resource(store, TOPIC, lambda acls: acls | {READ})
    assert delete_resource(store, TOPIC) == {READ}
    store.create(acl_path(TOPIC), b"{}")
    with pytest.raises(CoordinationError, match="/kafka-acl/Topic/t"):
        change_resource(store, TOPIC, lambda acls: acls | {READ})
    assert delete_resource(store, TOPIC) is None
    assert store.exists(acl_path(TOPIC)) is None
    assert len(notifications(store)) == 3


def test_a_name_that_no_znode_can_have_is_refused(store: MemoryStore) -> None:
    with pytest.raises(BrokerError, match="a/b"):
        change_resource(store, Resource(ResourceType.GROUP, "a/b"), lambda acls: acls | {READ})
