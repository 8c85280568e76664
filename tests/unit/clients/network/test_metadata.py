"""``clients/network/metadata``: the view of a response, merged views, the cache, and topic creation."""

from __future__ import annotations

import pytest

from minikafka.base.errors import ErrorCode
from minikafka.base.ids import BrokerAddress, TopicPartition
from minikafka.clients.network.metadata import (
    AutoTopicCreation,
    ClusterMetadata,
    LeaderAndEpoch,
    Metadata,
    from_response,
)
from minikafka.wire.apis.metadata import (
    MetadataBroker,
    MetadataPartition,
    MetadataResponse,
    MetadataTopic,
    metadata_request,
)
from minikafka.wire.fields import ZERO_UUID

FIRST_ID, SECOND_ID = b"\1" * 16, b"\2" * 16


def view(
    *topics: MetadataTopic, brokers: tuple[int, ...] = (1, 2), now_ms: int = 7, version: int = 12
) -> ClusterMetadata:
    rows = tuple(MetadataBroker(b, f"h{b}", 9000 + b, "r") for b in brokers)
    return from_response(MetadataResponse(0, rows, "id", 2, topics), now_ms, (), version)


def topic(
    name: str, *leaders: int, code: ErrorCode = ErrorCode.NONE, epoch: int = 0, topic_id: bytes = ZERO_UUID
) -> MetadataTopic:
    # In reverse, as brokers give partitions in no particular order.
    rows = [MetadataPartition(0, p, leader, epoch, (1, 2), (leader,)) for p, leader in enumerate(leaders)]
    return MetadataTopic(int(code), name, False, tuple(reversed(rows)), topic_id=topic_id)


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


@pytest.mark.parametrize(
    ("epoch", "expected"), [(4, (1, 5)), (5, (2, 5)), (6, (2, 6)), (-1, (2, -1))], ids=str
)
@pytest.mark.parametrize("requested", [{"t"}, None], ids=["topic", "all topics"])
def test_an_older_leader_epoch_does_not_replace_a_newer_one(
    epoch: int, expected: tuple[int, int], requested: set[str] | None
) -> None:
    cache, tp = Metadata(max_age_ms=1_000), TopicPartition("t", 0)
    cache.update(view(topic("t", 1, epoch=5)), {"t"})
    seen = cache.update(view(topic("t", 2, epoch=epoch)), requested)
    assert seen.leader_and_epoch(tp) == expected
    assert seen.leader_epoch(tp) == expected[1]


def test_an_older_leader_epoch_that_stays_is_of_a_recreated_topic() -> None:
    cache, older = Metadata(max_age_ms=1_000), view(topic("t", 2, epoch=0))
    cache.update(view(topic("t", 1, epoch=5)), {"t"})
    leaders = [cache.update(older, {"t"}).leader_and_epoch(TopicPartition("t", 0)) for _ in range(6)]
    assert leaders == [(1, 5)] * 5 + [(2, 0)]


@pytest.mark.parametrize("requested", [{"t"}, None], ids=["topic", "all topics"])
@pytest.mark.parametrize("before", [FIRST_ID, ZERO_UUID], ids=["another", "none"])
def test_a_topic_with_a_new_id_begins_with_its_own_epochs(before: bytes, requested: set[str] | None) -> None:
    cache, tp = Metadata(max_age_ms=1_000), TopicPartition("t", 0)
    cache.update(view(topic("t", 1, epoch=5, topic_id=before)), {"t"})
    seen = cache.update(view(topic("t", 2, epoch=0, topic_id=SECOND_ID)), requested)
    assert seen.leader_and_epoch(tp) == (2, 0)
    assert seen.topic_id("t") == SECOND_ID


@pytest.mark.parametrize("topic_id", [FIRST_ID, ZERO_UUID], ids=["same", "none"])
def test_an_older_epoch_of_the_same_topic_does_not_count(topic_id: bytes) -> None:
    cache = Metadata(max_age_ms=1_000)
    cache.update(view(topic("t", 1, epoch=5, topic_id=FIRST_ID)), {"t"})
    seen = cache.update(view(topic("t", 2, epoch=4, topic_id=topic_id)), {"t"})
    assert seen.leader_and_epoch(TopicPartition("t", 0)) == (1, 5)


