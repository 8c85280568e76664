"""Brokers that refuse the login of a client: its call fails at once, and nothing is tried for ever."""

from __future__ import annotations

from typing import Any

import pytest

from minikafka.base.errors import (
    AuthenticationFailed,
    ConsumerRebalanceFailed,
    FailedToSendMessage,
    IdentityProviderUnreachable,
    NetworkError,
)
from minikafka.base.ids import TopicPartition
from minikafka.clients.admin.admin import Admin
from minikafka.clients.fetch.range_fetcher import RangeFetcher
from minikafka.clients.network.broker_connection import ResponseFuture
from minikafka.clients.produce.config import BatchingConfig
from minikafka.clients.produce.producer import BatchingProducer
from minikafka.clients.producer import KeyedMessage
from minikafka.net.interfaces import Connection
from minikafka.wire.apis.join_group import JOIN_GROUP
from tests.support.broker_harness import FIRST_PORT, BrokerHarness
from tests.support.connector_harness import ZooKeeperGroupHarness
from tests.support.fetcher_harness import FetcherHarness, five_messages
from tests.support.group_consumer_harness import GroupHarness, everything
from tests.support.producer_harness import make_producer
from tests.support.raising import raising

REASON = "PLAIN: the broker refuses the login"
REFUSED = pytest.raises(AuthenticationFailed, match=REASON)
T0 = TopicPartition("t", 0)


def refuse_logins(
    brokers: BrokerHarness, monkeypatch: pytest.MonkeyPatch, broker_id: int | None = None
) -> None:
    """Refuse all later logins (of one broker), as after a change of the password."""
    connect = brokers.network.connect

    def refuse(host: str, port: int) -> Connection:
        if broker_id is None or port == FIRST_PORT + broker_id:
            raise AuthenticationFailed(REASON, REASON)
        return connect(host, port)

    monkeypatch.setattr(brokers.network, "connect", refuse)
    for connection in list(brokers.network._connections):
        if broker_id is None or connection.peer.endswith(f":{FIRST_PORT + broker_id}"):
            connection.reset()


