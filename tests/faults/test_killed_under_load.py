"""A broker that is killed again and again while a client sends, consumes in a group and commits.

``MINIKAFKA_KILLS`` says how often (3; ``scripts/soak``: 12).
"""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import Any

import pytest

from minikafka.embedded.cluster import Cluster

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from confluent_kafka import Consumer, Producer, TopicPartition

KILLS = int(os.environ.get("MINIKAFKA_KILLS", "3"))
PARTITIONS = 3
BETWEEN_KILLS = 3_000
PATIENCE_S = 30.0
PATIENT_LOOPS = 20_000

Place = tuple[int, int]
"""Partition and offset."""


class Load:
    """One producer and one member of a group, and what the broker has told them."""

    def __init__(self, servers: str) -> None:
        self.acknowledged: dict[Place, bytes] = {}
        self.consumed: dict[Place, bytes] = {}
        self.changed: list[str] = []
        self.failed: list[Any] = []
        self.committed: dict[int, int] = {}
        self._sent = 0
        self._group = {"bootstrap.servers": servers, "group.id": "g", "enable.auto.commit": False}
        self._producer = Producer(
            {
                "bootstrap.servers": servers,
                "enable.idempotence": True,
                "linger.ms": 2,
                "reconnect.backoff.max.ms": 100,
            }
        )
        self._consumer = Consumer(
            self._group
            | {
                "auto.offset.reset": "earliest",
                "heartbeat.interval.ms": 300,
                "reconnect.backoff.max.ms": 100,
                "on_commit": self._on_commit,
            }
        )
        self._consumer.subscribe(["t"])

    def run(self, count: int) -> None:
        """Go on until so many messages more are acknowledged, and some more of the others' are consumed."""
        acknowledged, consumed = len(self.acknowledged) + count, len(self.consumed) + count // 2
        for _ in range(PATIENT_LOOPS):
            if len(self.acknowledged) >= acknowledged and len(self.consumed) >= consumed:
                return
            for _ in range(20 if len(self._producer) < 1_000 else 0):
                self._producer.produce(
                    "t",
                    b"%08d" % self._sent,
                    partition=self._sent % PARTITIONS,
                    on_delivery=self._on_delivery,
                )
                self._sent += 1
            self._producer.poll(0.002)
            self._consume(0.002)
        raise AssertionError(f"{len(self.acknowledged)} acknowledged, {len(self.consumed)} consumed: no more")

    def finish(self) -> None:
        """Have everything acknowledged and consumed, and leave."""
        assert self._producer.flush(PATIENCE_S) == 0
        for _ in range(PATIENT_LOOPS):
            if len(self.consumed) >= len(self.acknowledged):
                break
            self._consume(0.1)
        self._consumer.close()

    def committed_now(self) -> dict[int, int]:
        """What the broker says has been committed."""
        asking = Consumer(self._group)
        asked = [TopicPartition("t", partition) for partition in range(PARTITIONS)]
        told = {one.partition: one.offset for one in asking.committed(asked, PATIENCE_S)}
        asking.close()
        return told

    def _consume(self, timeout_s: float) -> None:
        messages = self._consumer.consume(500, timeout_s)
        for message in messages:
            if message.error() is None:
                self._keep(self.consumed, message)
        if messages:
            self._consumer.commit(asynchronous=True)

    def _keep(self, where: dict[Place, bytes], message: Any) -> None:
        place = (message.partition(), message.offset())
        if where.setdefault(place, message.value()) != message.value():
            self.changed.append(f"{place} held {where[place]!r}, then {message.value()!r}")

    def _on_delivery(self, error: Any, message: Any) -> None:
        if error is not None:
            self.failed.append(error)
        else:
            self._keep(self.acknowledged, message)

    def _on_commit(self, error: Any, partitions: list[TopicPartition]) -> None:
        for one in partitions:
            if error is None and one.error is None and one.offset > self.committed.get(one.partition, -1):
                self.committed[one.partition] = one.offset


@pytest.mark.slow
@pytest.mark.timeout(60 + 30 * KILLS)
def test_what_was_acknowledged_and_committed_outlives_every_kill(tmp_path: Path) -> None:
    with Cluster(data_dir=tmp_path) as cluster:
        cluster.create_topic("t", PARTITIONS)
        load = Load(cluster.bootstrap_servers)
        for _ in range(KILLS):
            load.run(BETWEEN_KILLS)
            cluster.kill(0)
            promised = dict(load.committed)
            cluster.restart(0)
            kept = load.committed_now()
            assert {
                partition: kept[partition]
                for partition, offset in promised.items()
                if kept[partition] < offset
            } == {}
        load.run(BETWEEN_KILLS)
        load.finish()
    assert load.changed == []
    assert load.failed == []
    # Everything was consumed, nothing at another place, and with an idempotent producer nothing twice.
    assert load.consumed == load.acknowledged
    assert len(set(load.acknowledged.values())) == len(load.acknowledged) == load._sent
    assert min(load.committed.values()) > 0
