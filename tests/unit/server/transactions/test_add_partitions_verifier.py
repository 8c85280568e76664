"""Verifications: who is asked, in how many requests, and what comes of errors."""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import pytest

from minikafka.base.errors import ErrorCode
from minikafka.base.ids import BrokerAddress, ProducerIdAndEpoch, TopicPartition
from minikafka.net.memory import MemoryNetwork
from minikafka.net.server import Exchange
from minikafka.partition.replica import LeaderAndIsr
from minikafka.server.transactions import add_partitions_verifier
from minikafka.server.transactions.add_partitions_verifier import AddPartitionsVerifier, Results
from minikafka.wire.api import ApiKey
from minikafka.wire.apis.add_partitions_to_txn import (
    ADD_PARTITIONS_TO_TXN,
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
)
from minikafka.wire.apis.api_versions import API_VERSIONS, ApiVersion, ApiVersionsResponse
from minikafka.wire.framing import RequestHeader, response_header

E = ErrorCode
P = ProducerIdAndEpoch(7, 0)
NEWER = ProducerIdAndEpoch(7, 1)
T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)


class CoordinatorBroker:
    """Another broker, which coordinates transactions: it answers when the test says so."""

    def __init__(self, newest: int) -> None:
        self.newest = newest
        self.requests: list[AddPartitionsToTxnRequest] = []
        self.refused: dict[TopicPartition, ErrorCode] = {}
        self.error = E.NONE
        self.held = False
        self.unanswered: list[tuple[Exchange, RequestHeader]] = []

    def on_request(self, exchange: Exchange, frame: memoryview) -> None:
        header, body = RequestHeader.decode(frame)
        if header.api_key == ApiKey.API_VERSIONS:
            key = ApiVersion(int(ApiKey.ADD_PARTITIONS_TO_TXN), 0, self.newest)
            answer = API_VERSIONS.encode_response(0, ApiVersionsResponse(E.NONE, (key,)))
            exchange.respond([response_header(header.correlation_id), *answer])
            return
        self.requests.append(ADD_PARTITIONS_TO_TXN.decode_request(header.api_version, body))
        self.unanswered.append((exchange, header))
        if not self.held:
            self.answer()

    def answer(self) -> None:
        """Answer the oldest request."""
        exchange, header = self.unanswered.pop(0)
        results = tuple(
            AddPartitionsToTxnResult(
                transaction.transactional_id,
                tuple(
                    AddPartitionsToTxnTopicResult(
                        topic.name,
                        tuple(
                            AddPartitionsToTxnPartitionResult(
                                index, self.refused.get(TopicPartition(topic.name, index), E.NONE)
                            )
                            for index in topic.partitions
                        ),
                    )
                    for topic in transaction.topics
                ),
            )
            for transaction in self.requests[-1].transactions
        )
        response = AddPartitionsToTxnResponse(0, error_code=self.error, results_by_transaction=results)
        version = header.api_version
        body = ADD_PARTITIONS_TO_TXN.encode_response(version, response)
        flexible = ADD_PARTITIONS_TO_TXN.has_tagged_response_header(version)
        exchange.respond([response_header(header.correlation_id, flexible), *body])


class OwnCoordinator:
    """The coordinator of the broker that verifies; partition 1 of the topic belongs to the other one."""

    def partition_of(self, transactional_id: str) -> TopicPartition:
        return TopicPartition("__transaction_state", 0 if transactional_id == "own" else 1)

    def verify_partitions(
        self, transactional_id: str, producer: ProducerIdAndEpoch, partitions: Iterable[TopicPartition]
    ) -> Results:
        return dict.fromkeys(partitions, E.TRANSACTION_ABORTABLE)


class World:
    """Broker 1, which verifies, and broker 2, which coordinates."""

    def __init__(self, newest: int = 4) -> None:
        self.network = MemoryNetwork(request_timeout_ms=1_000)
        self.coordinator = CoordinatorBroker(newest)
        self.server = self.network.listen("b2", 9092, self.coordinator)
        self.leaders = {0: 1, 1: 2}
        self.addresses = {1: BrokerAddress(1, "b1", 9092), 2: BrokerAddress(2, "b2", 9092)}
        self.results: list[Results] = []
        broker: Any = SimpleNamespace(
            broker_id=1,
            clock=self.network.clock,
            config=SimpleNamespace(
                inter_broker=SimpleNamespace(listener="PLAINTEXT"),
                replication=SimpleNamespace(socket_timeout_ms=1_000),
            ),
            leadership=self._leadership,
            partitions={},
            metadata_cache=SimpleNamespace(addresses=lambda listener: self.addresses),
        )
        self.verifier = AddPartitionsVerifier(broker, OwnCoordinator(), self.network, None)

    def _leadership(self, topic_partition: TopicPartition) -> LeaderAndIsr | None:
        leader = self.leaders.get(topic_partition.partition)
        return None if leader is None else LeaderAndIsr(leader, 0, (leader,), (leader,), 1)

    def verify(self, *partitions: TopicPartition, name: str = "tx", producer: ProducerIdAndEpoch = P) -> None:
        self.verifier.verify(name, producer, partitions, self.results.append)

    def run(self) -> None:
        """Run everything that needs no time."""
        while self.verifier.step():
            self.network.run()

    def asked(self) -> list[list[str]]:
        """The transactional ids of each request."""
        return [
            [transaction.transactional_id for transaction in request.transactions]
            for request in self.coordinator.requests
        ]


