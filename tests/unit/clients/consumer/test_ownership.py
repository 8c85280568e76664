"""``clients/consumer/ownership``: claims and releases, over ZooKeeper in memory."""

from __future__ import annotations

import pytest

from minikafka.base.clock import ManualClock
from minikafka.base.errors import SessionExpired
from minikafka.base.ids import TopicPartition
from minikafka.clients.consumer.assignment import ConsumerThreadId, PartitionOwner, StaticTopicCount
from minikafka.clients.consumer.config import ConsumerConfig
from minikafka.clients.consumer.ownership import PartitionOwnership
from minikafka.clients.consumer.registration import GroupRegistration
from minikafka.registry.memory import MemoryStore, MemoryZooKeeper

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
OWNER_PATH = "/consumers/g/owners/t/0"


class OwnershipHarness:
    """The owners' znodes of a group, as its consumers see them."""

    def __init__(self) -> None:
        self.zookeeper = MemoryZooKeeper(ManualClock())
        self.admin = self.zookeeper.connect()

    def consumer(self, name: str) -> tuple[MemoryStore, PartitionOwnership]:
        """Return the session and the ownership of a new consumer, which is registered."""
        store = self.zookeeper.connect()
        config = ConsumerConfig(group_id="g", zookeeper_connect="memory:1")
        registration = GroupRegistration(config, name, store, ManualClock(), lambda: None)
        registration.topic_count = StaticTopicCount(name, {"t": 2})
        for _ in registration.register():
            pass
        return store, PartitionOwnership(store, registration)


@pytest.fixture
def harness() -> OwnershipHarness:
    return OwnershipHarness()


def test_free_partition_is_claimed_and_then_owned(harness: OwnershipHarness) -> None:
    store, ownership = harness.consumer("a")
    assert ownership.claim(T0, ConsumerThreadId("a", 1)) is None
    assert ownership.owners([T0, T1]) == {T0: PartitionOwner("a-1", store.session_id)}
    assert ownership.still_owned([T0, T1]) == {T0}


def test_claim_of_anothers_partition_returns_its_owner(harness: OwnershipHarness) -> None:
    (_, a), (_, b) = harness.consumer("a"), harness.consumer("b")
    a.claim(T0, ConsumerThreadId("a", 0))
    assert b.claim(T0, ConsumerThreadId("b", 0)) == "a-0"
    assert b.still_owned([T0]) == frozenset()


def test_own_partition_moves_to_another_thread(harness: OwnershipHarness) -> None:
    _, ownership = harness.consumer("a")
    for number in (0, 1, 1):
        assert ownership.claim(T0, ConsumerThreadId("a", number)) is None
    assert harness.admin.read(OWNER_PATH)[0] == b"a-1"


def test_only_own_partitions_are_released(harness: OwnershipHarness) -> None:
    (_, a), (_, b) = harness.consumer("a"), harness.consumer("b")
    a.claim(T0, ConsumerThreadId("a", 0))
    b.delete_partition_ownership_from_zk(T0)
    assert a.still_owned([T0]) == {T0}
    a.delete_partition_ownership_from_zk(T0)
    assert harness.admin.exists(OWNER_PATH) is None


def test_owner_created_between_check_and_delete_stays(
    harness: OwnershipHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, ownership = harness.consumer("a")
    ownership.claim(T0, ConsumerThreadId("a", 0))
    owned = ownership.still_owned

    def look(partitions: list[TopicPartition]) -> frozenset[TopicPartition]:
        found = owned(partitions)
        harness.zookeeper.expire(store)
        harness.admin.create(OWNER_PATH, b"z-0", ephemeral=True)
        return found

    monkeypatch.setattr(ownership, "still_owned", look)
    with pytest.raises(SessionExpired, match="ids/a no longer exists"):
        ownership.delete_partition_ownership_from_zk(T0)
    assert harness.admin.read(OWNER_PATH)[0] == b"z-0"
