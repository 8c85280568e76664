"""Access rules in ZooKeeper: written under a condition, told, and read whole."""

from __future__ import annotations

import pytest

from minikafka.base.acls import Acl, Operation, Permission, Resource, ResourceType
from minikafka.base.clock import ManualClock
from minikafka.base.errors import BrokerError, CoordinationError
from minikafka.registry.acl_paths import ACL_CHANGES, ResourceAcls, acl_path
from minikafka.registry.acl_store import (
    AclsChanged,
    Rules,
    change_resource,
    forget_resource,
    read_acls,
    read_resource,
)
from minikafka.registry.memory import MemoryStore, MemoryZooKeeper

TOPIC = Resource(ResourceType.TOPIC, "t")
READ = Acl("User:alice", Permission.ALLOW, "*", Operation.READ)
WRITE = Acl("User:bob", Permission.DENY, "*", Operation.WRITE)
ALTER = Acl("User:eve", Permission.ALLOW, "*", Operation.ALTER)
NONE: Rules = frozenset()


@pytest.fixture
def store() -> MemoryStore:
    return MemoryZooKeeper(ManualClock(0)).connect()


def told(store: MemoryStore) -> list[bytes]:
    return [store.read(f"{ACL_CHANGES}/{name}")[0] for name in store.children(ACL_CHANGES)]


def test_the_first_rule_makes_the_znode_and_the_last_one_takes_it_away(store: MemoryStore) -> None:
    assert change_resource(store, TOPIC, lambda rules: rules | {READ}) == AclsChanged(NONE, frozenset({READ}))
    assert read_resource(store, TOPIC) == {READ}
    assert change_resource(store, TOPIC, lambda rules: rules - {READ}) == AclsChanged(frozenset({READ}), NONE)
    assert store.exists(acl_path(TOPIC)) is None
    assert told(store) == [b"Topic:t"] * 2


def test_what_changes_nothing_is_told_but_not_written(store: MemoryStore) -> None:
    change_resource(store, TOPIC, lambda rules: rules | {READ})
    change_resource(store, TOPIC, lambda rules: rules | {READ})
    assert store.read(acl_path(TOPIC))[1].version == 0
    assert told(store) == [b"Topic:t"] * 2


def test_a_change_is_made_of_what_somebody_else_wrote_meanwhile(store: MemoryStore) -> None:
    change_resource(store, TOPIC, lambda rules: rules | {READ})
    seen: list[Rules] = []

    def change(rules: Rules) -> Rules:
        seen.append(rules)
        if len(seen) == 1:
            store.write(acl_path(TOPIC), ResourceAcls(frozenset({WRITE})).to_json())
        return rules | {ALTER}

    assert change_resource(store, TOPIC, change).after == {WRITE, ALTER}
    assert seen == [{READ}, {WRITE}]


def test_who_never_gets_to_write_gives_up(store: MemoryStore) -> None:
    def change(rules: Rules) -> Rules:
        store.delete(acl_path(TOPIC)) if rules else store.create(
            acl_path(TOPIC), ResourceAcls(frozenset({READ})).to_json(), make_parents=True
        )
        return frozenset({WRITE})

    with pytest.raises(CoordinationError, match="/kafka-acl/Topic/t was changed by others 100 times"):
        change_resource(store, TOPIC, change)


def test_what_cannot_be_read_is_named_and_the_others_are_there(store: MemoryStore) -> None:
    change_resource(store, TOPIC, lambda rules: rules | {READ})
    bad = Resource(ResourceType.GROUP, "g")
    store.create(acl_path(bad), b"{}", make_parents=True)
    store.create("/kafka-acl/Planet")
    stored = read_acls(store)
    assert stored.acls == {TOPIC: {READ}}
    assert list(stored.unreadable) == [bad]
    assert acl_path(bad) in stored.unreadable[bad]
    assert "Planet" in stored.unknown[0]


def test_nothing_is_there_where_nobody_made_a_rule(store: MemoryStore) -> None:
    assert read_acls(store).acls == {}
    assert read_resource(store, TOPIC) == NONE
    assert forget_resource(store, TOPIC) == NONE


def test_a_resource_is_forgotten_with_what_nobody_can_read(store: MemoryStore) -> None:
    change_resource(store, TOPIC, lambda rules: rules | {READ})
    assert forget_resource(store, TOPIC) == {READ}
    store.create(acl_path(TOPIC), b"{}")
    with pytest.raises(CoordinationError, match="/kafka-acl/Topic/t"):
        change_resource(store, TOPIC, lambda rules: rules | {READ})
    assert forget_resource(store, TOPIC) is None
    assert store.exists(acl_path(TOPIC)) is None
    assert len(told(store)) == 3


def test_a_name_that_no_znode_can_have_is_refused(store: MemoryStore) -> None:
    with pytest.raises(BrokerError, match="a/b"):
        change_resource(store, Resource(ResourceType.GROUP, "a/b"), lambda rules: rules | {READ})
