"""No anomaly of transactions on a broker of Apache Kafka that is killed again and again: so the search for
anomalies finds what is wrong, and nothing else.
"""

from __future__ import annotations

import threading
from collections.abc import Collection
from pathlib import Path
from random import Random

import pytest

from minikafka.base.ids import TopicPartition
from minikafka.clients.admin.admin import Admin, NewTopic
from minikafka.clients.network.cluster import ClusterClient
from minikafka.embedded.process import wait_until
from tests.faults.anomalies import Rows, shown
from tests.faults.committed_readers import COPIES, COPIES_PARTITIONS, LIST, LIST_PARTITIONS
from tests.faults.transaction_anomalies import committed_rows
from tests.faults.transactional_clients import TransactionalClients
from tests.faults.transactional_cluster import anomalies_of, end_clients
from tests.faults.whole_cluster import records_in
from tests.interop.releases import KAFKA_3_9
from tests.support.kafka_broker import running

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]

CONFIG = {
    "offsets.topic.num.partitions": 3,
    "group.initial.rebalance.delay.ms": 0,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 300,
}
KILLS = 3
PATIENCE_S = 90.0


def test_no_anomaly_is_seen_while_a_kafka_broker_is_killed(tmp_path: Path) -> None:
    dice, never = Random(3), threading.Event()
    with running(KAFKA_3_9, tmp_path, config=CONFIG) as kafka:
        with ClusterClient(kafka.bootstrap) as cluster:
            for topic, partitions in ((LIST, LIST_PARTITIONS), (COPIES, COPIES_PARTITIONS)):
                Admin(cluster).create_topic(NewTopic(topic, partitions=partitions))
        clients = TransactionalClients(kafka.bootstrap)
        try:
            for _ in range(KILLS):
                wait_for_progress(clients)
                never.wait(dice.uniform(0.5, 3.0))
                kafka.kill()
                kafka.start()
            wait_for_progress(clients)

            def committed(partitions: Collection[TopicPartition]) -> dict[TopicPartition, Rows]:
                return {name: committed_rows(records_in(segments(tmp_path, name))) for name in partitions}

            end_clients(clients, committed)
            found = anomalies_of(clients, committed)
        finally:
            for client in (*clients.senders, *clients.readers):
                client.stopping.set()
        print(clients.counts())  # noqa: T201  # -rP shows what happened
        assert not found, shown(found)


def wait_for_progress(clients: TransactionalClients) -> None:
    """Wait until each client has made progress."""
    mark = clients.mark()

    def all_made_progress() -> bool:
        assert not clients.history.wrong, clients.history.wrong[:3]
        return all(now > before for now, before in zip(clients.progress(), mark, strict=True))

    assert wait_until(all_made_progress, PATIENCE_S), (clients.names, mark, clients.progress())


def segments(directory: Path, name: TopicPartition) -> list[Path]:
    """The segments of a partition, in order."""
    return sorted((directory / "broker" / "data" / str(name)).glob("*.log"))
