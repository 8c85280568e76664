"""``clients/network/metadata``: the view of a response, and merged views."""

from __future__ import annotations

from minikafka.base.errors import ErrorCode
from minikafka.base.ids import BrokerAddress, TopicPartition
from minikafka.clients.network.metadata import ClusterMetadata, from_response
from minikafka.wire.apis.metadata import (
    MetadataBroker,
    MetadataPartition,
    MetadataResponse,
    MetadataTopic,
)


def view(*topics: MetadataTopic, brokers: tuple[int, ...] = (1, 2), now_ms: int = 7) -> ClusterMetadata:
    rows = tuple(MetadataBroker(b, f"h{b}", 9000 + b, "r") for b in brokers)
    return from_response(MetadataResponse(0, rows, "id", 2, topics), now_ms)


def topic(name: str, *leaders: int, code: ErrorCode = ErrorCode.NONE) -> MetadataTopic:
    # In reverse, as brokers give partitions in no particular order.
    rows = [MetadataPartition(0, p, leader, 0, (1, 2), (leader,)) for p, leader in enumerate(leaders)]
    return MetadataTopic(int(code), name, False, tuple(reversed(rows)))


def test_a_response_becomes_sorted_partitions_with_their_leaders() -> None:
    seen = view(topic("t", 1, 2, -1))
    described = seen.topics["t"]
    assert [p.topic_partition.partition for p in described.partitions] == [0, 1, 2]
    assert described.available == (0, 1)
    assert described.fetched_ms == 7
    assert seen.leader(TopicPartition("t", 1)) == BrokerAddress(2, "h2", 9002, "r")
    assert seen.leader(TopicPartition("t", 2)) is None
    assert (seen.controller_id, seen.cluster_id) == (2, "id")


def test_unknown_topics_partitions_and_brokers_have_no_leader() -> None:
    seen = view(topic("t", 9))
    assert seen.leader(TopicPartition("t", 0)) is None
    assert seen.leader(TopicPartition("t", 1)) is None
    assert seen.leader(TopicPartition("u", 0)) is None
    assert seen.topics["t"].partition(-1) is None


def test_partitions_are_found_where_numbers_are_missing() -> None:
    row = MetadataPartition(0, 5, 1, 0, (1,), (1,))
    seen = view(MetadataTopic(0, "t", False, (row,)))
    found = seen.partition(TopicPartition("t", 5))
    assert found is not None
    assert found.leader_id == 1
    assert seen.partition(TopicPartition("t", 0)) is None


def test_a_controller_that_is_not_alive_is_none() -> None:
    assert view(brokers=(1,)).controller_id is None


def test_newer_topics_replace_older_ones_and_the_others_stay() -> None:
    merged = view(topic("a", 1), topic("b", 1)).merged(view(topic("b", 2, 2), brokers=(2,)))
    assert merged.leader(TopicPartition("b", 1)) == merged.brokers[2]
    assert merged.leader(TopicPartition("a", 0)) is None  # broker 1 is gone
    assert len(merged.topics["a"].partitions) == 1


def test_partitions_stay_known_after_metadata_of_a_new_broker() -> None:
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    merged = view(topic("a", 1, 2)).merged(view(topic("a", code=code)))
    assert len(merged.topics["a"].partitions) == 2
    assert merged.topics["a"].available == ()
    assert merged.topics["a"].error is code


def test_it_says_why_a_topic_cannot_be_written() -> None:
    seen = view(topic("good", 1), topic("headless", 1, -1), topic("bad", code=ErrorCode.INVALID_TOPIC))
    assert seen.why_unusable("good") is None
    assert "LEADER_NOT_AVAILABLE: no leader for headless-1 at the mom" in str(seen.why_unusable("headless"))
    assert str(seen.why_unusable("bad")) == "INVALID_TOPIC: topic 'bad'"
    assert "no metadata of topic 'other'" in str(seen.why_unusable("other"))