@pytest.mark.parametrize(
    ("named", "known", "expected"),
    [
        (LeaderAndEpoch(3, 6), {3}, (3, 6)),
        (LeaderAndEpoch(3, 5), {3}, (1, 5)),
        (LeaderAndEpoch(3, -1), {3}, (1, 5)),
        (LeaderAndEpoch(3, 6), {2}, (1, 5)),
    ],
    ids=["newer", "same epoch", "no epoch", "no address"],
)
def test_newer_leader_that_a_broker_names_is_taken(
    named: LeaderAndEpoch, known: set[int], expected: tuple[int, int]
) -> None:
    cache, tp = Metadata(max_age_ms=1_000), TopicPartition("t", 0)
    cache.update(view(topic("t", 1, 2, epoch=5)), {"t"})
    cache.update_leaders({tp: named}, {node: BrokerAddress(node, "new", 1) for node in known})
    assert cache.view.leader_and_epoch(tp) == expected
    assert cache.view.leader_and_epoch(TopicPartition("t", 1)) == (2, 5)
    assert cache.is_fresh("t", 8)


def test_leader_of_an_unknown_partition_is_not_taken() -> None:
    cache = Metadata(max_age_ms=1_000)
    cache.update_leaders({TopicPartition("t", 0): LeaderAndEpoch(1, 1)}, {1: BrokerAddress(1, "new", 1)})
    assert cache.view.topics == {}


