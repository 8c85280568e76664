"""Streams and their fetchers on real brokers and a real ZooKeeper."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import pytest

from minikafka.base.ids import TopicPartition
from minikafka.clients.consumer.chunks import INVALID_OFFSET, ChunkQueue, PartitionTopicInfo
from minikafka.clients.consumer.config import ConsumerConfig
from minikafka.clients.consumer.fetcher_manager import ConsumerFetcherManager
from minikafka.clients.consumer.stats import ConsumerTopicStatsRegistry, FetchRequestAndResponseStatsRegistry
from minikafka.clients.consumer.streams import ConsumerIterator, KafkaStream
from minikafka.clients.network.cluster import ClusterClient as Client
from minikafka.clients.produce.config import BatchingConfig
from minikafka.clients.produce.producer import BatchingProducer
from minikafka.clients.serializer import IntegerEncoder, StringDecoder
from minikafka.embedded import Cluster
from minikafka.records.format.message_set import Codec
from minikafka.registry.zookeeper import ZooKeeperStore

pytestmark = [pytest.mark.process, pytest.mark.timeout(120)]

CLIENT = "streams-on-a-cluster"
PARTITIONS = 4
FETCH_BYTES = 3_000
"""Room for one batch of the producer."""
CODECS = (Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4)


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(2) as cluster:
        yield cluster
    ConsumerTopicStatsRegistry.remove(CLIENT)
    FetchRequestAndResponseStatsRegistry.remove(CLIENT)


def produce(cluster: Cluster, first: int, count: int, codec: Codec) -> None:
    """Numbers from ``first`` on, as text, to all partitions in turn."""
    with (
        Client(cluster.bootstrap_servers) as client,
        BatchingProducer(client, BatchingConfig(acks=-1, compression=codec)) as producer,
    ):
        for number in range(first, first + count):
            key = IntegerEncoder().to_bytes(number)
            producer.send("t", b"%d" % number, key=key, partition=number % PARTITIONS)
        producer.flush()


def take(streams: list[KafkaStream[str, str]], count: int) -> list[list[tuple[int, int, str | None]]]:
    """``count`` messages of each stream, as partition, offset and text."""
    return [[(m.partition, m.offset, m.message) for m in islice(stream, count)] for stream in streams]


def numbers(partition: int, first: int, count: int) -> list[tuple[int, int, str]]:
    """Return the offsets of a partition from ``first`` on."""
    return [(partition, at, str(at * PARTITIONS + partition)) for at in range(first, first + count)]


def test_streams_continue_while_a_leader_is_restarted(cluster: Cluster) -> None:
    cluster.create_topic("t", partitions=PARTITIONS, replicas=2)
    config = ConsumerConfig(
        "g",
        cluster.zookeeper_connect,
        client_id=CLIENT,
        fetch_message_max_bytes=FETCH_BYTES,
        num_consumer_fetchers=2,
        auto_offset_reset="smallest",
        consumer_timeout_ms=60_000,
    )
    queues = [ChunkQueue(config.queued_max_message_chunks) for _ in range(2)]
    text = StringDecoder()
    streams = [
        KafkaStream(ConsumerIterator(queue, config.consumer_timeout_ms, text, text, CLIENT))
        for queue in queues
    ]
    infos = [
        PartitionTopicInfo(
            "t", number, queues[number // 2], INVALID_OFFSET, INVALID_OFFSET, FETCH_BYTES, CLIENT
        )
        for number in range(PARTITIONS)
    ]
    store = ZooKeeperStore(cluster.zookeeper_connect)
    manager = ConsumerFetcherManager("g_c", config, store)
    try:
        manager.start_connections(infos)
        for round_, codec in enumerate(CODECS):
            produce(cluster, round_ * 400, 400, codec)
            if round_ == 1:
                cluster.stop_broker(0)
            if round_ == 2:
                cluster.restart(0)
            for pair, found in enumerate(take(streams, 200)):
                for partition in (2 * pair, 2 * pair + 1):
                    rows = [row for row in found if row[0] == partition]
                    assert rows == numbers(partition, round_ * 100, 100)
        manager.stop_connections()
        for stream in streams:
            stream.iterator().mark_delivered_consumed()
        assert [info.consumed_offset for info in infos] == [400] * PARTITIONS
        assert [info.lag for info in infos] == [0] * PARTITIONS
        stats = ConsumerTopicStatsRegistry.get(CLIENT).topic("t")
        assert stats.bytes_.count > 0
        assert FetchRequestAndResponseStatsRegistry.get(CLIENT).all_brokers.requests.count > 0
        assert TopicPartition("t", 0) == infos[0].topic_partition
    finally:
        manager.shutdown()
        store.close()
