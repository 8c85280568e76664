"""Requests of the simple consumer other than fetches: metadata, coordinators and offsets of groups."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from minikafka.base.errors import BrokerError, ErrorCode
from minikafka.base.ids import BrokerAddress, TopicPartition
from minikafka.clients.simple_consumer import (
    Committed,
    ConsumerMetadataRequest,
    FetchRequest,
    FetchRequestBuilder,
    OffsetCommitRequest,
    OffsetFetchRequest,
    OffsetMetadataAndError,
    SimpleConsumer,
    TopicMetadataRequest,
)
from minikafka.clients.simple_consumer.simple_consumer import EARLIEST_TIME
from minikafka.registry import paths
from tests.support.simple_consumer_harness import SimpleConsumerHarness

T0, T1, T7 = (TopicPartition("t", number) for number in (0, 1, 7))
NONE = OffsetMetadataAndError(-1, "", ErrorCode.NONE)


@pytest.fixture
def harness() -> Iterator[SimpleConsumerHarness]:
    harness = SimpleConsumerHarness()
    yield harness
    harness.consumer.close()


def test_topic_metadata_has_brokers_leaders_and_errors(harness: SimpleConsumerHarness) -> None:
    found = harness.consumer.send(TopicMetadataRequest(("t", "other")))
    assert found.brokers == {0: BrokerAddress(0, "machine-0", 9092)}
    assert [(part.topic_partition, part.leader_id) for part in found.topics["t"].partitions] == [
        (T0, 0),
        (T1, 0),
    ]
    assert found.topics["other"].error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert set(harness.consumer.send(TopicMetadataRequest()).topics) == {"t"}


def test_coordinator_of_a_group_is_returned_or_an_error(harness: SimpleConsumerHarness) -> None:
    first = harness.consumer.send(ConsumerMetadataRequest("g"))
    assert first.coordinator is None
    assert first.error is ErrorCode.GROUP_COORDINATOR_NOT_AVAILABLE
    assert harness.coordinator("g") == BrokerAddress(0, "machine-0", 9092)


def test_version_0_keeps_offsets_in_zookeeper(harness: SimpleConsumerHarness) -> None:
    done = harness.consumer.commit_offsets(
        OffsetCommitRequest("g", {T0: Committed(5), T7: Committed(1)}, version=0)
    )
    assert done.errors == {T0: ErrorCode.NONE, T7: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert done.has_error
    store = harness.simulation.zookeeper.connect()
    assert store.read(paths.consumer_offset_path("g", *T0))[0] == b"5"
    found = harness.consumer.fetch_offsets(OffsetFetchRequest("g", (T0, T1), version=0)).offsets
    assert found[T0] == OffsetMetadataAndError(5, "", ErrorCode.NONE)
    assert found[T1] == OffsetMetadataAndError(-1, "", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


@pytest.mark.parametrize("version", [1, 2, 5])
def test_later_versions_keep_offsets_with_the_coordinator(
    harness: SimpleConsumerHarness, version: int
) -> None:
    harness.coordinator("g")
    request = OffsetCommitRequest("g", {T0: Committed(5, "half")}, version)
    assert not harness.consumer.commit_offsets(request).has_error
    found = harness.consumer.fetch_offsets(OffsetFetchRequest("g", (T0, T1), version))
    assert found.offsets == {T0: OffsetMetadataAndError(5, "half", ErrorCode.NONE), T1: NONE}
    assert found.error is ErrorCode.NONE
    in_zookeeper = harness.consumer.fetch_offsets(OffsetFetchRequest("g", (T0,), version=0))
    assert in_zookeeper.offsets[T0].offset == -1


def test_partitions_may_be_pairs_of_topic_and_number(harness: SimpleConsumerHarness) -> None:
    harness.coordinator("g")
    request = OffsetCommitRequest("g", {("t", 0): Committed(5)})  # type: ignore[dict-item]
    assert harness.consumer.commit_offsets(request).errors == {T0: ErrorCode.NONE}
    fetch = OffsetFetchRequest("g", (("t", 0),))  # type: ignore[arg-type]
    assert harness.consumer.fetch_offsets(fetch).offsets[T0].offset == 5
    assert harness.consumer.earliest_or_latest_offset(("t", 0), EARLIEST_TIME) == 0


@pytest.mark.parametrize("offsets", [{T0: 5}, [T0], {T0: (5, "")}], ids=str)
def test_offsets_that_are_not_committed_are_refused_with_an_example(offsets: Any) -> None:
    with pytest.raises(TypeError, match=r"as {TopicPartition\('flights', 0\): Committed\(12\)}, got "):
        OffsetCommitRequest("g", offsets)


@pytest.mark.parametrize("argument", ["t", ("t", "0"), ("t",), 5])
def test_argument_that_is_not_a_partition_is_refused(harness: SimpleConsumerHarness, argument: Any) -> None:
    with pytest.raises(TypeError, match=r"expected a TopicPartition\(topic, number\), got "):
        harness.consumer.earliest_or_latest_offset(argument, EARLIEST_TIME)


def test_commit_of_an_unknown_generation_is_refused(harness: SimpleConsumerHarness) -> None:
    harness.coordinator("g")
    request = OffsetCommitRequest("g", {T0: Committed(5)}, generation_id=3, consumer_id="unknown")
    assert harness.consumer.commit_offsets(request).errors[T0] in {
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
    }


@pytest.mark.parametrize(
    "call",
    [
        lambda consumer: consumer.send(TopicMetadataRequest(("t",))),
        lambda consumer: consumer.send(ConsumerMetadataRequest("g")),
        lambda consumer: consumer.commit_offsets(OffsetCommitRequest("g", {T0: Committed(5)}, version=0)),
        lambda consumer: consumer.fetch_offsets(OffsetFetchRequest("g", (T0,))),
        lambda consumer: consumer.fetch(
            FetchRequestBuilder().add_fetch("t", 0, 0, 9).max_wait(9).min_bytes(1).build()
        ),
    ],
    ids=["topics", "coordinator", "commit", "offsets", "waiting"],
)
def test_classic_protocol_has_only_fetches_and_offsets(
    harness: SimpleConsumerHarness, call: Callable[[SimpleConsumer], object]
) -> None:
    with (
        harness.new_consumer(9094) as classic,
        pytest.raises(BrokerError, match="use a Kafka listener") as raised,
    ):
        call(classic)
    assert raised.value.code is ErrorCode.UNSUPPORTED_VERSION
    with harness.new_consumer(9094) as classic:
        assert list(classic.fetch(FetchRequest("t", 0, 0, 9))) == []
