"""A broker that is killed again and again while its log moves between two disks and a producer writes.

``MINIKAFKA_MOVES`` says how many kills there are for each seed (4).
"""

from __future__ import annotations

import os
import random
import threading
from pathlib import Path

import pytest

from minikafka.base.errors import MinikafkaError
from minikafka.base.ids import TopicPartition
from minikafka.clients.admin.admin import Admin
from minikafka.clients.fetch.range_fetcher import RangeFetcher
from minikafka.clients.network.cluster import ClusterClient
from minikafka.clients.produce import BatchingConfig, BatchingProducer, SendFuture
from minikafka.embedded.cluster import Cluster
from minikafka.records.format.message_set import iterate
from tests.support.processes import wait_until
from tests.support.seeds import seeds

KILLS = int(os.environ.get("MINIKAFKA_MOVES", "4"))
TP = TopicPartition("t", 0)
PATIENCE_MS = 30_000
LONGEST_MOVE_S = 0.25
"""A kill comes within this time after the request: most moves of the test are over by then, some are not."""


class Writer:
    """Writes numbered messages with acks=all on a thread, and knows which were acknowledged where."""

    def __init__(self, bootstrap: str) -> None:
        self.acknowledged: dict[int, bytes] = {}
        self._bootstrap = bootstrap
        self._next = 0

    def write_while(self, running: threading.Event) -> None:
        """Write until ``running`` is cleared or the broker is gone."""
        config = BatchingConfig(
            acks=-1, retries=0, batch_bytes=4000, max_block_ms=PATIENCE_MS, request_timeout_ms=PATIENCE_MS
        )
        sent: list[tuple[bytes, SendFuture]] = []
        with ClusterClient(self._bootstrap) as client:
            producer = BatchingProducer(client, config)
            try:
                while running.is_set():
                    value = b"%08d" % self._next
                    self._next += 1
                    sent.append((value, producer.send("t", value * 20, partition=0)))
                    if self._next % 20 == 0:
                        sent[-1][1].result(PATIENCE_MS)
                producer.close(PATIENCE_MS)
            except MinikafkaError:
                pass  # the broker was killed
        for value, future in sent:
            if future.done and future.error is None:
                self.acknowledged[future.result(0).offset] = value * 20


def directory_of(admin: Admin) -> str | None:
    """Return the directory of the log, None while it moves."""
    held = [
        (log_dir.path, replica.is_future)
        for log_dir in admin.describe_log_dirs()
        for replica in log_dir.replicas
        if replica.topic_partition == TP
    ]
    return held[0][0] if len(held) == 1 else None


@pytest.mark.process
@pytest.mark.timeout(240)
@pytest.mark.parametrize("seed", seeds(2))
def test_no_acknowledged_message_is_lost_in_a_move(tmp_path: Path, seed: int) -> None:
    dice = random.Random(seed)
    paths = [str(tmp_path / name) for name in ("first", "second")]
    config = {
        "log.dirs": ",".join(paths),
        "log.segment.bytes": "200000",
        "log.layout": dice.choice(["classic", "apache"]),
    }
    with Cluster(data_dir=tmp_path / "data", broker_configs={0: config}) as cluster:
        cluster.create_topic("t")
        writer = Writer(cluster.bootstrap_servers)
        for _ in range(KILLS):
            running = threading.Event()
            running.set()
            thread = threading.Thread(target=writer.write_while, args=(running,))
            thread.start()
            with ClusterClient(cluster.bootstrap_servers) as client:
                admin = Admin(client)
                at = directory_of(admin)
                target = paths[0] if at != paths[0] else paths[1]
                assert admin.alter_replica_log_dirs(0, {TP: target}) == {TP: None}
            threading.Event().wait(dice.random() * LONGEST_MOVE_S)
            cluster.kill(0)
            thread.join()
            cluster.restart(0)
            check(cluster.bootstrap_servers, writer.acknowledged)
        with ClusterClient(cluster.bootstrap_servers) as client:
            admin = Admin(client)
            wait_until(lambda: directory_of(admin) is not None, "the end of the last move", 30)
        check(cluster.bootstrap_servers, writer.acknowledged)
    assert len(writer.acknowledged) > 100


def check(bootstrap: str, acknowledged: dict[int, bytes]) -> None:
    """Every acknowledged message is at its offset."""
    with ClusterClient(bootstrap) as client:
        present = {
            record.offset: record.value
            for message_set in RangeFetcher(client, TP, 0, max(acknowledged, default=-1) + 1)
            for record in iterate(message_set)
        }
    assert {offset: present.get(offset) for offset in acknowledged} == acknowledged
