"""ACLs in ZooKeeper: conditional writes, change notifications, and reads."""

from __future__ import annotations

import pytest

from minikafka.base.acls import CLUSTER, Acl, Operation, PatternType, Permission, Resource, ResourceType
from minikafka.base.clock import ManualClock
from minikafka.base.errors import BrokerError, CoordinationError
from minikafka.registry.acls import (
    ACL_CHANGES,
    EXTENDED_ACL_CHANGES,
    AclChange,
    Acls,
    AclsChanged,
    ResourceAcls,
    acl_path,
    change_resource,
    delete_resource,
    read_acls,
    read_resource,
)
from minikafka.registry.memory import MemoryStore, MemoryZooKeeper

TOPIC = Resource(ResourceType.TOPIC, "t")
PREFIX = Resource(ResourceType.TOPIC, "t", PatternType.PREFIXED)
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


def test_unreadable_acls_are_named_and_do_not_hide_others(
    store: MemoryStore, caplog: pytest.LogCaptureFixture
) -> None:
    change_resource(store, TOPIC, lambda acls: acls | {READ})
    bad = Resource(ResourceType.GROUP, "g")
    store.create(acl_path(bad), b"{}", make_parents=True)
    store.create("/kafka-acl/Planet")
    stored = read_acls(store)
    assert stored.acls == {TOPIC: {READ}}
    assert list(stored.unreadable) == [bad]
    assert acl_path(bad) in stored.unreadable[bad]
    assert "/kafka-acl/Planet" in caplog.text


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


ALICE = Acl("User:alice", Permission.ALLOW, "10.0.0.1", Operation.READ)
BOB = Acl("User:bob", Permission.DENY, "*", Operation.ALL)
# The form is that of kafka-acls of 0.10.1.1, down to the byte.
DATA = (
    b'{"version":1,"acls":['
    b'{"principal":"User:alice","permissionType":"Allow","operation":"Read","host":"10.0.0.1"},'
    b'{"principal":"User:bob","permissionType":"Deny","operation":"All","host":"*"}]}'
)


def test_acls_are_read_and_written_as_by_0_10_1() -> None:
    acls = ResourceAcls(frozenset({ALICE, BOB}))
    assert acls.to_json() == DATA
    assert ResourceAcls.from_json(DATA, "/p") == acls


def test_znode_without_data_has_no_acls() -> None:
    assert ResourceAcls.from_json(b"", "/p") == ResourceAcls()


def test_labels_are_read_in_any_case() -> None:
    shouted = DATA.replace(b'"Allow"', b'"ALLOW"').replace(b'"Read"', b'"read"')
    assert ResourceAcls.from_json(shouted, "/p") == ResourceAcls.from_json(DATA, "/p")


def test_acls_are_stored_below_their_resource_type() -> None:
    assert acl_path(Resource(ResourceType.TOPIC, "orders")) == "/kafka-acl/Topic/orders"
    assert acl_path(Resource(ResourceType.GROUP, "*")) == "/kafka-acl/Group/*"
    assert acl_path(CLUSTER) == "/kafka-acl/Cluster/kafka-cluster"
    assert acl_path(PREFIX) == "/kafka-acl-extended/prefixed/Topic/t"


def test_acls_of_a_prefix_are_apart_from_those_of_the_name(store: MemoryStore) -> None:
    change_resource(store, TOPIC, lambda acls: acls | {READ})
    change_resource(store, PREFIX, lambda acls: acls | {WRITE})
    assert read_acls(store).acls == {TOPIC: {READ}, PREFIX: {WRITE}}
    assert read_resource(store, PREFIX) == {WRITE}
    assert notifications(store) == [b"Topic:t"]
    (name,) = store.children(EXTENDED_ACL_CHANGES)
    assert store.read(f"{EXTENDED_ACL_CHANGES}/{name}")[0] == (
        b'{"version":1,"resourceType":"TOPIC","name":"t","patternType":"PREFIXED"}'
    )
    assert delete_resource(store, PREFIX) == {WRITE}
    assert read_acls(store).acls == {TOPIC: {READ}}


def test_unreadable_acls_of_a_prefix_are_named(store: MemoryStore) -> None:
    store.create(acl_path(PREFIX), b"{}", make_parents=True)
    stored = read_acls(store)
    assert acl_path(PREFIX) in stored.unreadable[PREFIX]


@pytest.mark.parametrize("kind", ResourceType)
def test_change_of_a_prefix_is_read_as_it_is_written(kind: ResourceType) -> None:
    change = AclChange(Resource(kind, "a:b", PatternType.PREFIXED))
    assert AclChange.from_json(change.to_json(), "/p") == change


@pytest.mark.parametrize("name", ["", "a/b", ".", "..", "a\0b"])
def test_a_name_that_cannot_be_part_of_a_path_is_refused(name: str) -> None:
    with pytest.raises(BrokerError, match="INVALID_REQUEST"):
        acl_path(Resource(ResourceType.GROUP, name))


@pytest.mark.parametrize(
    "data",
    [
        b"nonsense",
        b"[]",
        b'{"version":1}',
        b'{"version":2,"acls":[]}',
        b'{"acls":[]}',
        b'{"version":1,"acls":{}}',
        b'{"version":1,"acls":[1]}',
        b'{"version":1,"acls":[{}]}',
        DATA.replace(b'"User:bob"', b'"bob"'),
        DATA.replace(b'"User:bob"', b"7"),
        DATA.replace(b'"Deny"', b'"Perhaps"'),
        DATA.replace(b'"All"', b'"Dance"'),
        DATA.replace(b'"*"', b"null"),
        DATA.replace(b'"*"', b'""'),
    ],
    ids=lambda data: data[-60:].decode(),
)
def test_invalid_acls_are_refused_with_their_path(data: bytes) -> None:
    with pytest.raises(CoordinationError, match="/kafka-acl/Topic/orders"):
        ResourceAcls.from_json(data, "/kafka-acl/Topic/orders")


@pytest.mark.parametrize(
    ("data", "resource"),
    [
        (b"Topic:orders", Resource(ResourceType.TOPIC, "orders")),
        (b"Group:a:b", Resource(ResourceType.GROUP, "a:b")),
        (b"Cluster:kafka-cluster", CLUSTER),
        ("Group:größer".encode(), Resource(ResourceType.GROUP, "größer")),
        (b"TRANSACTIONAL_ID:t", Resource(ResourceType.TRANSACTIONAL_ID, "t")),
    ],
    ids=["a topic", "a name with a colon", "the cluster", "a name outside ASCII", "two words"],
)
def test_acl_change_is_plain_text(data: bytes, resource: Resource) -> None:
    assert AclChange.from_text(data, "/p") == AclChange(resource)
    assert AclChange(resource).to_text() == data


def test_acl_change_of_newer_releases_is_read() -> None:
    assert AclChange.from_text(b"TOPIC:orders", "/p") == AclChange(Resource(ResourceType.TOPIC, "orders"))
