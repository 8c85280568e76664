"""Transactions of other clients: their outcome on our brokers and on Kafka 3.9.1, and each record once while
brokers and clients are killed.
"""

from __future__ import annotations

import contextlib
import itertools
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from minikafka import TransactionalProducer
from minikafka.base.errors import MinikafkaError
from minikafka.base.ids import TopicPartition
from minikafka.clients.admin.admin import LATEST, Admin, NewTopic
from minikafka.clients.fetch.isolation_level import IsolationLevel
from minikafka.clients.fetch.range_fetcher import RangeFetcher
from minikafka.clients.network.cluster import ClusterClient
from minikafka.embedded.cluster import Cluster
from minikafka.embedded.process import wait_until
from minikafka.records.columns import decode
from tests.interop.frameworks import kill_in_turn, restarted
from tests.interop.java_transactions import java, outcomes
from tests.support.transactional_clusters import KAFKA, OURS, transactional_cluster

pytestmark = [pytest.mark.interop, pytest.mark.timeout(180)]

PATIENCE_S = 90.0
COMMITTED = IsolationLevel.READ_COMMITTED
_NUMBERS = itertools.count()


@pytest.fixture(scope="module", params=[OURS, KAFKA])
def bootstrap(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with transactional_cluster(request.param, tmp_path_factory.mktemp(request.param)) as addresses:
        yield addresses


@pytest.fixture
def topic(bootstrap: str) -> str:
    name = f"transactions-{next(_NUMBERS)}"
    with ClusterClient(bootstrap) as client:
        Admin(client).create_topic(NewTopic(name, partitions=2, configs={"max.message.bytes": "20000"}))
    return name


def committed(client: ClusterClient, topic: str, partition: int) -> list[bytes]:
    """The values of committed transactions."""
    tp = TopicPartition(topic, partition)
    end = Admin(client).offsets({tp: LATEST}, isolation=COMMITTED)[tp]
    assert end is not None
    values: list[bytes] = []
    for data in RangeFetcher(client, tp, 0, end, isolation=COMMITTED):
        values += decode(data, 0, end).value_array().to_pylist()
    return values


def test_committed_records_are_read_and_aborted_ones_are_not(bootstrap: str, topic: str) -> None:
    commands = ("init a", "begin a", "send a 0 x", "send a 1 y", "commit a")
    commands += ("begin a", "send a 0 z", "abort a", "begin a", "send a 1 w", "commit a", "read")
    assert sorted(outcomes(bootstrap, topic, *commands)[-1].split()) == ["0:x", "1:w", "1:y"]


def test_an_open_transaction_is_not_read(bootstrap: str, topic: str) -> None:
    commands = ("init a", "init b", "begin a", "send a 0 x", "begin b", "send b 0 y", "commit b")
    assert outcomes(bootstrap, topic, *commands, "read", "commit a", "read")[-3:] == ["", "ok", "0:x 0:y"]


def test_a_producer_of_the_same_id_fences_the_former_one(bootstrap: str, topic: str) -> None:
    commands = ("init f/1", "begin f/1", "send f/1 0 x", "init f/2", "begin f/2", "send f/2 0 y")
    said = outcomes(bootstrap, topic, *commands, "send f/1 0 z", "commit f/2", "read", "abort f/1")
    assert said[:6] == ["ok"] * 6
    assert said[6] in {"InvalidProducerEpochException", "ProducerFencedException"}
    assert said[7:9] == ["ok", "0:y"]
    assert said[9] == "ProducerFencedException"


def test_a_fenced_producer_cannot_commit(bootstrap: str, topic: str) -> None:
    commands = ("init c/1", "begin c/1", "send c/1 0 x", "init c/2", "commit c/1", "read")
    assert outcomes(bootstrap, topic, *commands)[-2:] == ["ProducerFencedException", ""]


def test_a_late_transaction_is_aborted_and_its_producer_fenced(bootstrap: str, topic: str) -> None:
    commands = ("init t 500", "begin t", "send t 0 x", "sleep 3000", "send t 0 y", "abort t", "read")
    said = outcomes(bootstrap, topic, *commands)
    assert said[4] in {"InvalidProducerEpochException", "ProducerFencedException"}
    assert said[-1] == ""


@pytest.mark.parametrize(
    ("refused", "error"),
    [
        ("large a 2000000", "RecordTooLargeException"),  # by the client
        ("large a 30000", "RecordTooLargeException"),  # by the broker
        ("to a bad/name", "InvalidTopicException"),
    ],
)
def test_refused_record_fails_the_commit(bootstrap: str, topic: str, refused: str, error: str) -> None:
    commands = ("init a", "begin a", "send a 0 x", refused, "commit a", "abort a")
    said = outcomes(bootstrap, topic, *commands, "begin a", "send a 0 y", "commit a", "read")
    assert [said[3], *said[5:]] == [error, "ok", "ok", "ok", "ok", "0:y"]
    # The client raises the error as it is, if it comes while the commit waits for it.
    assert said[4] in {error, f"KafkaException {error}"}


def test_callback_that_raises_leaves_the_transaction_as_it_is(bootstrap: str, topic: str) -> None:
    said = outcomes(bootstrap, topic, "init a", "begin a", "raise a x", "commit a", "read")
    assert said[-2:] == ["ok", "0:x"]


def test_a_timeout_above_the_maximum_is_refused(bootstrap: str, topic: str) -> None:
    assert outcomes(bootstrap, topic, "init m 900001") == ["KafkaException"]


@pytest.mark.timeout(1_800)
@pytest.mark.parametrize(
    ("kills", "count"), [(6, 20_000), pytest.param(90, 200_000, marks=[pytest.mark.long, pytest.mark.slow])]
)
def test_a_java_copier_under_kills_copies_each_record_once(tmp_path: Path, kills: int, count: int) -> None:
    config = {
        "zookeeper.session.timeout.ms": "3000",
        "min.insync.replicas": "2",
        "group.initial.rebalance.delay.ms": "0",
        "group.min.session.timeout.ms": "1000",
    }
    chance = random.Random(447_000)
    with Cluster(3, tmp_path / "data", config) as cluster:
        for name in ("source", "target"):
            cluster.create_topic(name, 2, replicas=3)
        bootstrap = cluster.bootstrap_servers
        with ClusterClient(bootstrap) as client:
            write_numbers(bootstrap, count)
            command = java("TransactionalCopier", bootstrap, "source", "target", "copiers", "copier")
            with restarted(command, tmp_path) as kill_copier:
                kill_in_turn(cluster, kills, chance, kill_copier, pause_s=(2.0, 5.0))
                assert wait_until(lambda: copied(client) >= count, PATIENCE_S * 3, 0.5), copied(client)
            found = [committed(client, "target", partition) for partition in (0, 1)]
    assert found == [[b"%d" % n for n in range(start, count, 2)] for start in (0, 1)]


def copied(client: ClusterClient) -> int:
    """How many committed records the copy has; 0 while a partition has no leader."""
    with contextlib.suppress(MinikafkaError):
        return sum(len(committed(client, "target", partition)) for partition in (0, 1))
    return 0


def write_numbers(bootstrap: str, count: int) -> None:
    """Write ``count`` numbers to the source in transactions, even ones to partition 0."""
    with ClusterClient(bootstrap) as client, TransactionalProducer(client, transactional_id="w") as producer:
        producer.init_transactions()
        for start in range(0, count, 1000):
            with producer.transaction():
                for number in range(start, start + 1000):
                    producer.send("source", b"%d" % number, partition=number % 2)
