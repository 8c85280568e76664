"""Clusters on which transactions are tested, ours of real processes and one broker of Apache Kafka, and what
readers see there.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from minikafka.base.ids import TopicPartition
from minikafka.clients.admin.admin import LATEST, Admin
from minikafka.clients.fetch.isolation_level import IsolationLevel
from minikafka.clients.fetch.range_fetcher import RangeFetcher
from minikafka.clients.network.cluster import ClusterClient
from minikafka.embedded.cluster import Cluster
from minikafka.embedded.process import wait_until
from minikafka.records.columns import decode
from tests.interop.releases import KAFKA_3_9, KAFKA_4
from tests.support.kafka_broker import running

OURS = "ours"
KAFKA = "kafka-3.9.1"
CLUSTERS = [OURS, pytest.param(KAFKA, marks=pytest.mark.interop)]
"""The parameters of a fixture; those that need Kafka's jars are marked."""
THREE = "three of ours"
NEWEST_KAFKA = "kafka-4"
MORE_CLUSTERS = [*CLUSTERS, THREE, pytest.param(NEWEST_KAFKA, marks=pytest.mark.interop)]
PATIENCE_S = 60.0
QUICK = {
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
}


@contextlib.contextmanager
def transactional_cluster(
    kind: str, directory: Path, config: Mapping[str, str] | None = None
) -> Iterator[str]:
    """The addresses of a cluster that looks for late transactions often."""
    config = {**QUICK, **(config or {})}
    if kind in (OURS, THREE):
        with Cluster(3 if kind == THREE else 1, directory, config) as cluster:
            yield cluster.bootstrap_servers
    else:
        release = KAFKA_4 if kind == NEWEST_KAFKA else KAFKA_3_9
        with running(release, directory / "kafka", config=config) as broker:
            yield broker.bootstrap


def committed(cluster: ClusterClient, topic: str) -> list[bytes]:
    """The values that read_committed shows once all transactions have ended, by partition."""
    found = []
    for tp in [p.topic_partition for p in cluster.topic(topic).partitions]:
        ends = dict.fromkeys(IsolationLevel, 0)

        def settled(tp: TopicPartition = tp, ends: dict[IsolationLevel, int] = ends) -> bool:
            for isolation in IsolationLevel:
                ends[isolation] = Admin(cluster).offsets({tp: LATEST}, isolation=isolation)[tp] or 0
            return len(set(ends.values())) == 1

        assert wait_until(settled, PATIENCE_S), f"a transaction on {tp} stays open"
        end = ends[IsolationLevel.READ_COMMITTED]
        for data in RangeFetcher(
            cluster, tp, 0, end, isolation=IsolationLevel.READ_COMMITTED, timeout_ms=20_000
        ):
            found += decode(data, 0, end).value_array().to_pylist()
    return found
