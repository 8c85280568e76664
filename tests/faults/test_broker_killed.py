"""A real broker process, ended in the middle of everything."""

from __future__ import annotations

import contextlib
import threading
from pathlib import Path

import pytest

from minikafka.base.errors import MinikafkaError
from minikafka.base.ids import TopicPartition
from minikafka.clients.fetch.range_fetcher import RangeFetcher
from minikafka.clients.network.cluster import ClusterClient as Client
from minikafka.clients.produce import BatchingConfig, BatchingProducer, SendFuture
from minikafka.embedded.cluster import Cluster
from minikafka.records.format.message_set import iterate

T0 = TopicPartition("t", 0)

PATIENCE_MS = 30_000


def readable(client: Client, end_offset: int) -> dict[int, bytes | None]:
    """Offset and value of every record of the partition."""
    return {
        record.offset: record.value
        for message_set in RangeFetcher(client, T0, 0, end_offset)
        for record in iterate(message_set)
    }


def produce_until_killed(cluster: Cluster, kill_after: int) -> dict[int, bytes]:
    """Send numbered records, kill the broker after ``kill_after``; what was acknowledged, by offset."""
    # A connection to a killed broker ends at once: nothing here needs to wait for a time-out to strike.
    config = BatchingConfig(
        retries=0, batch_bytes=2000, max_block_ms=PATIENCE_MS, request_timeout_ms=PATIENCE_MS
    )
    sent: list[tuple[bytes, SendFuture]] = []
    enough = threading.Event()

    def killer() -> None:
        enough.wait()
        cluster.kill(0)

    thread = threading.Thread(target=killer)
    thread.start()
    with Client(cluster.bootstrap_servers) as client:
        producer = BatchingProducer(client, config)
        with contextlib.suppress(MinikafkaError):
            for number in range(1_000_000):
                value = b"%08d" % number
                delivery = producer.send("t", value, partition=0)
                sent.append((value, delivery))
                if number % 20 == 0:
                    delivery.result(PATIENCE_MS)
                if number >= kill_after:
                    enough.set()
        thread.join()
        with contextlib.suppress(MinikafkaError):
            producer.close(1000)
    return {
        delivery.result(0).offset: value
        for value, delivery in sent
        if delivery.done and delivery.error is None
    }


@pytest.mark.timeout(120)
@pytest.mark.parametrize("kill_after", [1, 2000])
def test_every_acknowledged_message_is_there_after_kill_9_and_a_restart(
    tmp_path: Path, kill_after: int
) -> None:
    with Cluster(data_dir=tmp_path) as cluster:
        cluster.create_topic("t")
        acknowledged = produce_until_killed(cluster, kill_after)
        assert len(acknowledged) >= kill_after
        cluster.restart(0)
        with Client(cluster.bootstrap_servers) as client:
            present = readable(client, max(acknowledged) + 1)
    assert {offset: present.get(offset) for offset in acknowledged} == acknowledged
