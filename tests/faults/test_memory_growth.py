"""The memory of a broker does not grow while clients of every kind come and go for minutes.

``MINIKAFKA_GROWTH_S`` is for how long (600).
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from minikafka.clients.admin.admin import Admin
from minikafka.clients.admin.groups import GroupAdmin
from minikafka.clients.admin.topics import NewTopic
from minikafka.clients.group.consumer import GroupConsumer, GroupConsumerConfig, Reset
from minikafka.clients.network.cluster import ClusterClient as Client
from minikafka.clients.produce import BatchingProducer
from minikafka.embedded.cluster import Cluster
from tests.faults.attack import reads_proc
from tests.faults.test_committed_offsets import resident_bytes

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(0), reads_proc]

LASTING_S = float(os.environ.get("MINIKAFKA_GROWTH_S", "600"))
WARM_UP_S = 60.0
GROWTH_BYTES = 20 << 20
VALUE = bytes(1_000)
CONFIG = {
    "log.segment.bytes": str(4 << 20),
    "log.retention.bytes": str(16 << 20),
    "log.retention.check.interval.ms": "2000",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.segment.bytes": str(1 << 20),
    "log.cleaner.dedupe.buffer.size": str(8 << 20),
    "group.initial.rebalance.delay.ms": "0",
}


def one_round(bootstrap: str, number: int) -> None:
    """New clients produce, join a group, read, commit and leave; a topic is made and deleted."""
    with Client(bootstrap, client_id=f"client-{number}") as client:
        topic = f"new-{number}"
        admin = Admin(client)
        admin.create_topic(NewTopic(topic))
        with BatchingProducer(client) as producer:
            for index in range(200):
                producer.send("t", VALUE, partition=index % 3)
            producer.send(topic, VALUE)
        config = GroupConsumerConfig(f"g-{number}", auto_commit=False, auto_offset_reset=Reset.LATEST)
        with GroupConsumer(client, config) as consumer:
            consumer.subscribe(["t", topic])
            consumer.poll(200)
            consumer.commit_sync()
        GroupAdmin(client).offsets(f"g-{number}")
        GroupAdmin(client).delete_group(f"g-{number}")
        admin.delete_topics([topic])


def run_for(bootstrap: str, seconds: float, first: int) -> int:
    """Rounds for so long; the number of the next one."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        one_round(bootstrap, first)
        first += 1
    return first


def test_memory_stays_as_it_is_after_a_minute(tmp_path: Path) -> None:
    with Cluster(data_dir=tmp_path / "data", config=CONFIG) as cluster:
        cluster.create_topic("t", partitions=3)
        number = run_for(cluster.bootstrap_servers, WARM_UP_S, 0)
        pid = cluster.broker(0).pid
        before = resident_bytes(pid)
        rounds = run_for(cluster.bootstrap_servers, LASTING_S, number) - number
        after = resident_bytes(pid)
        sys.stdout.write(
            f"{rounds} rounds in {LASTING_S:.0f} s: {before / 1e6:.1f} MB, then {after / 1e6:.1f} MB\n"
        )
        with Client(cluster.bootstrap_servers) as client:
            assert Admin(client).list_topics() == ["t"]
            assert GroupAdmin(client).names() == []
        assert after - before < GROWTH_BYTES
