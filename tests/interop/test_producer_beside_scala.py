"""Our producer of the texts and the Scala producer of Kafka 0.10.1.1 fill one topic of a broker of that
release: a key of either is in one partition.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pyarrow as pa
import pytest

from minikafka.base.ids import TopicPartition
from minikafka.clients.admin.admin import LATEST, Admin, NewTopic
from minikafka.clients.fetch.range_fetcher import RangeFetcher
from minikafka.clients.network.cluster import ClusterClient as Client
from minikafka.clients.producer import KeyedMessage, Producer
from minikafka.embedded.java import find_java
from minikafka.records.format.message_set import iterate
from tests.interop.releases import JVM, KAFKA_0_10, PATIENCE_S, java_environment
from tests.support.kafka_broker import running

pytestmark = [pytest.mark.interop, pytest.mark.timeout(180)]

TOPIC, PARTITIONS = "t", 7
KEYS = [f"key-{number}" for number in range(40)] + ["ключ", "日本語", "🚀"]


def scala_producer(bootstrap: str) -> None:
    """The console's old producer, which puts keys of bytes where ByteArrayPartitioner does."""
    tool = ["kafka.tools.ConsoleProducer", "--broker-list", bootstrap, "--topic", TOPIC, "--old-producer"]
    options = ["--sync", "--request-required-acks", "1"]
    reading = ["--property", "parse.key=true", "--property", "key.separator=:"]
    done = subprocess.run(
        [find_java().path, *JVM, "-cp", f"{KAFKA_0_10.libs()}/*", *tool, *options, *reading],
        input="".join(f"{key}:scala\n" for key in KEYS),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        env=java_environment(),
    )
    assert done.returncode == 0, done.stderr


def test_keys_meet_in_one_partition_whoever_sends_them(tmp_path: Path) -> None:
    with running(KAFKA_0_10, tmp_path) as broker, Client(broker.bootstrap) as client:
        Admin(client).create_topic(NewTopic(TOPIC, PARTITIONS))
        scala_producer(broker.bootstrap)
        settings = {
            "metadata.broker.list": broker.bootstrap,
            "request.required.acks": -1,
            "compression.codec": "snappy",
        }
        keys = [key.encode() for key in KEYS]
        with Producer(settings) as producer:
            producer.send([KeyedMessage(TOPIC, b"ours", key) for key in keys])
            producer.send_values(TOPIC, pa.array([b"column"] * len(keys)), pa.array(keys))
        found: dict[str, list[tuple[int, bytes | None]]] = {}
        for tp in (TopicPartition(TOPIC, number) for number in range(PARTITIONS)):
            end = Admin(client).offsets({tp: LATEST})[tp]
            for data in RangeFetcher(client, tp, 0, end or 0):
                for record in iterate(data):
                    assert record.magic == 1
                    found.setdefault((record.key or b"").decode(), []).append((tp.partition, record.value))
    for key in KEYS:
        (number, _), *_ = found[key]
        assert found[key] == [(number, b"scala"), (number, b"ours"), (number, b"column")], key
    assert len({number for places in found.values() for number, _ in places}) == PARTITIONS
