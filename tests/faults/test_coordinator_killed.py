"""A coordinator of transactions that is killed between its response to EndTxn and the markers."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from minikafka import TransactionalProducer
from minikafka.base.ids import TRANSACTION_STATE_TOPIC
from minikafka.clients.admin.admin import Admin, NewTopic
from minikafka.clients.admin.transactions import TransactionAdmin
from minikafka.clients.network.cluster import ClusterClient
from minikafka.embedded.cluster import Cluster
from tests.support.transactional_clusters import QUICK, committed

COORDINATOR, LEADER, NEXT = range(3)
CONFIG = {
    **QUICK,
    "auto.leader.rebalance.enable": "false",
    "transaction.state.log.num.partitions": "1",
    "zookeeper.session.timeout.ms": "3000",
}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(3, tmp_path, CONFIG) as cluster:
        yield cluster


@pytest.mark.timeout(240)
@pytest.mark.parametrize("commit", [True, False])
def test_next_coordinator_completes_what_the_killed_one_answered(cluster: Cluster, commit: bool) -> None:
    with ClusterClient(cluster.bootstrap_servers) as client:
        for topic, replicas in ((TRANSACTION_STATE_TOPIC, [COORDINATOR, NEXT]), ("t", [LEADER])):
            Admin(client).create_topic(NewTopic(topic, assignments={0: replicas}))
        with TransactionalProducer(client, {"transactional.id": "x"}) as producer:
            producer.init_transactions()
            producer.begin()
            sent = [producer.send("t", b"%d" % number, partition=0) for number in range(20)]
            producer.flush()
            assert [future.error for future in sent] == [None] * 20
            leader = cluster.broker(LEADER).pid
            os.kill(leader, signal.SIGSTOP)
            try:
                producer.commit() if commit else producer.abort()
                state = TransactionAdmin(client).describe("x").state
                cluster.kill(COORDINATOR)
            finally:
                os.kill(leader, signal.SIGCONT)
            assert state == ("PrepareCommit" if commit else "PrepareAbort")
            wanted = [b"%d" % number for number in range(20)] if commit else []
            assert committed(client, "t") == wanted
            with producer.transaction():
                producer.send("t", b"next", partition=0)
            assert committed(client, "t") == [*wanted, b"next"]
