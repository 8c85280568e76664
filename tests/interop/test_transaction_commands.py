"""``minikafka txn`` and read_committed consumers on our brokers and on Kafka 3.9.1, with open and hanging
transactions.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator

import pytest

from minikafka import TransactionalProducer
from minikafka.base.errors import ErrorCode
from minikafka.base.ids import TopicPartition
from minikafka.clients.admin.admin import LATEST, Admin, NewTopic
from minikafka.clients.fetch.isolation_level import IsolationLevel
from minikafka.clients.network.cluster import ClusterClient
from minikafka.clients.simple_consumer import EARLIEST_TIME, LATEST_TIME, FetchRequest, SimpleConsumer
from minikafka.embedded.process import wait_until
from minikafka.records.format.batch import build_batch
from minikafka.records.format.message_set import Record
from minikafka.wire.apis.produce import PRODUCE, ProducePartition, ProduceRequest, ProduceTopic
from pyspark_minikafka.planning.lookup import ClusterTransactions
from tests.interop.releases import KAFKA_3_9
from tests.support.command_line import CommandLine
from tests.support.transactional_clusters import KAFKA, OURS, transactional_cluster

pytestmark = [pytest.mark.interop, pytest.mark.timeout(180)]

PATIENCE_S = 60.0
COMMITTED = IsolationLevel.READ_COMMITTED
TOOL = "org.apache.kafka.tools.TransactionsCommand"
_NUMBERS = itertools.count()


@pytest.fixture(scope="module", params=[OURS, KAFKA])
def bootstrap(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    # As before Kafka 3.6: without this check late batches leave hanging transactions.
    unverified = {"transaction.partition.verification.enable": "false"}
    with transactional_cluster(request.param, tmp_path_factory.mktemp("hanging"), unverified) as addresses:
        yield addresses


@pytest.fixture
def cluster(bootstrap: str) -> Iterator[ClusterClient]:
    with ClusterClient(bootstrap) as cluster:
        yield cluster


@pytest.fixture
def tp(cluster: ClusterClient) -> TopicPartition:
    name = f"transactions-{next(_NUMBERS)}"
    Admin(cluster).create_topic(NewTopic(name, partitions=1))
    return TopicPartition(name, 0)


@pytest.fixture
def cli(capfd: pytest.CaptureFixture[str], bootstrap: str) -> CommandLine:
    cli = CommandLine(capfd)
    cli.options = ("--bootstrap", bootstrap, "--format", "json")
    return cli


@pytest.fixture
def producer(cluster: ClusterClient) -> Iterator[TransactionalProducer]:
    name = f"producer-{next(_NUMBERS)}"
    with TransactionalProducer(cluster, {"transactional.id": name}) as producer:
        producer.init_transactions()
        yield producer


def write(producer: TransactionalProducer, tp: TopicPartition, *values: bytes) -> None:
    for value in values:
        producer.send(tp.topic, value, partition=tp.partition)
    producer.flush()


def leave_hanging(cluster: ClusterClient, tp: TopicPartition, producer_id: int, *values: bytes) -> None:
    """Write a batch of a transaction that no coordinator knows."""
    now_ms = time.time_ns() // 1_000_000 - 1_000
    data = build_batch(
        [Record(None, value, now_ms) for value in values],
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=0,
        transactional=True,
    )
    topic = ProduceTopic(tp.topic, (ProducePartition(tp.partition, data),))
    request = ProduceRequest("nobody", -1, 10_000, (topic,))
    leader = cluster.leader(tp)
    response = cluster.send(leader.broker_id, PRODUCE, request, newest=8).result(10_000)
    assert response.topics[0].partitions[0].error_code == 0, response


def last_stable_offset(cluster: ClusterClient, tp: TopicPartition) -> int | None:
    return Admin(cluster).offsets({tp: LATEST}, isolation=COMMITTED)[tp]


def hanging(cli: CommandLine, *words: str) -> list[tuple[object, ...]]:
    assert cli.run("txn", "find-hanging", "--max-transaction-timeout", "0", *words) == 0, cli.err
    return [(row["topic"], row["partition"], row["producer_id"], row["start_offset"]) for row in cli.rows]


def test_an_open_transaction_is_listed_and_described(
    cli: CommandLine, producer: TransactionalProducer, tp: TopicPartition
) -> None:
    producer.begin()
    write(producer, tp, b"a")
    assert cli.run("txn", "list", "--state", "Ongoing") == 0
    (row,) = [row for row in cli.rows if row["transactional_id"] == producer.config.transactional_id]
    assert (row["coordinator"], row["state"]) == (0, "Ongoing")
    name, producer_id = row["transactional_id"], row["producer_id"]
    assert cli.run("txn", "list", "--producer-id", str(producer_id), "--duration-filter", "600000") == 0
    assert (cli.rows, "no transactional id passes the filters" in cli.err) == ([], True)
    assert cli.run("txn", "describe", name) == 0
    (described,) = cli.rows
    assert described["partitions"] == [str(tp)]
    assert (described["state"], described["timeout_ms"]) == ("Ongoing", 60_000)
    assert described["duration_ms"] < 60_000
    where = ("--topic", tp.topic, "--partition", "0")
    assert cli.run("txn", "describe-producers", *where) == 0
    assert [(row["producer_id"], row["start_offset"]) for row in cli.rows] == [(producer_id, 0)]
    producer.commit()
    assert cli.run("txn", "list", "--state", "CompleteCommit") == 0
    assert name in [row["transactional_id"] for row in cli.rows]
    assert cli.run("txn", "describe", name) == 0
    (described,) = cli.rows
    assert (described["state"], described["duration_ms"]) == ("CompleteCommit", None)


def test_an_unknown_transactional_id_is_an_error_with_a_hint(
    cli: CommandLine, producer: TransactionalProducer
) -> None:
    name = producer.config.transactional_id
    assert cli.run("txn", "describe", f"{name}x") == 1
    assert f"there is no transactional id '{name}x'; there is '{name}'" in cli.err


def test_hanging_transactions_are_found_as_kafka_does_and_aborted(
    bootstrap: str, cli: CommandLine, cluster: ClusterClient, tp: TopicPartition
) -> None:
    leave_hanging(cluster, tp, 4_711, b"late", b"later")
    found = [(tp.topic, 0, 4_711, 0)]
    assert hanging(cli, "--topic", tp.topic) == found
    assert hanging(cli, "--topic", tp.topic, "--partition", "0") == found
    assert (tp.topic, 0, 4_711, 0) in hanging(cli, "--broker-id", "0")
    printed = KAFKA_3_9.run(
        TOOL, "--bootstrap-server", bootstrap, "find-hanging", "--topic", tp.topic,
        "--max-transaction-timeout", "0",
    )  # fmt: skip
    assert [line.split("\t")[:3] for line in printed.out.splitlines()[1:]] == [
        [tp.topic.ljust(len(printed.out.split("\t")[0])), "0".ljust(9), "4711".ljust(10)]
    ]
    assert cli.run("txn", "abort", "--topic", tp.topic, "--partition", "0", "--start-offset", "1") == 1
    assert "starts at offset 1: open ones start at 0" in cli.err
    assert last_stable_offset(cluster, tp) == 0
    assert cli.run("txn", "abort", "--topic", tp.topic, "--partition", "0", "--start-offset", "0") == 0
    assert wait_until(lambda: last_stable_offset(cluster, tp) == 3, PATIENCE_S)
    assert hanging(cli, "--topic", tp.topic) == []


def test_a_hanging_transaction_is_aborted_by_producer_and_epochs(
    cli: CommandLine, cluster: ClusterClient, tp: TopicPartition
) -> None:
    leave_hanging(cluster, tp, 4_712, b"late")
    where = ("--topic", tp.topic, "--partition", "0", "--producer-id", "4712")
    epochs = ("--producer-epoch", "0", "--coordinator-epoch", "-1")
    assert cli.run("txn", "abort", *where, *epochs) == 0
    assert wait_until(lambda: last_stable_offset(cluster, tp) == 2, PATIENCE_S)


def test_a_transaction_of_a_coordinator_is_not_hanging(
    cli: CommandLine, cluster: ClusterClient, producer: TransactionalProducer, tp: TopicPartition
) -> None:
    producer.begin()
    write(producer, tp, b"a")
    assert wait_until(lambda: hanging(cli, "--topic", tp.topic) == [], PATIENCE_S)
    abort = ("txn", "abort", "--topic", tp.topic, "--partition", "0", "--start-offset", "0")
    assert cli.run(*abort) == 1
    assert "is not hanging: its coordinator, broker 0, has transactional id" in cli.err
    assert cli.run(*abort, "--force") == 0
    assert wait_until(lambda: last_stable_offset(cluster, tp) == 2, PATIENCE_S)
    producer.abort()


def test_consume_prints_committed_messages_only(
    cli: CommandLine, cluster: ClusterClient, producer: TransactionalProducer, tp: TopicPartition
) -> None:
    producer.begin()
    write(producer, tp, b"aborted")
    producer.abort()
    producer.begin()
    write(producer, tp, b"committed")
    producer.commit()
    assert wait_until(lambda: last_stable_offset(cluster, tp) == 4, PATIENCE_S)
    for words in ((), ("--group", f"g-{tp.topic}")):
        level = ("--isolation-level", "read_committed")
        assert cli.run("consume", tp.topic, "--max", "1", *words, *level) == 0
        assert [row["value"] for row in cli.rows] == ["committed"]
    assert cli.run("consume", tp.topic, "--max", "2") == 0
    assert [row["value"] for row in cli.rows] == ["aborted", "committed"]


def test_a_simple_consumer_stops_at_an_open_transaction(
    bootstrap: str, cluster: ClusterClient, producer: TransactionalProducer, tp: TopicPartition
) -> None:
    producer.begin()
    write(producer, tp, b"aborted")
    producer.abort()
    producer.begin()
    write(producer, tp, b"committed")
    producer.commit()
    assert wait_until(lambda: last_stable_offset(cluster, tp) == 4, PATIENCE_S)
    producer.begin()
    write(producer, tp, b"open")
    request, port = FetchRequest(tp.topic, 0, 0, 1 << 20), int(bootstrap.rpartition(":")[2])
    with SimpleConsumer("127.0.0.1", port, isolation=COMMITTED) as consumer:
        found = consumer.fetch(request)
        assert [(message.offset, message.value) for message in found] == [(2, b"committed")]
        assert (found.last_stable_offset, found.high_watermark, found.next_offset) == (4, 5, 4)
        assert [message.value for message in consumer.iterator(request)] == [b"committed"]
        assert consumer.earliest_or_latest_offset(tp, LATEST_TIME) == 4
        assert consumer.earliest_or_latest_offset(tp, EARLIEST_TIME) == 0
    with SimpleConsumer("127.0.0.1", port) as consumer:
        everything = consumer.fetch(request)
        assert [message.value for message in everything] == [b"aborted", b"committed", b"open"]
        assert consumer.earliest_or_latest_offset(tp, LATEST_TIME) == 5
        assert everything.last_stable_offset == -1
    producer.abort()


def test_a_marker_of_an_older_coordinator_is_refused(
    cli: CommandLine, cluster: ClusterClient, tp: TopicPartition
) -> None:
    leave_hanging(cluster, tp, 4_713, b"late")
    where = ("--topic", tp.topic, "--partition", "0", "--producer-id", "4713", "--producer-epoch", "0")
    assert cli.run("txn", "abort", *where, "--coordinator-epoch", "5") == 0
    assert cli.run("txn", "abort", *where, "--coordinator-epoch", "4") == 1
    assert ErrorCode.TRANSACTION_COORDINATOR_FENCED.name in cli.err
    assert "newer epoch than 4" in cli.err


def test_producers_of_what_does_not_exist_are_an_error(cli: CommandLine, tp: TopicPartition) -> None:
    assert cli.run("txn", "describe-producers", "--topic", tp.topic, "--partition", "7") == 1
    assert f"there is no {tp.topic}-7" in cli.err


def test_a_stream_learns_for_which_producer_it_waits(
    cluster: ClusterClient, producer: TransactionalProducer, tp: TopicPartition
) -> None:
    transactions = ClusterTransactions(cluster)
    producer.begin()
    write(producer, tp, b"a", b"b")
    assert transactions.high_watermarks([tp]) == {tp: 2}
    found = transactions.open_transactions([tp])[tp]
    assert (found.offset, found.transactional_id) == (0, producer.config.transactional_id)
    assert found.producer_id >= 0
    assert found.for_ms < 60_000
    producer.abort()
    assert wait_until(lambda: transactions.open_transactions([tp]) == {}, PATIENCE_S)
    leave_hanging(cluster, tp, 4_714, b"late")
    hung = transactions.open_transactions([tp])[tp]
    assert (hung.offset, hung.producer_id, hung.transactional_id) == (3, 4_714, "")
