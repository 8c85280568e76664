"""Our transactional producer, on our brokers and on Kafka 3.9.1: outcomes, fences, lost responses, kills."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from minikafka import TransactionalProducer
from minikafka.base.errors import BrokerError, ErrorCode, NetworkError, ProducerFenced, TransactionAbortable
from minikafka.base.ids import TopicPartition
from minikafka.clients.admin.admin import Admin, NewTopic
from minikafka.clients.group.consumer import Committed, GroupConsumer
from minikafka.clients.network.cluster import ClusterClient
from minikafka.clients.produce.transaction_manager import TransactionState
from minikafka.embedded.process import wait_until
from minikafka.net.connection import SocketConnector
from minikafka.net.interfaces import Connection, Part, PendingResponse
from minikafka.records.columns import encode
from minikafka.wire.api import ApiKey
from tests.interop.releases import KAFKA_0_10
from tests.support.kafka_broker import running
from tests.support.transactional_clusters import KAFKA, OURS, committed, transactional_cluster

pytestmark = [pytest.mark.interop, pytest.mark.timeout(180)]

COPIER = Path(__file__).parent / "programs" / "transactional_copier.py"
PATIENCE_S = 60.0
_NUMBERS = itertools.count()


@pytest.fixture(scope="module", params=[OURS, KAFKA])
def bootstrap(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with transactional_cluster(request.param, tmp_path_factory.mktemp("transactional")) as addresses:
        yield addresses


@pytest.fixture
def cluster(bootstrap: str) -> Iterator[ClusterClient]:
    with ClusterClient(bootstrap) as cluster:
        yield cluster


@pytest.fixture
def topic(cluster: ClusterClient) -> str:
    return new_topic(cluster)


def new_topic(cluster: ClusterClient, partitions: int = 2) -> str:
    name = f"transactional-{next(_NUMBERS)}"
    Admin(cluster).create_topic(NewTopic(name, partitions=partitions))
    return name


@contextlib.contextmanager
def producer_of(cluster: ClusterClient, **properties: Any) -> Iterator[TransactionalProducer]:
    given = {name.replace("_", "."): value for name, value in properties.items()}
    with TransactionalProducer(
        cluster, {"transactional.id": f"producer-{next(_NUMBERS)}", **given}
    ) as producer:
        producer.init_transactions()
        yield producer


def test_what_was_committed_is_visible_and_nothing_else(cluster: ClusterClient, topic: str) -> None:
    with producer_of(cluster, linger_ms=5) as producer:
        for number in range(9):
            producer.begin()
            sent = [producer.send(topic, b"%d-%d" % (number, n), partition=n % 2) for n in range(50)]
            if number % 3 == 1:
                producer.flush()
            if number % 3:
                producer.abort()
            else:
                producer.commit()
                assert all(future.error is None for future in sent)
    wanted = [b"%d-%d" % (number, n) for p in (0, 1) for number in (0, 3, 6) for n in range(p, 50, 2)]
    assert committed(cluster, topic) == wanted


def test_a_block_commits_at_its_end_and_aborts_after_an_exception(cluster: ClusterClient, topic: str) -> None:
    with producer_of(cluster) as producer:
        with producer.transaction():
            producer.send(topic, b"kept", partition=0)
        with contextlib.suppress(KeyError), producer.transaction():
            producer.send(topic, b"dropped", partition=0)
            producer.flush()
            raise KeyError
        with producer.transaction():
            producer.send(topic, b"kept too", partition=0)
    assert committed(cluster, topic) == [b"kept", b"kept too"]


def test_a_producer_that_is_closed_aborts_its_transaction(cluster: ClusterClient, topic: str) -> None:
    with producer_of(cluster) as producer:
        producer.begin()
        producer.send(topic, b"open", partition=0)
        producer.flush()
    assert committed(cluster, topic) == []


def test_encoded_batches_are_in_the_transaction(cluster: ClusterClient, topic: str) -> None:
    tp = TopicPartition(topic, 0)
    values = pa.array([b"%d" % n for n in range(1_000)])
    rows = [np.arange(at, at + 100) for at in range(0, 1_000, 100)]
    times = np.zeros(1_000, dtype=np.int64)
    with producer_of(cluster) as producer:
        for ends in (producer.commit, producer.abort, producer.commit):
            producer.begin()
            for sealed, wanted in zip(itertools.cycle((True, False)), rows, strict=False):
                (made,) = encode(None, values, times, wanted, magic=2, max_bytes=1 << 20, sealed=sealed)
                producer.send_encoded(tp, made.data, made.count, sealed=sealed)
            ends()
    assert committed(cluster, topic) == values.to_pylist() * 2


def test_a_second_producer_fences_the_first(cluster: ClusterClient, topic: str) -> None:
    with producer_of(cluster, transactional_id="fenced") as first:
        first.begin()
        first.send(topic, b"first", partition=0)
        first.flush()
        with producer_of(cluster, transactional_id="fenced") as second:
            with second.transaction():
                second.send(topic, b"second", partition=0)
            with pytest.raises(ProducerFenced, match=r"another producer with this transactional\.id"):
                first.commit()
            assert first.state is TransactionState.FATAL_ERROR
            with pytest.raises(ProducerFenced):
                first.abort()
            with second.transaction():
                second.send(topic, b"again", partition=0)
    assert committed(cluster, topic) == [b"second", b"again"]


def test_a_fenced_producer_learns_it_from_a_batch_too(cluster: ClusterClient, topic: str) -> None:
    with producer_of(cluster, transactional_id="fenced too") as first:
        first.begin()
        first.send(topic, b"first", partition=0).result()
        with producer_of(cluster, transactional_id="fenced too") as second:
            with second.transaction():
                second.send(topic, b"second", partition=0)
            # Between the commit and its marker the error would be INVALID_TXN_STATE.
            assert committed(cluster, topic) == [b"second"]
            future = first.send(topic, b"late", partition=0)
            first.flush()
            assert isinstance(future.error, BrokerError)
            with pytest.raises(ProducerFenced):
                first.commit()
    assert committed(cluster, topic) == [b"second"]


def test_the_coordinator_aborts_a_transaction_that_takes_too_long(cluster: ClusterClient, topic: str) -> None:
    with producer_of(cluster, transaction_timeout_ms=300) as producer:
        producer.begin()
        producer.send(topic, b"slow", partition=0)
        producer.flush()
        assert committed(cluster, topic) == []  # it waits for the end
        with pytest.raises(ProducerFenced, match=r"transaction\.timeout\.ms=300"):
            producer.commit()


def test_offsets_are_committed_with_the_transaction(cluster: ClusterClient, topic: str) -> None:
    tp, group = TopicPartition(topic, 0), f"group-{topic}"
    with producer_of(cluster) as producer, GroupConsumer(cluster, {"group.id": group}) as consumer:
        for offset, ends in ((5, producer.commit), (7, producer.abort)):
            producer.begin()
            producer.send(topic, b"v", partition=1)
            producer.send_offsets({tp: Committed(offset, "text")}, group)
            ends()
            assert consumer.committed([tp]) == {tp: Committed(5, "text")}


def test_offsets_alone_are_a_transaction(cluster: ClusterClient, topic: str) -> None:
    tp, group = TopicPartition(topic, 0), f"group-{topic}"
    with producer_of(cluster) as producer, GroupConsumer(cluster, {"group.id": group}) as consumer:
        with producer.transaction():
            producer.send_offsets({tp: Committed(3)}, group)
        assert consumer.committed([tp]) == {tp: Committed(3)}


def test_offsets_of_a_member_that_has_left_are_refused(cluster: ClusterClient, topic: str) -> None:
    tp, group = TopicPartition(topic, 0), f"group-{topic}"
    config = {"group.id": group, "enable.auto.commit": False, "session.timeout.ms": 6_000}
    with producer_of(cluster) as producer:
        with GroupConsumer(cluster, config) as consumer:
            consumer.subscribe([topic])
            assert wait_until(
                lambda: consumer.poll(100) is not None and bool(consumer.assignment), PATIENCE_S
            )
            left = consumer.group_metadata()
            with producer.transaction():
                producer.send_offsets({tp: Committed(3)}, left)
        with pytest.raises(TransactionAbortable) as refused, producer.transaction():
            producer.send_offsets({tp: Committed(9)}, left)
        assert refused.value.code is ErrorCode.UNKNOWN_MEMBER_ID
        with GroupConsumer(cluster, config) as reader:
            assert reader.committed([tp]) == {tp: Committed(3)}
        assert producer.state is TransactionState.READY


def test_a_failed_batch_fails_the_commit_and_the_producer_goes_on(cluster: ClusterClient, topic: str) -> None:
    Admin(cluster).create_topic(
        NewTopic(f"{topic}-small", partitions=1, configs={"max.message.bytes": "1000"})
    )
    with producer_of(cluster) as producer:
        producer.begin()
        producer.send(topic, b"fine", partition=0)
        producer.send(f"{topic}-small", bytes(5_000), partition=0)
        with pytest.raises(TransactionAbortable, match=r"max\.message\.bytes"):
            producer.commit()
        producer.abort()
        with producer.transaction():
            producer.send(topic, b"next", partition=0)
    assert committed(cluster, topic) == [b"next"]


@pytest.mark.parametrize(
    ("name", "size_bytes", "partition", "code"),
    [
        ("", 2_000_000, 0, ErrorCode.MESSAGE_TOO_LARGE),  # by this client
        ("", 1, 9, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("bad/name", 1, None, ErrorCode.INVALID_TOPIC),
    ],
)
def test_a_record_that_send_refuses_fails_the_commit(
    cluster: ClusterClient, topic: str, name: str, size_bytes: int, partition: int | None, code: ErrorCode
) -> None:
    with producer_of(cluster) as producer:
        producer.begin()
        producer.send(topic, b"fine", partition=0)
        with pytest.raises(BrokerError) as refused:
            producer.send(name or topic, bytes(size_bytes), partition=partition)
        assert refused.value.code is code
        with pytest.raises(TransactionAbortable) as failed:
            producer.commit()
        assert failed.value.__cause__ is refused.value
        producer.abort()
        with producer.transaction():
            producer.send(topic, b"next", partition=0)
    assert committed(cluster, topic) == [b"next"]


def test_a_callback_that_raises_leaves_the_transaction_as_it_is(cluster: ClusterClient, topic: str) -> None:
    def fail(_: object) -> None:
        raise KeyError

    with producer_of(cluster) as producer, producer.transaction():
        producer.send(topic, b"x", partition=0).on_done(fail)
    assert committed(cluster, topic) == [b"x"]


def test_a_consumer_in_a_group_reads_what_was_committed(cluster: ClusterClient, topic: str) -> None:
    config = {
        "group.id": f"group-{topic}",
        "isolation.level": "read_committed",
        "auto.offset.reset": "earliest",
    }
    with producer_of(cluster) as producer, GroupConsumer(cluster, config) as consumer:
        for number in range(10):
            producer.begin()
            producer.send(topic, b"%d" % number, partition=0)
            producer.flush()
            if number % 2:
                producer.abort()
            else:
                producer.commit()
        consumer.subscribe([topic])
        found: list[bytes | None] = []

        def complete() -> bool:
            found.extend(record.value for record in consumer.poll_records(200))
            return len(found) >= 5

        assert wait_until(complete, PATIENCE_S)
        assert consumer.poll_records(300) == []
    assert found == [b"%d" % number for number in range(0, 10, 2)]


class _Lost:
    """A response that was sent, and does not arrive."""

    def __init__(self, connection: Connection, pending: PendingResponse) -> None:
        self._connection = connection
        self.pending = pending

    def done(self) -> bool:
        return self.pending.done()

    def result(self, timeout_ms: int | None = None) -> memoryview:
        self.pending.result(timeout_ms)
        self._connection.close()
        raise NetworkError("the connection was cut before the response")


class _LosingConnection:
    """A connection that loses some responses of transactional requests."""

    def __init__(self, connection: Connection, connector: _LosingConnector) -> None:
        self._connection = connection
        self._connector = connector
        self.session_end_ms = connection.session_end_ms

    @property
    def peer(self) -> str:
        return self._connection.peer

    @property
    def closed(self) -> bool:
        return self._connection.closed

    def request(self, parts: Sequence[Part], max_response_bytes: int | None = None) -> PendingResponse:
        pending = self._connection.request(parts, max_response_bytes)
        key = int.from_bytes(bytes(parts[0][:2]), "big")  # type: ignore[index]
        return _Lost(self._connection, pending) if self._connector.loses(key) else pending

    def send(self, parts: Sequence[Part]) -> None:
        self._connection.send(parts)

    def close(self, drain_ms: int = 0) -> None:
        self._connection.close(drain_ms)


class _LosingConnector:
    """Makes connections that lose a third of the responses of transactional requests."""

    LOST = frozenset(
        {
            ApiKey.ADD_PARTITIONS_TO_TXN,
            ApiKey.ADD_OFFSETS_TO_TXN,
            ApiKey.TXN_OFFSET_COMMIT,
            ApiKey.END_TXN,
            ApiKey.INIT_PRODUCER_ID,
            ApiKey.PRODUCE,
        }
    )

    def __init__(self, seed: int) -> None:
        self.count = 0
        self._chance = random.Random(seed)
        self._lock = threading.Lock()
        self._connector = SocketConnector(request_timeout_ms=30_000)

    def loses(self, key: int) -> bool:
        with self._lock:
            lost = key in self.LOST and self._chance.random() < 0.3
            self.count += lost
            return lost

    def connect(self, host: str, port: int) -> Connection:
        return _LosingConnection(self._connector.connect(host, port), self)

    def wait_any(self, pending: Sequence[PendingResponse], timeout_ms: int) -> bool:
        sent = [one.pending if isinstance(one, _Lost) else one for one in pending]
        return self._connector.wait_any(sent, timeout_ms)


@pytest.mark.parametrize("threads", [True, False])
def test_lost_responses_leave_each_transaction_whole_and_once(
    bootstrap: str, cluster: ClusterClient, topic: str, threads: bool
) -> None:
    connector = _LosingConnector(seed=11)
    tp, group = TopicPartition(topic, 0), f"group-{topic}"
    config = {"transactional.id": f"losing-{topic}", "retry.backoff.ms": 1}
    with (
        ClusterClient(bootstrap, connector=connector) as losing,
        TransactionalProducer(losing, config, threads=threads) as producer,
    ):
        producer.init_transactions()
        for number in range(40):
            producer.begin()
            for n in range(10):
                producer.send(topic, b"%d-%d" % (number, n), partition=n % 2)
            if number % 2:
                producer.send_offsets({tp: Committed(number)}, group)
            if number % 4 == 3:
                producer.abort()
            else:
                producer.commit()
    assert connector.count > 20
    kept = [number for number in range(40) if number % 4 != 3]
    wanted = [b"%d-%d" % (number, n) for p in (0, 1) for number in kept for n in range(p, 10, 2)]
    assert committed(cluster, topic) == wanted
    with GroupConsumer(cluster, {"group.id": group}) as consumer:
        assert consumer.committed([tp]) == {tp: Committed(37)}


def test_a_killed_copier_copies_each_record_once(
    bootstrap: str, cluster: ClusterClient, tmp_path: Path
) -> None:
    source, target = new_topic(cluster), new_topic(cluster)
    count, chance = 3_000, random.Random(5)
    with producer_of(cluster) as producer:
        for start in range(0, count, 500):
            with producer.transaction():
                for n in range(start, start + 500):
                    producer.send(source, b"%d" % n, partition=n % 2)
    given = {"bootstrap": bootstrap, "source": source, "target": target, "count": count}
    command = [sys.executable, str(COPIER), json.dumps(given)]
    kills = 0
    for attempt in itertools.count():
        with (tmp_path / f"copier-{attempt}.log").open("wb") as log:
            copier = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, env=os.environ)
            assert copier.stdout is not None
            transactions = 0
            for line in copier.stdout:
                transactions += line == b"committed\n"
                if kills < 5 and transactions > chance.randrange(1, 4):
                    os.kill(copier.pid, signal.SIGKILL)
                    kills += 1
                    break
            copier.stdout.close()
            code = copier.wait(PATIENCE_S)
        if code == 0:
            break
        assert code == -signal.SIGKILL, (tmp_path / f"copier-{attempt}.log").read_text()
    assert kills == 5
    found = committed(cluster, target)
    assert found == [b"%d" % n for p in (0, 1) for n in range(p, count, 2)]


def test_a_cluster_without_transactions_is_refused_by_name(tmp_path: Path) -> None:
    with (
        running(KAFKA_0_10, tmp_path / "old") as broker,
        ClusterClient(broker.bootstrap) as cluster,
        TransactionalProducer(cluster, transactional_id="x") as producer,
    ):
        with pytest.raises(BrokerError, match=r"broker 0 at .* it lacks InitProducerId") as error:
            producer.init_transactions()
        assert error.value.code is ErrorCode.UNSUPPORTED_VERSION
