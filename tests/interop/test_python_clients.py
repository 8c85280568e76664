"""Other people's Python clients against our broker, byte for byte."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

from minikafka.embedded.cluster import Cluster
from tests.interop.conftest import Pair

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import confluent_kafka
    import kafka

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
PATIENCE_S = 30
HEADERS = [("trace", b"\x00\xff"), ("trace", b""), ("source", b"test")]


def produce_with_kafka_python(
    servers: str, topic: str, pairs: list[Pair], codec: str, *, idempotent: bool = True
) -> None:
    assert (None, None) not in pairs, "kafka-python refuses to send nothing at all"
    producer = kafka.KafkaProducer(
        bootstrap_servers=servers,
        acks="all",
        compression_type=None if codec == "none" else codec,
        enable_idempotence=idempotent,
    )
    sent = [
        producer.send(topic, value=value, key=key, partition=0, timestamp_ms=1000 + i, headers=HEADERS)
        for i, (key, value) in enumerate(pairs)
    ]
    producer.flush(PATIENCE_S)
    assert [future.get(PATIENCE_S).offset for future in sent] == list(range(len(pairs)))
    producer.close()


def consume_with_kafka_python(servers: str, topic: str, count: int) -> list[Any]:
    consumer = kafka.KafkaConsumer(bootstrap_servers=servers, enable_auto_commit=False, group_id=None)
    partition = kafka.TopicPartition(topic, 0)
    consumer.assign([partition])
    consumer.seek(partition, 0)
    records: list[Any] = []
    while len(records) < count:
        polled = consumer.poll(timeout_ms=PATIENCE_S * 1000)
        assert polled, f"nothing more came after {len(records)} of {count} records"
        records += polled[partition]
    consumer.close()
    return records


def produce_with_librdkafka(
    servers: str, topic: str, pairs: list[Pair], codec: str, *, idempotent: bool = False
) -> None:
    failures: list[Any] = []
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": servers,
            "acks": "all",
            "compression.type": codec,
            "linger.ms": 20,
            "enable.idempotence": idempotent,
        }
    )
    for number, (key, value) in enumerate(pairs):
        producer.produce(
            topic,
            value=value,
            key=key,
            partition=0,
            timestamp=1000 + number,
            headers=HEADERS,
            on_delivery=lambda error, _: failures.append(error) if error else None,
        )
    assert producer.flush(PATIENCE_S) == 0
    assert failures == []


def consume_with_librdkafka(servers: str, topic: str, count: int) -> list[Any]:
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": servers, "group.id": "unused", "enable.auto.commit": False}
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    records: list[Any] = []
    while len(records) < count:
        record = consumer.poll(PATIENCE_S)
        assert record is not None, f"nothing more came after {len(records)} of {count} records"
        assert record.error() is None, record.error()
        records.append(record)
    consumer.close()
    return records


@pytest.mark.parametrize(
    "codec", [codec for codec in CODECS if codec != "zstd"]
)  # which it needs another package for
@pytest.mark.parametrize("idempotent", [True, False], ids=["idempotent", "plain"])
def test_kafka_python_gets_back_what_it_sent(
    minikafka_cluster: Cluster, minikafka_topic: str, pairs: list[Pair], codec: str, idempotent: bool
) -> None:
    servers, pairs = minikafka_cluster.bootstrap_servers, pairs[1:]
    produce_with_kafka_python(servers, minikafka_topic, pairs, codec, idempotent=idempotent)
    records = consume_with_kafka_python(servers, minikafka_topic, len(pairs))
    assert [(record.key, record.value) for record in records] == pairs
    assert [record.offset for record in records] == list(range(len(pairs)))
    assert [record.timestamp for record in records] == [1000 + number for number in range(len(pairs))]
    assert all(list(record.headers) == HEADERS for record in records)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("idempotent", [True, False], ids=["idempotent", "plain"])
def test_librdkafka_gets_back_what_it_sent(
    minikafka_cluster: Cluster, minikafka_topic: str, pairs: list[Pair], codec: str, idempotent: bool
) -> None:
    servers = minikafka_cluster.bootstrap_servers
    produce_with_librdkafka(servers, minikafka_topic, pairs, codec, idempotent=idempotent)
    records = consume_with_librdkafka(servers, minikafka_topic, len(pairs))
    assert [(record.key(), record.value()) for record in records] == pairs
    assert [record.timestamp()[1] for record in records] == [1000 + number for number in range(len(pairs))]
    assert all(record.headers() == HEADERS for record in records)


def test_what_librdkafka_sent_kafka_python_reads(
    minikafka_cluster: Cluster, minikafka_topic: str, pairs: list[Pair]
) -> None:
    servers = minikafka_cluster.bootstrap_servers
    produce_with_librdkafka(servers, minikafka_topic, pairs, "lz4")
    records = consume_with_kafka_python(servers, minikafka_topic, len(pairs))
    assert [(record.key, record.value) for record in records] == pairs


def test_kafka_python_finds_offsets_by_time(
    minikafka_cluster: Cluster, minikafka_topic: str, pairs: list[Pair]
) -> None:
    servers, pairs = minikafka_cluster.bootstrap_servers, pairs[1:]
    produce_with_kafka_python(servers, minikafka_topic, pairs, "gzip")
    consumer = kafka.KafkaConsumer(bootstrap_servers=servers, group_id=None)
    partition = kafka.TopicPartition(minikafka_topic, 0)
    found = consumer.offsets_for_times({partition: 1100})[partition]
    assert (found.offset, found.timestamp) == (100, 1100)
    assert consumer.beginning_offsets([partition]) == {partition: 0}
    assert consumer.end_offsets([partition]) == {partition: len(pairs)}
    consumer.close()


def test_kafka_python_creates_and_deletes_topics(minikafka_cluster: Cluster) -> None:
    admin = kafka.KafkaAdminClient(bootstrap_servers=minikafka_cluster.bootstrap_servers)
    admin.create_topics({"made-by-kafka-python": {"num_partitions": 3, "replication_factor": 1}})
    described = {topic["name"]: topic for topic in admin.describe_topics(["made-by-kafka-python"])}
    assert len(described["made-by-kafka-python"]["partitions"]) == 3
    admin.delete_topics(["made-by-kafka-python"])
    assert "made-by-kafka-python" not in admin.list_topics()
    admin.close()
