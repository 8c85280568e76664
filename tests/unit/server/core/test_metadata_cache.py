"""The broker's picture of the cluster."""

from minikafka.base.endpoints import LiveBroker
from minikafka.base.ids import BrokerAddress, TopicPartition
from minikafka.controller.election import LEADER_DURING_DELETE
from minikafka.partition.replica import LeaderAndIsr
from minikafka.server.core.metadata_cache import MetadataCache

ONE = LiveBroker.plaintext(1, "localhost", 9092)
LED = LeaderAndIsr(1, 0, (1,), (1,), 1)
GOING = LeaderAndIsr(LEADER_DURING_DELETE, 0, (), (1,), 1)


def test_an_update_adds_partitions_in_order_and_keeps_the_others() -> None:
    metadata_cache = MetadataCache("id").updated(
        {1: ONE}, {TopicPartition("t", 2): LED, TopicPartition("u", 0): LED}, {}
    )
    metadata_cache = metadata_cache.updated({1: ONE}, {TopicPartition("t", 0): LED}, {})
    assert list(metadata_cache.topics["t"]) == [0, 2]
    assert metadata_cache.leadership(TopicPartition("u", 0)) == LED


def test_deleted_partitions_remove_the_topic_with_the_last_one() -> None:
    metadata_cache = MetadataCache("id").updated(
        {1: ONE}, {TopicPartition("t", 0): LED, TopicPartition("t", 1): LED}, {}
    )
    metadata_cache = metadata_cache.updated({1: ONE}, {TopicPartition("t", 0): GOING}, {})
    assert list(metadata_cache.topics["t"]) == [1]
    metadata_cache = metadata_cache.updated({1: ONE}, {TopicPartition("t", 1): GOING}, {})
    assert "t" not in metadata_cache.topics


def test_an_image_is_never_changed_in_place() -> None:
    before = MetadataCache("id").updated({1: ONE}, {TopicPartition("t", 0): LED}, {})
    before.updated({}, {TopicPartition("t", 0): GOING}, {})
    assert before.leadership(TopicPartition("t", 0)) == LED
    assert before.brokers == {1: ONE}


def test_addresses_on_a_listener_follow_the_brokers() -> None:
    metadata_cache = MetadataCache("id").updated({1: ONE}, {}, {})
    assert metadata_cache.addresses("PLAINTEXT") == {1: BrokerAddress(1, "localhost", 9092)}
    assert metadata_cache.addresses("PLAINTEXT") is metadata_cache.addresses("PLAINTEXT")
    assert metadata_cache.addresses("SASL_SSL") == {}
    moved = metadata_cache.updated({1: LiveBroker.plaintext(1, "elsewhere", 9092)}, {}, {})
    assert moved.addresses("PLAINTEXT") == {1: BrokerAddress(1, "elsewhere", 9092)}


def test_a_topic_is_found_by_its_id_until_it_is_deleted() -> None:
    first = TopicPartition("t", 0)
    cache = MetadataCache("id").updated({1: ONE}, {first: LED}, {"t": b"1" * 16})
    assert (cache.topics_by_id, cache.ids_changed) == ({b"1" * 16: "t"}, 1)
    same = cache.updated({1: ONE}, {first: LED}, {})
    assert (same.topic_ids, same.ids_changed) == ({"t": b"1" * 16}, 1)
    gone = cache.updated({1: ONE}, {first: GOING}, {"t": b"1" * 16})
    assert (gone.topics_by_id, gone.ids_changed) == ({}, 2)


def test_a_topic_made_again_has_none_of_the_earlier_partitions() -> None:
    before = {TopicPartition("t", 0): LED, TopicPartition("t", 1): LED}
    cache = MetadataCache("id").updated({1: ONE}, before, {"t": b"1" * 16})
    cache = cache.updated({1: ONE}, {TopicPartition("t", 0): LED}, {"t": b"2" * 16})
    assert list(cache.topics["t"]) == [0]
    assert cache.topics_by_id == {b"2" * 16: "t"}
