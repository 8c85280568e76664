"""The session of a consumer: its registration, claims and releases, over ZooKeeper in memory."""

from __future__ import annotations

import pytest

from minikafka.base.clock import ManualClock
from minikafka.base.errors import CoordinationLost, NodeExists, SessionExpired
from minikafka.base.ids import TopicPartition
from minikafka.registry.consumer_session import ConsumerSession, PartitionOwner
from minikafka.registry.memory import MemoryStore, MemoryZooKeeper
from minikafka.registry.store import Stat

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
OWNER_PATH = "/consumers/g/owners/t/0"


class OwnershipHarness:
    """The owners' znodes of a group, as its consumers see them."""

    def __init__(self) -> None:
        self.zookeeper = MemoryZooKeeper(ManualClock())
        self.admin = self.zookeeper.connect()

    def consumer(self, name: str) -> tuple[MemoryStore, ConsumerSession]:
        """Return the store and the session of a new consumer, which is registered."""
        store = self.zookeeper.connect()
        session = ConsumerSession(store, "g", name)
        assert session.register(b"{}")
        return store, session


@pytest.fixture
def harness() -> OwnershipHarness:
    return OwnershipHarness()


def test_free_partition_is_claimed_and_then_owned(harness: OwnershipHarness) -> None:
    store, session = harness.consumer("a")
    assert session.claim(T0, "a-1") is None
    assert session.owners([T0, T1]) == {T0: PartitionOwner("a-1", store.session_id)}
    assert session.still_owned([T0, T1]) == {T0}


def test_claim_of_anothers_partition_returns_its_owner(harness: OwnershipHarness) -> None:
    (_, a), (_, b) = harness.consumer("a"), harness.consumer("b")
    a.claim(T0, "a-0")
    assert b.claim(T0, "b-0") == "a-0"
    assert b.still_owned([T0]) == frozenset()


def test_own_partition_moves_to_another_thread(harness: OwnershipHarness) -> None:
    _, session = harness.consumer("a")
    for number in (0, 1, 1):
        assert session.claim(T0, f"a-{number}") is None
    assert harness.admin.read(OWNER_PATH)[0] == b"a-1"


def test_only_own_partitions_are_released(harness: OwnershipHarness) -> None:
    (_, a), (_, b) = harness.consumer("a"), harness.consumer("b")
    a.claim(T0, "a-0")
    b.delete_partition_ownership_from_zk(T0)
    assert a.still_owned([T0]) == {T0}
    a.delete_partition_ownership_from_zk(T0)
    assert harness.admin.exists(OWNER_PATH) is None


def test_owner_created_between_check_and_delete_stays(
    harness: OwnershipHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, session = harness.consumer("a")
    session.claim(T0, "a-0")
    owned = session.still_owned

    def look(partitions: list[TopicPartition]) -> frozenset[TopicPartition]:
        found = owned(partitions)
        harness.zookeeper.expire(store)
        harness.admin.create(OWNER_PATH, b"z-0", ephemeral=True)
        return found

    monkeypatch.setattr(session, "still_owned", look)
    with pytest.raises(SessionExpired, match="ids/a no longer exists"):
        session.delete_partition_ownership_from_zk(T0)
    assert harness.admin.read(OWNER_PATH)[0] == b"z-0"


def test_registration_of_another_session_is_refused(harness: OwnershipHarness) -> None:
    harness.consumer("a")
    with pytest.raises(NodeExists, match="/consumers/g/ids/a exists"):
        harness.consumer("a")


def test_registration_after_a_lost_response_is_the_same(harness: OwnershipHarness) -> None:
    store = harness.zookeeper.connect()
    session = ConsumerSession(store, "g", "a")
    harness.zookeeper.lose_next_answer(store)
    with pytest.raises(CoordinationLost):
        session.register(b"{}")
    assert session.session_id == 0
    assert session.register(b"{}")
    assert session.session_id == store.session_id


def test_registration_that_has_just_been_given_up_is_created(harness: OwnershipHarness) -> None:
    """The znode exists when it is to be created, and is gone when it is looked at."""
    _, before = harness.consumer("a")
    store = harness.zookeeper.connect()
    session, read = ConsumerSession(store, "g", "a"), store.read

    def late(path: str) -> tuple[bytes, Stat]:
        store.read = read  # type: ignore[method-assign]
        before.unregister()
        return read(path)

    store.read = late  # type: ignore[method-assign]
    assert session.register(b"{}")
    assert store.read(session.path)[1].ephemeral_owner == session.session_id


def test_only_the_own_registration_is_deleted(harness: OwnershipHarness) -> None:
    _, session = harness.consumer("a")
    harness.admin.delete(session.path)
    harness.admin.create(session.path, b"{}", ephemeral=True)
    session.unregister()
    assert harness.admin.exists(session.path) is not None
    assert session.session_id == 0
