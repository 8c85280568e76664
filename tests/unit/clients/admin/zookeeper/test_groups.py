"""Groups in ZooKeeper: listed, described, set and deleted; the recorded ones of 0.10.1.1 too."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from minikafka.base.errors import BrokerError, NoNode
from minikafka.base.ids import TopicPartition
from minikafka.clients.admin.zookeeper.groups import (
    ACTIVE,
    PartitionOffsets,
    ZooKeeperGroup,
    ZooKeeperGroups,
    ZooKeeperListing,
    partition_offsets,
)
from minikafka.registry import paths
from minikafka.registry.consumer_offsets import write_offsets
from minikafka.registry.consumers import ConsumerRegistration
from minikafka.registry.memory import MemoryStore, MemoryZooKeeper
from minikafka.registry.znodes import children
from tests.support.zookeeper_with_topics import cluster

GOLDEN = Path(__file__).parents[4] / "data" / "zookeeper"
T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
ORDERS = tuple(TopicPartition("orders", number) for number in (0, 1))
PAYMENTS = tuple(TopicPartition("payments", number) for number in (0, 1))


def recorded(name: str) -> MemoryStore:
    """A store with all recorded znodes."""
    store = MemoryZooKeeper().connect()
    nodes = json.loads((GOLDEN / f"{name}.json").read_text(encoding="utf-8"))
    for path, node in sorted(nodes.items()):
        if path != "/" and store.exists(path) is None:
            data = (node["data"] or "").encode()
            store.create(path, data, ephemeral=node["ephemeral"], make_parents=True)
    return store


@pytest.fixture
def store() -> MemoryStore:
    """A cluster with two topics."""
    return cluster({"t": {0: (0,), 1: (1,)}, "u": {0: (0,)}})


def register(store: MemoryStore, group: str, consumer: str, **subscription: int) -> None:
    data = ConsumerRegistration(subscription, 7).to_json()
    store.create(paths.consumer_id_path(group, consumer), data, ephemeral=True, make_parents=True)


def own(store: MemoryStore, group: str, tp: TopicPartition, thread: str) -> None:
    path = paths.consumer_owner_path(group, *tp)
    store.create(path, thread.encode(), ephemeral=True, make_parents=True)


# What is there


def test_the_groups_of_old_consumers_are_listed_with_their_consumers() -> None:
    assert ZooKeeperGroups(recorded("03-old-consumers-running")).list_groups() == [
        ZooKeeperListing("old-group", 2),
        ZooKeeperListing("white-group", 1),
    ]
    closed = ZooKeeperGroups(recorded("04-old-consumers-closed")).list_groups()
    assert [(group.group_id, group.state) for group in closed] == [
        ("old-group", "Empty"),
        ("white-group", "Empty"),
    ]


def test_recorded_group_is_described_with_owners_and_idle_consumer() -> None:
    found = ZooKeeperGroups(recorded("03-old-consumers-running")).describe("old-group")
    assert (found.state, found.streams, found.partitions) == (ACTIVE, 3, ORDERS)
    assert found.offsets == {ORDERS[0]: 200, ORDERS[1]: 0}
    assert found.owners == {ORDERS[0]: "old-group_c1-0", ORDERS[1]: "old-group_c1-1"}
    rows = [
        (consumer.consumer_id, consumer.subscription, consumer.pattern, consumer.partitions)
        for consumer in found.consumers
    ]
    assert rows == [
        ("old-group_c1", {"orders": 2}, "static", ORDERS),
        ("old-group_c2", {"orders": 1}, "static", ()),
    ]
    assert found.consumers[0].since_ms == 1795241013651
    owner = found.consumer_of("old-group_c1-1")
    assert owner is not None
    assert owner.consumer_id == "old-group_c1"


def test_recorded_whitelist_group_is_described_with_all_its_topics() -> None:
    found = ZooKeeperGroups(recorded("03-old-consumers-running")).describe("white-group")
    assert found.partitions == (*ORDERS, *PAYMENTS)
    (consumer,) = found.consumers
    assert (consumer.pattern, consumer.subscription) == ("white_list", {"ord.*|pay.*": 1})
    assert consumer.partitions == (*ORDERS, *PAYMENTS)


def test_partitions_without_owner_and_offset_belong_to_the_group(store: MemoryStore) -> None:
    register(store, "g", "g_a", t=1)
    own(store, "g", T0, "g_a-0")
    found = ZooKeeperGroups(store).describe("g")
    assert found.partitions == (T0, T1)
    assert partition_offsets(found, {}, {}) == (
        PartitionOffsets(T0, None, None, None, "g_a-0"),
        PartitionOffsets(T1, None, None, None, None),
    )


def test_topics_of_a_pattern_belong_to_the_group_before_any_owner(store: MemoryStore) -> None:
    data = ConsumerRegistration({"u.*|x": 1}, 7, "white_list").to_json()
    store.create(paths.consumer_id_path("g", "g_a"), data, ephemeral=True, make_parents=True)
    found = ZooKeeperGroups(store).describe("g")
    assert (found.partitions, found.consumers[0].topics) == ((U0,), ("u",))


def test_invalid_pattern_has_unknown_topics(store: MemoryStore) -> None:
    data = ConsumerRegistration({"(?": 2}, 7, "black_list").to_json()
    store.create(paths.consumer_id_path("g", "g_a"), data, ephemeral=True, make_parents=True)
    (one,) = ZooKeeperGroups(store).describe("g").consumers
    assert (one.streams, one.topics) == (2, ())


def test_an_offset_of_a_topic_that_was_deleted_is_told(store: MemoryStore) -> None:
    write_offsets(store, "g", {TopicPartition("gone", 3): 5})
    assert ZooKeeperGroups(store).describe("g").partitions == (TopicPartition("gone", 3),)


def test_group_with_an_invalid_topic_owner_and_offset_is_described(
    store: MemoryStore, caplog: pytest.LogCaptureFixture
) -> None:
    write_offsets(store, "g", {T0: 5, U0: 6})
    invalid = ["/brokers/topics/u", "/consumers/g/offsets/u/0", "/consumers/g/owners/u/0"]
    store.create(invalid[2], b"nobody", make_parents=True)
    for path in invalid[:2]:
        store.write(path, b"nonsense")
    for _ in range(2):
        found = ZooKeeperGroups(store).describe("g")
        assert (found.offsets, found.owners) == ({T0: 5}, {})
        assert T0 in found.partitions
    assert sorted(message.split()[4].rstrip(":") for message in caplog.messages) == invalid


def test_consumer_with_an_invalid_registration_is_listed(store: MemoryStore) -> None:
    store.create("/consumers/g/ids/g_x", b"nonsense", ephemeral=True, make_parents=True)
    (one,) = ZooKeeperGroups(store).describe("g").consumers
    assert (one.consumer_id, one.pattern, one.streams, one.since_ms) == ("g_x", "", 0, -1)


def test_an_unknown_group_is_named_with_what_is_much_like_it(store: MemoryStore) -> None:
    write_offsets(store, "billing", {T0: 1})
    with pytest.raises(
        BrokerError, match="GROUP_ID_NOT_FOUND: there is no group 'biling'; there is 'billing'"
    ):
        ZooKeeperGroups(store).describe("biling")


def test_a_name_that_no_path_can_have_is_no_group_in_zookeeper(store: MemoryStore) -> None:
    assert not ZooKeeperGroups(store).exists("a/b")


@pytest.mark.parametrize(
    ("in_zookeeper", "in_kafka", "end", "offset", "lag"),
    [
        (3, None, 10, 3, 7),
        (None, 4, 10, 4, 6),
        (3, 4, 10, 4, 6),
        (5, 4, 10, 5, 5),
        (10, 4, 10, 10, 0),
        (12, 4, 10, 12, None),
        (None, None, 10, None, None),
        (3, 4, None, 4, None),
        (0, None, 0, 0, 0),
    ],
)
def test_the_larger_offset_counts(
    in_zookeeper: int | None, in_kafka: int | None, end: int | None, offset: int | None, lag: int | None
) -> None:
    one = PartitionOffsets(T0, in_zookeeper, in_kafka, end, None)
    assert (one.offset, one.lag) == (offset, lag)


def test_partition_offsets_include_partitions_known_to_brokers_only() -> None:
    group = ZooKeeperGroup("g", offsets={T0: 1}, partitions=(T0,))
    assert partition_offsets(group, {U0: 2}, {T0: 5, U0: 6}) == (
        PartitionOffsets(T0, 1, None, 5, None),
        PartitionOffsets(U0, None, 2, 6, None),
    )


# Where it goes on


def test_offsets_are_set_as_a_consumer_leaves_them(store: MemoryStore) -> None:
    like = recorded("04-old-consumers-closed")
    ZooKeeperGroups(store).set_offsets("old-group", {ORDERS[0]: 200, ORDERS[1]: 0})

    def tree(of: MemoryStore, path: str) -> dict[str, bytes]:
        found = {path: of.read(path)[0]}
        for name in children(of, path):
            found |= tree(of, f"{path}/{name}")
        return found

    assert tree(store, "/consumers/old-group") == tree(like, "/consumers/old-group")


def test_offsets_that_are_there_are_replaced_and_others_stay(store: MemoryStore) -> None:
    groups = ZooKeeperGroups(store)
    write_offsets(store, "g", {T0: 1, T1: 2})
    groups.set_offsets("g", {T1: 9, U0: 0})
    assert groups.offsets("g") == {T0: 1, T1: 9, U0: 0}


def test_a_group_whose_consumers_live_is_left_alone(store: MemoryStore) -> None:
    groups = ZooKeeperGroups(store)
    write_offsets(store, "g", {T0: 1, U0: 2})
    register(store, "g", "g_a", t=1)
    with pytest.raises(
        BrokerError, match="NON_EMPTY_GROUP: group 'g' has members: its offsets cannot be set"
    ):
        groups.set_offsets("g", {T0: 9})
    with pytest.raises(BrokerError, match="it cannot be deleted before all of them have stopped"):
        groups.delete("g")
    with pytest.raises(BrokerError, match="its topics cannot be deleted"):
        groups.delete_topic("g", "t")
    assert groups.offsets("g") == {T0: 1, U0: 2}


def test_a_consumer_that_joins_while_offsets_are_set_is_told(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:

    def write(store: MemoryStore, group: str, offsets: dict[TopicPartition, int]) -> None:
        register(store, group, "g_late", t=1)
        write_offsets(store, group, offsets)

    monkeypatch.setattr("minikafka.clients.admin.zookeeper.groups.write_offsets", write)
    with pytest.raises(BrokerError, match="a consumer joined group 'g' meanwhile: it may have overwritten"):
        ZooKeeperGroups(store).set_offsets("g", {T0: 9})


# What goes


def test_a_deleted_group_leaves_nothing() -> None:
    store = recorded("04-old-consumers-closed")
    ZooKeeperGroups(store).delete("old-group")
    assert children(store, paths.CONSUMERS) == ["white-group"]


def test_a_group_without_any_registration_can_be_deleted(store: MemoryStore) -> None:
    write_offsets(store, "g", {T0: 1})
    ZooKeeperGroups(store).delete("g")
    assert children(store, paths.CONSUMERS) == []


def test_a_consumer_that_joins_while_its_group_is_deleted_stays(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_offsets(store, "g", {T0: 1})
    delete = store.delete

    def late(path: str, version: int = -1, *, recursive: bool = False) -> None:
        delete(path, version, recursive=recursive)
        if path.endswith("/offsets"):
            register(store, "g", "g_late", t=1)

    monkeypatch.setattr(store, "delete", late)
    with pytest.raises(BrokerError, match="joined group 'g' meanwhile: its earlier znodes were deleted"):
        ZooKeeperGroups(store).delete("g")
    assert children(store, "/consumers/g/ids") == ["g_late"]


def test_one_topic_of_a_group_is_deleted_and_the_last_one_with_the_group() -> None:
    store = recorded("04-old-consumers-closed")
    groups = ZooKeeperGroups(store)
    groups.delete_topic("white-group", "orders")
    assert groups.topics("white-group") == {"payments"}
    assert groups.exists("old-group")
    groups.delete_topic("white-group", "payments")
    assert not groups.exists("white-group")


def test_a_topic_that_a_group_has_nothing_of_is_told() -> None:
    groups = ZooKeeperGroups(recorded("04-old-consumers-closed"))
    with pytest.raises(
        BrokerError, match=r"group 'old-group' has no offsets or owners of topic 'x' .* it has orders"
    ):
        groups.delete_topic("old-group", "x")


def test_groups_of_a_topic_are_found_if_some_have_no_offsets() -> None:
    store = recorded("04-old-consumers-closed")
    store.create("/consumers/only-ids/ids", make_parents=True)
    own(store, "owner", PAYMENTS[0], "owner_a-0")
    groups = ZooKeeperGroups(store)
    assert groups.groups_of("orders") == ["old-group", "white-group"]
    assert groups.groups_of("payments") == ["owner", "white-group"]


def test_a_group_that_goes_while_it_is_described_is_an_empty_one(store: MemoryStore) -> None:
    with pytest.raises(NoNode):
        store.read("/consumers/g")
    store.create("/consumers/g", make_parents=True)
    assert ZooKeeperGroups(store).describe("g") == ZooKeeperGroup("g")
