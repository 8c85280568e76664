"""The low-level consumer beside real brokers of 0.10.1.1: messages, metadata, and offsets in both stores."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from minikafka.base.errors import ErrorCode
from minikafka.base.ids import TopicPartition
from minikafka.clients.admin.admin import Admin, NewTopic
from minikafka.clients.network.cluster import ClusterClient
from minikafka.clients.produce import BatchingProducer
from minikafka.clients.simple_consumer import (
    EARLIEST_TIME,
    LATEST_TIME,
    Committed,
    ConsumerMetadataRequest,
    FetchedMessages,
    FetchRequest,
    FetchRequestBuilder,
    MessageIterator,
    OffsetCommitRequest,
    OffsetFetchRequest,
    OffsetMetadataAndError,
    SimpleConsumer,
    TopicMetadataRequest,
)
from minikafka.embedded.process import wait_until
from tests.interop.releases import KAFKA_0_10
from tests.support.kafka_broker import KafkaBroker, running

pytestmark = [pytest.mark.interop, pytest.mark.timeout(180)]

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
LARGE = b"x" * 100_000


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    """With the topic ``t``: in partition 0 two small messages and a large one between them."""
    with running(KAFKA_0_10, tmp_path_factory.mktemp("real-kafka")) as broker:
        with ClusterClient(broker.bootstrap) as cluster:
            Admin(cluster).create_topic(NewTopic("t", 2))
            with BatchingProducer(cluster) as producer:
                for value in (b"a", LARGE, b"b"):
                    producer.send("t", value, partition=0).result()
        yield broker


@pytest.fixture
def consumer(kafka: KafkaBroker) -> Iterator[SimpleConsumer]:
    with SimpleConsumer("127.0.0.1", kafka.port) as consumer:
        yield consumer


def test_messages_of_0_10_1_are_read_from_any_offset(consumer: SimpleConsumer) -> None:
    found = consumer.fetch(FetchRequest("t", 0, 1, 1 << 20))
    assert [(message.offset, message.value) for message in found] == [(1, LARGE), (2, b"b")]
    assert found.high_watermark == found.next_offset == 3
    together = consumer.multifetch([FetchRequest("t", 1, 0, 100), FetchRequest("t", 0, 2, 100)])
    assert [[message.value for message in messages] for messages in together] == [[], [b"b"]]


def test_reads_grow_for_a_large_message_where_0_10_1_cuts_it_off(consumer: SimpleConsumer) -> None:
    def fetch_2(request: FetchRequest) -> FetchedMessages:
        asked = FetchRequestBuilder().request_version(2)
        asked.add_fetch(request.topic, request.partition, request.offset, request.max_size)
        return consumer.fetch(asked.build())[0]

    messages = MessageIterator(fetch_2, FetchRequest("t", 0, 0, 1_000), 1 << 20)
    sizes = [(message.value, messages.buffer_size) for message in messages]
    assert sizes == [(b"a", 1_000), (LARGE, 128_000), (b"b", 128_000)]


def test_offsets_of_logs_are_those_that_0_10_1_tells(consumer: SimpleConsumer) -> None:
    assert consumer.get_offsets_before("t", 0, LATEST_TIME, 10) == [3, 0]
    assert consumer.earliest_or_latest_offset(T0, EARLIEST_TIME) == 0
    assert consumer.earliest_or_latest_offset(T0, LATEST_TIME, consumer_id=-1) == 3
    assert consumer.earliest_or_latest_offset(T1, LATEST_TIME) == 0


def test_metadata_of_0_10_1_name_leaders_and_coordinators(
    consumer: SimpleConsumer, kafka: KafkaBroker
) -> None:
    found = consumer.send(TopicMetadataRequest(("t",)))
    assert [partition.leader_id for partition in found.topics["t"].partitions] == [0, 0]
    assert found.brokers[0].port == kafka.port
    assert wait_until(lambda: consumer.send(ConsumerMetadataRequest("g")).error is ErrorCode.NONE, 30)
    coordinator = consumer.send(ConsumerMetadataRequest("g")).coordinator
    assert coordinator is not None
    assert coordinator.port == kafka.port


@pytest.mark.parametrize("version", [0, 1, 2])
def test_offsets_of_groups_go_to_the_store_of_their_version(consumer: SimpleConsumer, version: int) -> None:
    group = f"group-{version}"
    assert wait_until(lambda: consumer.send(ConsumerMetadataRequest(group)).error is ErrorCode.NONE, 30)
    request = OffsetCommitRequest(group, {T0: Committed(2, "text")}, version)
    assert wait_until(lambda: not consumer.commit_offsets(request).has_error, 30)
    found = {
        asked: consumer.fetch_offsets(OffsetFetchRequest(group, (T0, T1), asked)).offsets for asked in (0, 1)
    }
    kept, other = found[min(version, 1)], found[1 - min(version, 1)]
    assert kept[T0] == OffsetMetadataAndError(2, "text" if version else "", ErrorCode.NONE)
    assert kept[T1].offset == other[T0].offset == other[T1].offset == -1
