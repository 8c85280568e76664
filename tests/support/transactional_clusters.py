"""Clusters on which transactions are tested: ours of real processes, and one broker of Apache Kafka."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from minikafka.embedded.cluster import Cluster
from tests.interop.releases import KAFKA_3_9, KAFKA_4
from tests.support.kafka_broker import running

OURS = "ours"
KAFKA = "kafka-3.9.1"
CLUSTERS = [OURS, pytest.param(KAFKA, marks=pytest.mark.interop)]
"""The parameters of a fixture; those that need Kafka's jars are marked."""
THREE = "three of ours"
NEWEST_KAFKA = "kafka-4"
MORE_CLUSTERS = [*CLUSTERS, THREE, pytest.param(NEWEST_KAFKA, marks=pytest.mark.interop)]
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
