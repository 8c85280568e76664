"""The throttles of a reassignment in ZooKeeper, and their removal."""

from __future__ import annotations

import json

import pytest

from minikafka.base.errors import CoordinationError
from minikafka.base.ids import TopicPartition
from minikafka.clients.admin import reassignment_plans, throttles
from minikafka.clients.admin.partitions import Replicas
from minikafka.clients.admin.plan_files import ReassignmentPlan
from minikafka.clients.admin.reassignment_plans import PartitionReassignment, Throttle
from minikafka.clients.admin.zookeeper.partitions import ZooKeeperPartitions
from minikafka.registry import paths
from minikafka.registry.memory import MemoryStore
from tests.support.zookeeper_with_topics import assign, cluster

T0, T1, T2 = (TopicPartition("t", index) for index in range(3))
WANTED = {T0: (2, 1), T1: (1, 0, 2), T2: (0, 1)}
RATES = {"leader.replication.throttled.rate": "1000", "follower.replication.throttled.rate": "1000"}
LISTS = {
    "leader.replication.throttled.replicas": "0:0,0:1,1:1,1:0",
    "follower.replication.throttled.replicas": "0:2,1:2",
}


@pytest.fixture
def store() -> MemoryStore:
    """One partition of topic t only changes its order; a fourth broker has no replicas."""
    return cluster({"t": {0: (0, 1), 1: (1, 0), 2: (1, 0)}, "u": {0: (3,)}}, brokers=4)


def config(store: MemoryStore, kind: str, name: str) -> dict[str, str] | None:
    path = f"/config/{kind}/{name}"
    if store.exists(path) is None:
        return None
    found: dict[str, str] = json.loads(store.read(path)[0])["config"]
    return found


def change_notifications(store: MemoryStore) -> list[str]:
    changes = [
        store.read(f"{paths.CONFIG_CHANGES}/{name}")[0] for name in store.children(paths.CONFIG_CHANGES)
    ]
    return [json.loads(data)["entity_path"] for data in changes]


def start(store: MemoryStore, wanted: Replicas) -> None:
    """Request a reassignment with a throttle."""
    backend = ZooKeeperPartitions(store)
    changes = reassignment_plans.changes_of(backend, ReassignmentPlan(wanted))
    reassignment_plans.begin(backend, changes, Throttle(1000))


def verify(store: MemoryStore, wanted: Replicas) -> list[PartitionReassignment]:
    return reassignment_plans.verify(ZooKeeperPartitions(store), ReassignmentPlan(wanted))


def remove_throttle(store: MemoryStore, statuses: list[PartitionReassignment]) -> bool:
    return reassignment_plans.remove_throttle(ZooKeeperPartitions(store), statuses)


def finish(store: MemoryStore) -> None:
    store.delete(paths.REASSIGN_PARTITIONS)
    assign(store, "t", {one.partition: replicas for one, replicas in WANTED.items()})


def test_throttles_are_set_before_the_reassignment_is_requested(store: MemoryStore) -> None:
    store.create("/config/topics/t", b'{"version":1,"config":{"retention.ms":"5"}}')
    start(store, WANTED)
    assert [config(store, "brokers", str(number)) for number in range(4)] == [RATES, RATES, RATES, None]
    assert config(store, "topics", "t") == {"retention.ms": "5", **LISTS}
    assert change_notifications(store) == ["brokers/0", "brokers/1", "brokers/2", "topics/t"]


def test_where_nothing_is_to_be_copied_no_replicas_are_named(store: MemoryStore) -> None:
    start(store, {T0: (1, 0)})
    assert config(store, "topics", "t") is None


def test_what_is_refused_leaves_no_throttle(store: MemoryStore) -> None:
    store.delete(paths.CONTROLLER)
    with pytest.raises(CoordinationError):
        start(store, WANTED)
    assert change_notifications(store) == []


def test_invalid_settings_are_reported_before_any_change(store: MemoryStore) -> None:
    store.create("/config/brokers/2", b"nonsense", make_parents=True)
    with pytest.raises(CoordinationError, match="/config/brokers/2"):
        start(store, WANTED)
    assert change_notifications(store) == []
    assert store.exists(paths.REASSIGN_PARTITIONS) is None


def test_another_rate_leaves_the_rest_as_it_is(store: MemoryStore) -> None:
    start(store, WANTED)
    assert throttles.set_rates(ZooKeeperPartitions(store), WANTED, 5) == [0, 1, 2]
    assert throttles.rates(ZooKeeperPartitions(store), [0, 1, 2, 3]) == [5]
    assert config(store, "topics", "t") == LISTS


def test_the_throttle_goes_when_all_is_done_and_not_before(store: MemoryStore) -> None:
    store.create("/config/brokers/3", json.dumps({"version": 1, "config": RATES}).encode(), make_parents=True)
    store.create("/config/topics/t", b'{"version":1,"config":{"retention.ms":"5"}}')
    start(store, WANTED)
    assert not remove_throttle(store, verify(store, WANTED))
    finish(store)
    notified = len(change_notifications(store))
    assert remove_throttle(store, verify(store, WANTED))
    # Also that of brokers that had no part in it, as it is not recorded which had.
    assert [config(store, "brokers", str(number)) for number in range(4)] == [{}] * 4
    assert config(store, "topics", "t") == {"retention.ms": "5"}
    assert len(change_notifications(store)) == notified + 5
    assert not remove_throttle(store, verify(store, WANTED))
    assert len(change_notifications(store)) == notified + 5


def test_the_throttle_stays_while_another_move_is_under_way(store: MemoryStore) -> None:
    start(store, {TopicPartition("u", 0): (2,)})
    done = verify(store, {T0: (0, 1)})
    assert not remove_throttle(store, done)
    assert throttles.rates(ZooKeeperPartitions(store)) == [1000]
    store.delete(paths.REASSIGN_PARTITIONS)
    assert remove_throttle(store, done)
    assert throttles.rates(ZooKeeperPartitions(store)) == []


def test_the_throttle_of_a_topic_that_was_deleted_goes(store: MemoryStore) -> None:
    start(store, WANTED)
    store.delete(paths.REASSIGN_PARTITIONS)
    for path in sorted(store.read_all(topic_paths(store, "t")), reverse=True):
        store.delete(path)
    assert remove_throttle(store, verify(store, WANTED))
    assert throttles.rates(ZooKeeperPartitions(store)) == []


def topic_paths(store: MemoryStore, topic: str) -> list[str]:
    """A topic's znode, and those below it."""
    found = [paths.topic_path(topic)]
    for path in found:
        found += [f"{path}/{name}" for name in store.children(path)]
    return found
