"""Our idempotent producer against brokers, ours and Kafka 3.9.1, whose answers get lost after they appended:
nothing is there twice.
"""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pytest

from minikafka.base.errors import NetworkError
from minikafka.base.ids import TopicPartition
from minikafka.clients.admin.admin import LATEST, Admin, NewTopic
from minikafka.clients.fetch.range_fetcher import RangeFetcher
from minikafka.clients.network.cluster import ClusterClient as Client
from minikafka.clients.produce import BatchingConfig, BatchingProducer
from minikafka.embedded.cluster import Cluster
from minikafka.net.connection import SocketConnector
from minikafka.net.interfaces import Connection, Connector, PendingResponse
from minikafka.records.columns import encode
from minikafka.records.format.message_set import Codec, StoredRecord, iterate
from minikafka.wire.api import ApiKey
from minikafka.wire.frame_parts import Part
from tests.interop.releases import KAFKA_3_9
from tests.support.kafka_broker import running

pytestmark = [pytest.mark.timeout(180)]

COUNT = 3_000
_NUMBERS = itertools.count()


class _Lost:
    """An answer that the broker has sent, and that does not arrive."""

    def __init__(self, connection: Connection, pending: PendingResponse) -> None:
        self._connection = connection
        self._pending = pending

    def done(self) -> bool:
        return self._pending.done()

    def result(self, timeout_ms: int | None = None) -> memoryview:
        self._pending.result(timeout_ms)  # so it was appended
        self._connection.close()
        raise NetworkError("the connection was cut before the answer")


class _Losing:
    """A connection that loses answers to Produce."""

    def __init__(self, connection: Connection, losses: Losses) -> None:
        self._connection = connection
        self._losses = losses
        self.session_end_ms = connection.session_end_ms

    @property
    def peer(self) -> str:
        return self._connection.peer

    @property
    def closed(self) -> bool:
        return self._connection.closed

    def request(self, parts: Sequence[Part], max_response_bytes: int | None = None) -> PendingResponse:
        pending = self._connection.request(parts, max_response_bytes)
        produces = bytes(parts[0][:2]) == int(ApiKey.PRODUCE).to_bytes(2, "big")  # type: ignore[index]
        return _Lost(self._connection, pending) if produces and self._losses.next() else pending

    def send(self, parts: Sequence[Part]) -> None:
        self._connection.send(parts)

    def close(self, drain_ms: int = 0) -> None:
        self._connection.close(drain_ms)


class Losses:
    """Connections of which every few answers to Produce get lost."""

    def __init__(self, seed: int) -> None:
        self.count = 0
        self._chance = random.Random(seed)
        self._lock = threading.Lock()
        self._connector = SocketConnector(request_timeout_ms=30_000)

    def next(self) -> bool:
        with self._lock:
            lost = self._chance.random() < 0.3
            self.count += lost
            return lost

    def connect(self, host: str, port: int) -> Connection:
        return _Losing(self._connector.connect(host, port), self)

    def wait_any(self, pending: Sequence[PendingResponse], timeout_ms: int) -> bool:
        return self._connector.wait_any(pending, timeout_ms)


@pytest.fixture(scope="module", params=["minikafka", pytest.param(str(KAFKA_3_9), marks=pytest.mark.interop)])
def bootstrap(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if request.param == "minikafka":
        with Cluster() as cluster:
            yield cluster.bootstrap_servers
    else:
        with running(KAFKA_3_9, tmp_path_factory.mktemp("idempotence")) as broker:
            yield broker.bootstrap


def topic_of(bootstrap: str, partitions: int) -> list[TopicPartition]:
    name = f"idempotent-{next(_NUMBERS)}"
    with Client(bootstrap) as client:
        Admin(client).create_topic(NewTopic(name, partitions))
    return [TopicPartition(name, number) for number in range(partitions)]


def stored(bootstrap: str, tp: TopicPartition) -> list[StoredRecord]:
    with Client(bootstrap) as client:
        end = Admin(client).offsets({tp: LATEST})[tp]
        assert end is not None
        return [record for data in RangeFetcher(client, tp, 0, end) for record in iterate(data)]


def losing(bootstrap: str, connector: Connector) -> Client:
    return Client(bootstrap, connector=connector)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4, Codec.ZSTD])
def test_records_whose_answers_were_lost_are_there_once_and_in_order(bootstrap: str, codec: Codec) -> None:
    partitions = topic_of(bootstrap, 2)
    losses = Losses(seed=codec)
    config = BatchingConfig(idempotence=True, batch_bytes=1_000, retry_backoff_ms=1, compression=codec)
    with losing(bootstrap, losses) as client, BatchingProducer(client, config) as producer:
        sent = [producer.send(partitions[0].topic, b"%d" % n, partition=n % 2) for n in range(COUNT)]
    assert losses.count > 5
    assert [delivery.result().offset for delivery in sent] == [n // 2 for n in range(COUNT)]
    for tp in partitions:
        values = [record.value for record in stored(bootstrap, tp)]
        assert values == [b"%d" % n for n in range(tp.partition, COUNT, 2)]


def test_encoded_batches_with_lost_responses_are_stored_once(bootstrap: str) -> None:
    (tp,) = topic_of(bootstrap, 1)
    losses = Losses(seed=7)
    numbers = pa.array([b"%d" % n for n in range(1_000)])
    times = np.zeros(1_000, dtype=np.int64)
    codecs, sealed = itertools.cycle(Codec), itertools.cycle((True, False, False))
    sets = [
        (encoded.data, one_is_sealed)
        for at, codec, one_is_sealed in zip(range(0, 1_000, 20), codecs, sealed, strict=False)
        for encoded in encode(
            None,
            numbers,
            times,
            np.arange(at, at + 20),
            magic=2,
            codec=codec,
            max_bytes=1 << 20,
            sealed=one_is_sealed,
        )
    ]
    config = BatchingConfig(acks=-1, retry_backoff_ms=1)
    with losing(bootstrap, losses) as client, BatchingProducer(client, config) as producer:
        sent = [producer.send_encoded(tp, data, 20, sealed=one_is_sealed) for data, one_is_sealed in sets]
    assert losses.count > 5
    assert [delivery.result().offset for delivery in sent] == list(range(0, 1_000, 20))
    found = stored(bootstrap, tp)
    assert [record.value for record in found] == [b"%d" % n for n in range(1_000)]
    assert [record.sequence for record in found] == list(range(1_000))
    assert len({record.producer_id for record in found}) == 1


def test_after_the_records_of_a_producer_were_deleted_it_goes_on(bootstrap: str) -> None:
    (tp,) = topic_of(bootstrap, 1)
    with Client(bootstrap) as client, BatchingProducer(client, BatchingConfig(idempotence=True)) as producer:
        for number in range(3):
            assert producer.send(tp.topic, b"%d" % number, partition=0).result().offset == number
            delete_records(bootstrap, tp, number + 1)


def delete_records(bootstrap: str, tp: TopicPartition, offset: int) -> None:
    confluent_kafka = pytest.importorskip("confluent_kafka")
    admin = pytest.importorskip("confluent_kafka.admin").AdminClient({"bootstrap.servers": bootstrap})
    asked = admin.delete_records([confluent_kafka.TopicPartition(tp.topic, tp.partition, offset)])
    for result in asked.values():
        assert result.result(30.0).low_watermark == offset