def test_admin_raises_it_in_its_call(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = BrokerHarness(1, {"t": 1})
    refuse_logins(brokers, monkeypatch)
    with brokers.client() as cluster, REFUSED:
        Admin(cluster).describe_cluster()
    assert brokers.clock.monotonic_ms() == 0


def test_check_of_a_login_names_an_identity_provider_that_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = BrokerHarness(1)
    away = IdentityProviderUnreachable("https://idp: Connection refused", "memory:9001", "check the address")
    monkeypatch.setattr(brokers.network, "connect", raising(away))
    with brokers.client() as cluster:
        with pytest.raises(
            IdentityProviderUnreachable, match="https://idp: Connection refused; check the add"
        ):
            cluster.check_login(4_000)
        with pytest.raises(NetworkError, match=r"reached for 300 ms: .*https://idp: .*; check the address$"):
            cluster.metadata(timeout_ms=300)


@pytest.mark.parametrize(("connect_ms", "asked"), [(1_000, 3), (3_000, 1)])
def test_check_of_a_login_tries_no_server_late(
    monkeypatch: pytest.MonkeyPatch, connect_ms: int, asked: int
) -> None:
    brokers = BrokerHarness(1)
    ports: list[int] = []

    def connect(host: str, port: int) -> Connection:
        ports.append(port)
        brokers.clock.advance(connect_ms)
        raise NetworkError("no connection", f"{host}:{port}")

    monkeypatch.setattr(brokers.network, "connect", connect)
    with brokers.client(bootstrap="memory:1,memory:2,memory:3,memory:4") as cluster:
        assert not cluster.check_login(4_000)
    assert ports == [1, 2, 3][:asked]


def test_producer_raises_it_when_it_looks_up_a_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = BrokerHarness(1, {"t": 1})
    refuse_logins(brokers, monkeypatch)
    producer = BatchingProducer(brokers.client(), threads=False)
    with REFUSED:
        producer.send("t", b"v")


@pytest.mark.parametrize("acks", [1, -1])
def test_queued_records_fail_with_it(monkeypatch: pytest.MonkeyPatch, acks: int) -> None:
    brokers = BrokerHarness(1, {"t": 1})
    cluster = brokers.client()
    producer = BatchingProducer(cluster, BatchingConfig(acks=acks), threads=False)
    cluster.topic("t")
    refuse_logins(brokers, monkeypatch)
    cluster.invalidate("t")
    future = producer.send("t", b"v")
    producer.wait([future])
    assert isinstance(future.error, AuthenticationFailed)
    assert brokers.clock.monotonic_ms() < 1_000


def test_login_refused_for_a_producer_id_leaves_idempotence_on(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = BrokerHarness(1, {"t": 1})
    cluster = brokers.client()
    producer = BatchingProducer(cluster, BatchingConfig(acks=-1), threads=False)
    cluster.topic("t")
    with monkeypatch.context() as refusing:
        refuse_logins(brokers, refusing)
        failed = producer.send("t", b"v")
        producer.wait([failed])
    assert isinstance(failed.error, AuthenticationFailed)
    sent = producer.send("t", b"v")
    producer.wait([sent])
    assert sent.error is None
    assert brokers.logs[T0].end_offset == 1
    assert producer._sender._sequences._enabled


def test_producer_of_the_texts_raises_it_as_a_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = BrokerHarness(1, {"t": 1})
    refuse_logins(brokers, monkeypatch)
    producer = make_producer(brokers, request_required_acks=1)
    with pytest.raises(FailedToSendMessage, match=REASON) as failed:
        producer.send(KeyedMessage("t", b"v"))
    assert [type(cause) for cause in failed.value.causes.values()] == [AuthenticationFailed]
    assert len(failed.value.failed) == 1
    assert brokers.clock.monotonic_ms() == 0


def test_consumer_raises_it_in_its_poll(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = GroupHarness()
    consumer = harness.consumer()
    refuse_logins(harness.brokers, monkeypatch)
    with REFUSED:
        consumer.poll(50)


def test_member_raises_it_for_a_heartbeat_of_its_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = GroupHarness()
    consumer = harness.member()
    refuse_logins(harness.brokers, monkeypatch)
    harness.brokers.clock.advance(300)
    consumer._member.tick()
    with REFUSED:
        consumer._member._raise_failure()


def test_member_raises_it_when_its_connections_break(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = GroupHarness()
    consumer = harness.member()
    refuse_logins(harness.brokers, monkeypatch)
    with REFUSED:
        for _ in range(40):
            consumer.poll(50)


def test_member_joins_after_its_request_was_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = GroupHarness()
    consumer = harness.consumer()
    refused = False

    def refuse_once(reply: ResponseFuture[Any], timeout_ms: int | None = None) -> Any:
        nonlocal refused
        if not refused and reply._api is JOIN_GROUP:
            refused = True
            raise AuthenticationFailed(REASON, REASON)
        return result(reply, timeout_ms)

    result = ResponseFuture.result
    monkeypatch.setattr(ResponseFuture, "result", refuse_once)
    with REFUSED:
        harness.read(consumer)
    # The broker has to forget the member that it had answered.
    assert harness.read(consumer, rounds=400).keys() == everything()


def test_consumer_looks_up_a_coordinator_again_that_refuses_it(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = GroupHarness()
    consumer = harness.member()
    consumer.commit_sync()
    refuse_logins(harness.brokers, monkeypatch, broker_id=1)
    with REFUSED:
        consumer.committed([T0])
    harness.brokers.move_coordinator(2)
    assert consumer.committed([T0])[T0].offset == 5


def test_stream_raises_it_when_leaders_are_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    _, harness, stream = five_messages()
    refuse_logins(harness.brokers, monkeypatch)
    harness.start(stream, steps=1)
    with REFUSED:
        stream.drain()


def test_stream_raises_it_when_the_leader_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers, harness, stream = five_messages()
    harness.start(stream, steps=1)
    stream.drain()
    refuse_logins(brokers, monkeypatch)
    harness.step(2)
    with REFUSED:
        stream.drain()


def test_stream_with_a_full_queue_raises_it_after_its_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = BrokerHarness(1, {"t": 2})
    harness = FetcherHarness(brokers)
    stream = harness.stream(1)
    refuse_logins(brokers, monkeypatch)
    harness.fetch([harness.info(stream), harness.info(stream, partition=1)], steps=2)
    assert len(stream.queue) == 1
    with REFUSED:
        stream.drain()


def test_rebalance_that_cannot_fetch_offsets_fails_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = ZooKeeperGroupHarness(t=1)
    consumer = harness.consumer(offsets_storage="kafka")
    refuse_logins(harness.brokers, monkeypatch)
    consumer.reads(t=1)
    harness.go(200)
    with pytest.raises(ConsumerRebalanceFailed, match=REASON):
        next(consumer.streams[0].iterator())


def test_range_of_a_partition_fails_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers, _, _ = five_messages()
    with brokers.client() as cluster:
        sets = RangeFetcher(cluster, T0, 0, 5, timeout_ms=10_000)
        refuse_logins(brokers, monkeypatch)
        with REFUSED:
            next(sets)
    assert brokers.clock.monotonic_ms() == 0
