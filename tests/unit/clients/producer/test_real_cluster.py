"""The producer with its own threads and sockets, against an embedded broker."""

from __future__ import annotations

import subprocess
import sys
import threading

import pyarrow as pa
import pytest

from minikafka.base.ids import TopicPartition
from minikafka.clients.admin.admin import LATEST, Admin
from minikafka.clients.fetch.range_fetcher import RangeFetcher
from minikafka.clients.network.cluster import ClusterClient as Client
from minikafka.clients.producer import KeyedMessage, Producer
from minikafka.clients.producer.partitioner import DefaultPartitioner
from minikafka.embedded import Cluster
from minikafka.records.format.message_set import iterate

pytestmark = pytest.mark.process

COUNT = 3


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_all_send_methods_reach_the_partitions_of_their_keys(
    minikafka_cluster: Cluster, minikafka_topic: str, kind: str
) -> None:
    topic = minikafka_topic
    settings = {
        "metadata.broker.list": minikafka_cluster.bootstrap_servers,
        "producer.type": kind,
        "request.required.acks": -1,
        "compression.codec": "gzip",
        "serializer.class": "kafka.serializer.StringEncoder",
    }
    keys = [f"key-{number}" for number in range(20)]
    with Client(minikafka_cluster.bootstrap_servers) as client:
        Admin(client).create_partitions(topic, COUNT)
        with Producer(settings) as producer:
            for key in keys:
                producer.send(KeyedMessage(topic, "one", key))
            producer.send([KeyedMessage(topic, "list", key) for key in keys])
            producer.send_values(topic, ["values"] * len(keys), keys)
            producer.send_values(topic, pa.table({"value": ["table"] * len(keys), "key": keys}))
        found: dict[str, list[tuple[int, str]]] = {}
        for tp in (TopicPartition(topic, number) for number in range(COUNT)):
            end = Admin(client).offsets({tp: LATEST})[tp]
            for data in RangeFetcher(client, tp, 0, end or 0):
                for record in iterate(data):
                    assert record.key is not None
                    assert record.value is not None
                    found.setdefault(record.key.decode(), []).append((tp.partition, record.value.decode()))
    partition = DefaultPartitioner().partition
    assert found == {
        key: [(partition(key, COUNT), value) for value in ("one", "list", "values", "table")] for key in keys
    }
    assert producer.stats.topic(topic).messages == 4 * len(keys)


def test_send_waits_for_an_automatically_created_topic(minikafka_cluster: Cluster) -> None:
    topic = "made-by-a-producer"
    settings = {"metadata.broker.list": minikafka_cluster.bootstrap_servers, "request.required.acks": 1}
    with Producer(settings) as producer:
        producer.send(KeyedMessage(topic, b"a"))
    minikafka_cluster.delete_topic(topic)


PROGRAM_WITHOUT_CLOSE = """
import sys
from minikafka.clients.producer import KeyedMessage, Producer

settings = {"metadata.broker.list": sys.argv[1], "producer.type": "async", "request.required.acks": 1}
producer = Producer(settings)
for number in range(50):
    producer.send(KeyedMessage(sys.argv[2], b"%d" % number))
"""


def test_queued_messages_are_sent_at_exit_without_close(
    minikafka_cluster: Cluster, minikafka_topic: str
) -> None:
    bootstrap, topic = minikafka_cluster.bootstrap_servers, minikafka_topic
    subprocess.run([sys.executable, "-c", PROGRAM_WITHOUT_CLOSE, bootstrap, topic], check=True, timeout=60)
    tp = TopicPartition(topic, 0)
    with Client(bootstrap) as client:
        assert Admin(client).offsets({tp: LATEST}) == {tp: 50}


@pytest.mark.timeout(120)
def test_broker_restart_in_time_loses_no_message() -> None:
    with Cluster() as cluster:
        cluster.create_topic("t")
        settings = {
            "metadata.broker.list": cluster.bootstrap_servers,
            "producer.type": "async",
            "request.required.acks": 1,
            "message.send.max.retries": 1_000,
            "queue.time": 5,
            "queue.buffering.max.messages": 20_000,
        }
        given = [b"%d" % number for number in range(20_000)]
        with Producer(settings) as producer:
            producer.send([KeyedMessage("t", value) for value in given[:5_000]])
            while producer.queued:
                threading.Event().wait(0.01)
            producer.send([KeyedMessage("t", value) for value in given[5_000:10_000]])
            cluster.kill(0)
            producer.send([KeyedMessage("t", value) for value in given[10_000:12_000]])
            cluster.restart(0)
            for value in given[12_000:]:
                producer.send(KeyedMessage("t", value))
        tp = TopicPartition("t", 0)
        with Client(cluster.bootstrap_servers) as client:
            end = Admin(client).offsets({tp: LATEST})[tp]
            found = [
                record.value for data in RangeFetcher(client, tp, 0, end or 0) for record in iterate(data)
            ]
    assert producer.stats.failed_messages == 0
    assert producer.stats.resends >= 1
    # At least once, and in order except for duplicates.
    assert list(dict.fromkeys(found)) == given
