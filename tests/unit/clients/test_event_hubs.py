"""Clients of a broker that has the APIs of Azure Event Hubs, as they were seen in 2019, and no others.

Produce has no version for formats 0 and 1, and there are no producer ids. The login (SaslHandshake 0) is in
``tests/unit/net/test_authentication.py``, and all of it over sockets in ``test_event_hubs_gateway.py``.
"""

from __future__ import annotations

import pytest

from minikafka.base.errors import BrokerError, ErrorCode
from minikafka.base.ids import TopicPartition
from minikafka.clients.admin.admin import EARLIEST, LATEST, Admin
from minikafka.clients.fetch.range_fetcher import RangeFetcher
from minikafka.clients.network.cluster import ClusterClient
from minikafka.clients.produce.config import BatchingConfig
from minikafka.clients.produce.producer import BatchingProducer
from minikafka.clients.producer import KeyedMessage
from minikafka.records.format.message_set import Codec, iterate
from minikafka.wire.api import ApiKey
from minikafka.wire.api_table import APIS
from tests.support.broker_harness import BrokerHarness
from tests.support.gateway import EVENT_HUBS_2019
from tests.support.group_consumer_harness import GroupHarness, everything
from tests.support.producer_harness import make_producer

TABLE = {ApiKey(key): versions for key, versions in EVENT_HUBS_2019.items()}
T0 = TopicPartition("t", 0)


def limit(brokers: BrokerHarness) -> BrokerHarness:
    """Let the brokers advertise the table alone."""
    brokers.oldest = {key: oldest for key, (oldest, _) in TABLE.items()}
    brokers.newest = {key: newest for key, (_, newest) in TABLE.items()}
    brokers.unknown = set(APIS) - set(TABLE)
    return brokers


@pytest.fixture
def brokers() -> BrokerHarness:
    return limit(BrokerHarness(1, {"t": 1}))


@pytest.fixture
def cluster(brokers: BrokerHarness) -> ClusterClient:
    return brokers.client()


def test_every_request_is_in_the_table(brokers: BrokerHarness, cluster: ClusterClient) -> None:
    producer = BatchingProducer(cluster, BatchingConfig(acks=-1, compression=Codec.GZIP), threads=False)
    futures = [producer.send("t", b"%d" % number) for number in range(10)]
    producer.wait(futures)
    assert [future.error for future in futures if future.error] == []
    assert Admin(cluster).offsets({T0: LATEST}) == {T0: 10}
    assert Admin(cluster).offsets({T0: EARLIEST}) == {T0: 0}
    read = [
        record.value
        for data in RangeFetcher(cluster, T0, 0, 10, timeout_ms=5_000)
        for record in iterate(data)
    ]
    assert read == [b"%d" % number for number in range(10)]
    for _, key, version, _ in brokers.requests:
        if key is ApiKey.API_VERSIONS:
            continue  # of which a client sends its own newest version first
        oldest, newest = TABLE[key]
        assert oldest <= version <= newest


def test_required_idempotence_is_refused_with_the_reason(cluster: ClusterClient) -> None:
    producer = BatchingProducer(cluster, BatchingConfig(acks=-1, idempotence=True), threads=False)
    future = producer.send("t", b"v")
    producer.wait([future])
    assert isinstance(future.error, BrokerError)
    assert future.error.code is ErrorCode.UNSUPPORTED_VERSION
    assert "enable.idempotence=true" in str(future.error)


def test_producer_of_the_texts_writes_the_format_that_is_accepted(brokers: BrokerHarness) -> None:
    producer = make_producer(brokers, request_required_acks=-1)
    producer.send([KeyedMessage("t", b"v", b"k")])
    assert brokers.logs[T0].end_offset == 1


def test_group_reads_and_commits() -> None:
    harness = GroupHarness()
    limit(harness.brokers)
    consumer = harness.consumer()
    assert set(harness.read(consumer)) == everything()
    consumer.commit_sync()
    assert set(harness.committed().values()) == {5}
    consumer.close()
