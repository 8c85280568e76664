"""Producers that number their batches, of others' making, against a broker of ours that is killed under load:
nothing is lost, and nothing is there twice.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from minikafka.base.ids import TopicPartition
from minikafka.clients.admin.admin import LATEST, Admin
from minikafka.clients.fetch.range_fetcher import RangeFetcher
from minikafka.clients.network.cluster import ClusterClient as Client
from minikafka.embedded.cluster import Cluster
from minikafka.embedded.java import find_java
from minikafka.records.format.message_set import iterate
from tests.interop.releases import JVM, KAFKA_3_9, java_environment
from tests.support.python_clients import confluent_kafka

HERE = Path(__file__).parent
COUNT = 20_000
KILLS = (COUNT // 5, COUNT // 2, COUNT * 4 // 5)
"""After so many acknowledgements."""
T0 = TopicPartition("t", 0)

RecordMetadata = Iterator[tuple[int, int]]
"""Offset, -1 where that is not known any more, and number."""


def by_java(bootstrap: str) -> RecordMetadata:
    """Send the numbers with the Java producer of 3.9.1."""
    command = [find_java().path, *JVM, "-cp", f"{KAFKA_3_9.libs()}/*"]
    command += [str(HERE / "java" / "IdempotentProducer.java"), bootstrap, "t", str(COUNT)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=java_environment()) as process:
        try:
            assert process.stdout is not None
            for line in process.stdout:
                if line == "done\n":
                    return
                offset, number = line.split()
                yield int(offset), int(number)
            raise AssertionError("the producer ended early")
        finally:
            process.kill()


def by_librdkafka(bootstrap: str) -> RecordMetadata:
    """Send the numbers with librdkafka's producer."""
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "batch.num.messages": 100,
            "reconnect.backoff.max.ms": 200,
            "retry.backoff.max.ms": 200,
            "log_level": 0,
        }
    )
    told: list[tuple[int, int]] = []

    def tell(error: object, message: confluent_kafka.Message) -> None:
        assert error is None, error
        told.append((message.offset(), int(message.value())))

    for number in range(COUNT):
        producer.produce("t", b"%d" % number, partition=0, on_delivery=tell)
        producer.poll(0)
        yield from told
        told.clear()
    while producer.flush(0.1):
        yield from told
        told.clear()
    yield from told


@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.parametrize(
    "send",
    [
        pytest.param(by_java, id="java-3.9.1", marks=pytest.mark.interop),
        pytest.param(by_librdkafka, id="librdkafka"),
    ],
)
def test_broker_killed_under_load_loses_and_duplicates_nothing(
    tmp_path: Path, send: Callable[[str], RecordMetadata]
) -> None:
    config = {"log.segment.bytes": "100000", "log.flush.scheduler.interval.ms": "50"}
    acknowledged: dict[int, int] = {}
    with Cluster(data_dir=tmp_path, config=config) as cluster:
        cluster.create_topic("t")
        for offset, number in send(cluster.bootstrap_servers):
            acknowledged[number] = offset
            if len(acknowledged) in KILLS:
                cluster.kill(0)
                cluster.restart(0)
        with Client(cluster.bootstrap_servers) as client:
            end = Admin(client).offsets({T0: LATEST})[T0]
            assert end is not None
            stored = [
                (record.offset, int(record.value or b""))
                for data in RangeFetcher(client, T0, 0, end)
                for record in iterate(data)
            ]
    assert len(acknowledged) == COUNT
    assert stored == [(number, number) for number in range(COUNT)]
    assert {number for number, offset in acknowledged.items() if offset not in {number, -1}} == set()
