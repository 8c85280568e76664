"""Consumer groups in ZooKeeper, in memory and real: offsets, and the only consumer of a group."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from minikafka.base.errors import CoordinationError, GroupInUse, NoNode, SessionExpired
from minikafka.base.ids import TopicPartition
from minikafka.registry import paths
from minikafka.registry.consumer_offsets import read_offsets, write_offsets
from minikafka.registry.memory import MemoryStore, MemoryZooKeeper
from minikafka.registry.sole_consumer import SoleConsumer
from minikafka.registry.store import Store

if TYPE_CHECKING:
    from tests.unit.registry.conftest import ZooKeeperHarness

GOLDEN = Path(__file__).parents[2] / "data" / "zookeeper"
A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


def consumer(store: Store, name: str = "g_here-1-aa") -> SoleConsumer:
    return SoleConsumer(store, "g", name, lambda: 1795241013651)


def owners(store: Store) -> dict[TopicPartition, str]:
    found = {}
    for tp in (A0, A1, B0):
        try:
            found[tp] = store.read(paths.consumer_owner_path("g", *tp))[0].decode()
        except NoNode:
            continue
    return found


def test_offsets_that_were_written_are_read(store: Store) -> None:
    assert read_offsets(store, "g") == {}
    write_offsets(store, "g", {A0: 7, B0: 0})
    write_offsets(store, "g", {A0: 9, A1: 1})
    assert read_offsets(store, "g") == {A0: 9, A1: 1, B0: 0}
    assert store.read("/consumers/g/offsets/a/0")[0] == b"9"


def recorded() -> MemoryStore:
    """The groups of three consumers of 0.10.1.1, as they were while these ran."""
    store = MemoryZooKeeper().connect()
    nodes = json.loads((GOLDEN / "03-old-consumers-running.json").read_text(encoding="utf-8"))
    for path, node in nodes.items():
        if path.startswith(paths.CONSUMERS):
            data = (node["data"] or "").encode()
            store.create(path, data, ephemeral=node["ephemeral"], make_parents=True)
    return store


def test_the_offsets_of_old_consumers_are_read() -> None:
    store = recorded()
    orders = {TopicPartition("orders", 0): 200, TopicPartition("orders", 1): 0}
    payments = {TopicPartition("payments", 0): 200, TopicPartition("payments", 1): 0}
    assert read_offsets(store, "old-group") == orders
    assert read_offsets(store, "white-group") == orders | payments


def test_a_group_of_old_consumers_is_left_to_them() -> None:
    store = recorded()
    with pytest.raises(GroupInUse) as refused:
        SoleConsumer(store, "old-group", "old-group_here-1-aa", lambda: 7).hold([A0])
    assert refused.value.holders == ("old-group_c1", "old-group_c2")


def test_invalid_offsets_are_ignored(store: Store) -> None:
    write_offsets(store, "g", {A0: 7})
    store.create("/consumers/g/offsets/a/1", b"soon")
    store.create("/consumers/g/offsets/a/x", b"1")
    assert read_offsets(store, "g") == {A0: 7}


def test_consumer_is_registered_and_owns_its_partitions(store: Store) -> None:
    consumer(store).hold([A0, A1])
    data, stat = store.read("/consumers/g/ids/g_here-1-aa")
    assert json.loads(data) == {
        "version": 1,
        "subscription": {"a": 1},
        "pattern": "static",
        "timestamp": "1795241013651",
    }
    assert stat.ephemeral_owner == store.session_id
    assert owners(store) == {A0: "g_here-1-aa-0", A1: "g_here-1-aa-0"}


def test_partitions_of_a_consumer_may_change(store: Store) -> None:
    owner = consumer(store)
    owner.hold([A0, A1])
    owner.hold([A1, B0])
    assert set(owners(store)) == {A1, B0}
    assert json.loads(store.read("/consumers/g/ids/g_here-1-aa")[0])["subscription"] == {"a": 1, "b": 1}


def test_a_second_consumer_is_refused_with_the_name_of_the_first(harness: ZooKeeperHarness) -> None:
    first, second = harness.connect(), harness.connect()
    consumer(first).hold([A0])
    with pytest.raises(GroupInUse, match="g_here-1-aa") as refused:
        consumer(second, "g_there-2-bb").hold([B0])
    assert refused.value.holders == ("g_here-1-aa",)
    assert second.children("/consumers/g/ids") == ["g_here-1-aa"]
    assert set(owners(second)) == {A0}


def test_concurrent_registration_is_noticed(harness: ZooKeeperHarness) -> None:
    """Both checked before either was registered: the one that checks again sees the other."""
    first, second = harness.connect(), harness.connect()
    owner = consumer(first)
    looked = first.children

    def late(path: str) -> list[str]:
        first.children = looked  # type: ignore[method-assign]
        found = looked(path) if first.exists(path) else []
        second.create("/consumers/g/ids/g_there-2-bb", b"{}", ephemeral=True, make_parents=True)
        return found

    first.children = late  # type: ignore[method-assign]
    with pytest.raises(GroupInUse, match="g_there-2-bb"):
        owner.hold([A0])
    assert second.children("/consumers/g/ids") == ["g_there-2-bb"]


def test_a_partition_that_another_owns_is_not_taken(harness: ZooKeeperHarness) -> None:
    first, second = harness.connect(), harness.connect()
    first.create("/consumers/g/owners/a/0", b"g_old-0", ephemeral=True, make_parents=True)
    with pytest.raises(GroupInUse, match="g_old-0"):
        consumer(second).hold([A0])


def test_consumer_registers_again_after_an_expiry(harness: ZooKeeperHarness) -> None:
    store = harness.connect()
    owner = consumer(store)
    owner.hold([A0])
    before = store.session_id
    harness.expire(store)
    assert harness.settles(lambda: store.session_id != before)
    owner.hold([A0])
    assert store.read("/consumers/g/ids/g_here-1-aa")[1].ephemeral_owner == store.session_id
    assert owners(store) == {A0: "g_here-1-aa-0"}


def test_consumer_commits_only_owned_partitions(store: Store) -> None:
    owner = consumer(store)
    owner.hold([A0, B0])
    owner.commit({A0: 7, B0: 0})
    owner.commit({A0: 9})
    assert read_offsets(store, "g") == {A0: 9, B0: 0}
    with pytest.raises(SessionExpired, match=r"a-1.* does not own"):
        owner.commit({A0: 10, A1: 1})
    assert read_offsets(store, "g") == {A0: 10, B0: 0}


def takes_over(harness: ZooKeeperHarness, first: Store, second: Store) -> None:
    """End the session of ``first``, and let a consumer of ``second`` own and commit A0."""
    before = first.session_id
    harness.expire(first)
    assert harness.settles(lambda: first.session_id != before)
    other = consumer(second, "g_there-2-bb")
    other.hold([A0])
    other.commit({A0: 9})


def test_commit_after_expiry_does_not_overwrite_the_new_owner(harness: ZooKeeperHarness) -> None:
    first, second = harness.connect(), harness.connect()
    owner = consumer(first)
    owner.hold([A0])
    owner.commit({A0: 5})
    takes_over(harness, first, second)
    with pytest.raises(CoordinationError):
        owner.commit({A0: 6})
    assert read_offsets(second, "g") == {A0: 9}


def test_removed_owner_znode_is_created_again(harness: ZooKeeperHarness) -> None:
    first, second = harness.connect(), harness.connect()
    owner = consumer(first)
    owner.hold([A0])
    owner.commit({A0: 5})
    second.delete(paths.consumer_owner_path("g", *A0))
    write_offsets(second, "g", {A0: 2})
    with pytest.raises(SessionExpired):
        owner.commit({A0: 6})
    owner.hold([A0])
    owner.commit({A0: 6})
    assert read_offsets(second, "g") == {A0: 6}


def test_release_after_expiry_keeps_the_new_owners_znode(harness: ZooKeeperHarness) -> None:
    first, second = harness.connect(), harness.connect()
    owner = consumer(first)
    owner.hold([A0])
    takes_over(harness, first, second)
    owner.release()
    assert owners(second) == {A0: "g_there-2-bb-0"}
    assert second.children("/consumers/g/ids") == ["g_there-2-bb"]


def test_released_consumer_leaves_nothing(harness: ZooKeeperHarness) -> None:
    first, second = harness.connect(), harness.connect()
    owner = consumer(first)
    owner.hold([A0, B0])
    owner.release()
    assert second.children("/consumers/g/ids") == []
    assert owners(second) == {}
    consumer(second, "g_there-2-bb").hold([A0])