def test_coordinator_on_another_broker_is_asked() -> None:
    world = World()
    world.coordinator.refused = {T1: E.TRANSACTION_ABORTABLE}
    world.verify(T0, T1, U0)
    world.run()
    assert world.results == [{T0: E.NONE, T1: E.TRANSACTION_ABORTABLE, U0: E.NONE}]
    ((transaction,),) = (request.transactions for request in world.coordinator.requests)
    assert transaction.verify_only
    assert (transaction.transactional_id, transaction.producer_id, transaction.producer_epoch) == ("tx", *P)
    assert [(topic.name, topic.partitions) for topic in transaction.topics] == [("t", (0, 1)), ("u", (0,))]


def test_coordinator_on_this_broker_is_asked_directly() -> None:
    world = World()
    world.verify(T0, name="own")
    assert world.results == [{T0: E.TRANSACTION_ABORTABLE}]


def test_what_comes_during_a_request_is_one_request() -> None:
    world = World()
    world.coordinator.held = True
    world.verify(T0, name="a")
    world.run()
    for name in "bcd":
        world.verify(T0, name=name)
    world.run()
    assert world.asked() == [["a"]]
    world.coordinator.held = False
    world.coordinator.answer()
    world.network.run()
    world.run()
    assert world.asked() == [["a"], ["b", "c", "d"]]
    assert world.results == [{T0: E.NONE}] * 4


def test_verifications_of_one_transaction_are_joined() -> None:
    world = World()
    world.coordinator.refused = {T1: E.TRANSACTION_ABORTABLE}
    world.verify(T0, U0)
    world.verify(T0, T1)
    world.run()
    assert world.asked() == [["tx"]]
    assert world.results == [{T0: E.NONE, U0: E.NONE}, {T0: E.NONE, T1: E.TRANSACTION_ABORTABLE}]


def test_two_producers_of_a_transactional_id_are_two_requests() -> None:
    world = World()
    world.verify(T0)
    world.verify(T0, producer=NEWER)
    world.run()
    assert world.asked() == [["tx"], ["tx"]]
    assert len(world.results) == 2


def test_a_request_has_a_limit_of_transactions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(add_partitions_verifier, "MAX_TRANSACTIONS", 2)
    world = World()
    for name in "abcde":
        world.verify(T0, name=name)
    world.verify(T1, name="a")
    world.run()
    assert world.asked() == [["a", "b"], ["c", "d"], ["e"]]
    assert len(world.results) == 6


@pytest.mark.parametrize(
    ("error", "result"),
    [
        (E.CLUSTER_AUTHORIZATION_FAILED, E.INVALID_TXN_STATE),
        (E.NOT_COORDINATOR_FOR_GROUP, E.NOT_COORDINATOR_FOR_GROUP),
    ],
)
def test_error_of_the_whole_request_is_that_of_each_partition(error: ErrorCode, result: ErrorCode) -> None:
    world = World()
    world.coordinator.error = error
    world.verify(T0, T1)
    world.run()
    assert world.results == [{T0: result, T1: result}]


def test_older_coordinator_counts_as_agreeing(caplog: pytest.LogCaptureFixture) -> None:
    world = World(newest=3)
    world.verify(T0)
    world.verify(T1, name="other")
    world.run()
    world.verify(T0)
    world.run()
    assert world.results == [{T0: E.NONE}, {T1: E.NONE}, {T0: E.NONE}]
    assert world.coordinator.requests == []
    assert [record.levelname for record in caplog.records] == ["WARNING"]


def test_broken_connection_fails_all_that_wait() -> None:
    world = World()
    world.coordinator.held = True
    world.verify(T0)
    world.run()
    world.verify(T1)
    world.server.vanish()
    world.network.run()
    world.run()
    assert world.results == [{T0: E.NETWORK_EXCEPTION}, {T1: E.NETWORK_EXCEPTION}]


def test_coordinator_that_does_not_answer_fails_in_time() -> None:
    world = World()
    world.coordinator.held = True
    world.verify(T0)
    world.run()
    world.network.clock.advance(1_000)
    world.run()
    assert world.results == [{T0: E.NETWORK_EXCEPTION}]
    world.coordinator.unanswered.clear()
    world.coordinator.held = False
    world.verify(T0)
    assert world.verifier.due_ms() > world.network.clock.monotonic_ms()
    world.network.clock.advance(add_partitions_verifier.RETRY_MS)
    world.run()
    assert world.results[1:] == [{T0: E.NONE}]


def test_unknown_coordinator_is_not_available() -> None:
    world = World()
    del world.leaders[1]
    world.verify(T0)
    world.leaders[1] = 3
    world.verify(T0)
    assert world.results == [{T0: E.GROUP_COORDINATOR_NOT_AVAILABLE}] * 2


def test_coordinator_that_moved_is_asked_at_its_new_broker() -> None:
    world = World()
    world.verify(T0)
    world.run()
    world.network.listen("b3", 9092, world.coordinator)
    world.addresses = {1: world.addresses[1], 3: BrokerAddress(3, "b3", 9092)}
    world.leaders[1] = 3
    world.verify(T0)
    world.run()
    assert world.results == [{T0: E.NONE}] * 2
    assert len(world.verifier._connections) == 1


def test_error_after_a_verification_does_not_affect_others() -> None:
    def fail(results: Results) -> None:
        raise RuntimeError("a fault")

    world = World()
    world.verifier.verify("a", P, [T0], fail)
    world.verify(T0, name="b")
    world.run()
    assert world.results == [{T0: E.NONE}]


def test_stop_fails_what_waits_and_what_comes_later() -> None:
    world = World()
    world.coordinator.held = True
    world.verify(T0)
    world.run()
    world.verify(T1)
    world.verifier.stop()
    assert world.results == [{T0: E.NETWORK_EXCEPTION}, {T1: E.NETWORK_EXCEPTION}]
    world.verify(T0)
    world.run()
    assert world.results[2:] == [{T0: E.GROUP_COORDINATOR_NOT_AVAILABLE}]