def test_unknown_topics_and_those_with_an_error_have_no_id() -> None:
    cache, error = Metadata(max_age_ms=1_000), topic("t", code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    cache.update(view(topic("t", 1, topic_id=FIRST_ID)), {"t"})
    assert cache.update(view(error), {"t"}).topic_id("t") == ZERO_UUID
    assert cache.view.topic_id("u") == ZERO_UUID


@pytest.mark.parametrize(("version", "epoch"), [(8, -1), (9, 3)])
def test_leader_epochs_count_from_metadata_9_on(version: int, epoch: int) -> None:
    seen = view(topic("t", 1, epoch=3), version=version)
    assert seen.leader_and_epoch(TopicPartition("t", 0)) == (1, epoch)


def test_a_topic_that_a_broker_does_not_know_has_no_leader_epoch() -> None:
    cache, tp = Metadata(max_age_ms=1_000), TopicPartition("t", 0)
    cache.update(view(topic("t", 1, epoch=5)), {"t"})
    cache.update(view(topic("t", code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)), {"t"})
    assert cache.view.leader_epoch(tp) == -1
    assert cache.update(view(topic("t", 2, epoch=0)), {"t"}).leader_and_epoch(tp) == (2, 0)


def test_an_unknown_leader_has_no_epoch() -> None:
    seen = view(topic("t", 9, epoch=3))
    assert seen.leader_and_epoch(TopicPartition("t", 0)) is None
    assert seen.leader_and_epoch(TopicPartition("t", 1)) is None
    assert seen.leader_epoch(TopicPartition("t", 1)) == -1


def test_it_says_why_a_topic_cannot_be_written() -> None:
    seen = view(topic("good", 1), topic("headless", 1, -1), topic("bad", code=ErrorCode.INVALID_TOPIC))
    assert seen.why_unusable("good") is None
    assert "LEADER_NOT_AVAILABLE: no leader for headless-1 at the mom" in str(seen.why_unusable("headless"))
    assert str(seen.why_unusable("bad")) == "INVALID_TOPIC: topic 'bad'"
    assert "no metadata of topic 'other'" in str(seen.why_unusable("other"))


def test_leader_without_the_clients_listener_is_told_with_what_to_set() -> None:
    row = MetadataPartition(ErrorCode.LISTENER_NOT_FOUND, 0, -1, 0, (2,), (2,))
    seen = view(topic("good", 1), MetadataTopic(0, "t", False, (row,)), brokers=(1,))
    assert seen.without_listener() == [TopicPartition("t", 0)]
    for error in (seen.why_unusable("t"), seen.no_leader_error([TopicPartition("t", 0)])):
        assert str(error) == (
            "LISTENER_NOT_FOUND: the leader of t-0 does not have the listener that this client uses; set "
            "bootstrap.servers and security.protocol to a listener that all brokers have"
        )


def test_broker_that_is_not_in_the_metadata_is_named_as_the_reason() -> None:
    row = MetadataPartition(ErrorCode.LEADER_NOT_AVAILABLE, 0, -1, 0, (2,), (2,))
    error = view(MetadataTopic(0, "t", False, (row,)), brokers=(1,)).why_unusable("t")
    assert str(error).endswith("no leader for t-0 at the moment: broker 2 is down, or has other listeners")


def test_a_cached_topic_is_fresh_until_its_age_limit() -> None:
    cache = Metadata(max_age_ms=1_000)
    assert not cache.is_fresh("t", 7)
    cache.update(view(topic("t", 1), now_ms=7), {"t"})
    assert cache.is_fresh("t", 1_006)
    assert not cache.is_fresh("t", 1_007)


def test_a_cached_topic_with_an_error_is_not_fresh() -> None:
    cache = Metadata(max_age_ms=1_000)
    cache.update(view(topic("t", code=ErrorCode.LEADER_NOT_AVAILABLE)), {"t"})
    assert not cache.is_fresh("t", 8)


def test_an_invalidated_topic_is_stale_until_an_update_covers_it() -> None:
    cache = Metadata(max_age_ms=1_000)
    cache.update(view(topic("t", 1), topic("u", 1)), None)
    cache.invalidate("t")
    assert (cache.is_fresh("t", 8), cache.is_fresh("u", 8)) == (False, True)
    assert (cache.fetched_since({"t"}, 0), cache.fetched_since({"u"}, 0)) == (False, True)
    cache.update(view(topic("u", 2)), {"u"})
    assert not cache.is_fresh("t", 8)
    cache.update(view(topic("t", 2)), {"t"})
    assert cache.is_fresh("t", 8)


def test_version_changes_with_updates_and_the_first_invalidation() -> None:
    cache = Metadata(max_age_ms=1_000)
    cache.update(view(topic("t", 1)), {"t"})
    versions = [cache.version_at(8), cache.version_at(9)]
    assert len(set(versions)) == 1
    cache.invalidate("t")
    versions += [cache.version_at(9)]
    cache.invalidate("t")
    assert cache.version_at(9) == versions[-1]
    cache.update(view(topic("t", 1)), {"t"})
    versions += [cache.version_at(9)]
    assert len(set(versions)) == 3


def test_version_changes_when_a_topic_becomes_too_old() -> None:
    cache = Metadata(max_age_ms=1_000)
    cache.update(view(topic("t", 1), now_ms=7), {"t"})
    cache.update(view(topic("u", 1), now_ms=9), {"u"})
    versions = [cache.version_at(now_ms) for now_ms in (10, 1_006, 1_007, 1_008, 1_009, 5_000)]
    assert versions == [versions[0]] * 2 + [versions[2]] * 2 + [versions[4]] * 2
    assert len(set(versions)) == 3


def test_an_update_of_all_topics_forgets_deleted_ones() -> None:
    cache = Metadata(max_age_ms=1_000)
    cache.update(view(topic("t", 1), topic("u", 1)), None)
    assert set(cache.update(view(topic("u", 2)), {"u"}).topics) == {"t", "u"}
    assert set(cache.update(view(topic("u", 2)), None).topics) == {"u"}


def test_fetched_since_needs_all_topics_after_that_time() -> None:
    cache = Metadata(max_age_ms=1_000)
    cache.update(view(topic("t", 1), now_ms=7), {"t"})
    assert cache.fetched_since({"t"}, 6)
    assert not cache.fetched_since({"t"}, 7)
    assert not cache.fetched_since({"t", "unknown"}, 6)


@pytest.mark.parametrize(
    ("allowed", "topics", "version", "requested"),
    [
        (True, ("t",), 1, ("t",)),
        (False, ("t",), 4, ("t",)),
        (False, ("t",), 3, None),
        (False, (), 3, ()),
        (False, None, 7, None),
    ],
)
def test_topics_are_named_only_if_that_creates_none(
    allowed: bool, topics: tuple[str, ...] | None, version: int, requested: tuple[str, ...] | None
) -> None:
    assert AutoTopicCreation(allowed).request(topics, version) == metadata_request(requested, allowed)
