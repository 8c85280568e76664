"""Topic ids on all brokers of a cluster."""

from __future__ import annotations

from minikafka.registry import paths
from minikafka.registry.topics import TopicAssignment
from tests.support.broker_harness import BrokerHarness


def ids(harness: BrokerHarness, topic: str) -> set[bytes | None]:
    """The ids that the brokers and ZooKeeper have of a topic."""
    caches = [harness.simulation.machine_of(broker_id).broker.metadata_cache for broker_id in (1, 2)]
    known = {cache.topic_ids.get(topic) for cache in caches}
    assert all(cache.topics_by_id.get(found) in (topic, None) for cache in caches for found in known if found)
    path = paths.topic_path(topic)
    stat = harness._store.exists(path)
    if stat is not None:
        known.add(TopicAssignment.from_json(harness._store.read(path)[0], path).topic_id)
    return known


def test_controller_gives_a_topic_of_a_tool_an_id_that_all_brokers_know() -> None:
    harness = BrokerHarness(2, {"t": 1})
    (topic_id,) = ids(harness, "t")
    assert topic_id is not None


def test_topic_made_again_has_another_id_on_all_brokers() -> None:
    harness = BrokerHarness(2, {"t": 1})
    (before,) = ids(harness, "t")
    harness.delete_topic("t")
    assert ids(harness, "t") == {None}
    harness.add_topic("t", 1)
    (after,) = ids(harness, "t")
    assert after is not None
    assert after != before


def test_topic_keeps_its_id_when_an_earlier_tool_adds_partitions() -> None:
    harness = BrokerHarness(2, {"t": 1})
    before = ids(harness, "t")
    harness.add_topic("t", 3)  # written in the form of 0.10.1
    assert ids(harness, "t") == before


def test_new_controller_keeps_the_ids_of_the_one_before() -> None:
    harness = BrokerHarness(2, {"t": 1, "u": 1})
    before = ids(harness, "t"), ids(harness, "u")
    harness.move_controller(2)
    assert (ids(harness, "t"), ids(harness, "u")) == before
