"""The APIs of transactions, on a simulated broker: from the producer's id to the end of the transaction."""

from __future__ import annotations

from typing import Any

import pytest

from minikafka.base.errors import ErrorCode
from minikafka.base.ids import TRANSACTION_STATE_TOPIC, ProducerIdAndEpoch, TopicPartition
from minikafka.server.served_versions import NEWEST_IN_0_10_1
from minikafka.server.transactions import transaction_coordinator
from minikafka.wire.api import ApiKey
from minikafka.wire.apis.add_offsets_to_txn import AddOffsetsToTxnRequest
from minikafka.wire.apis.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from minikafka.wire.apis.describe_transactions import DescribedTransaction, DescribeTransactionsRequest
from minikafka.wire.apis.end_txn import EndTxnRequest
from minikafka.wire.apis.find_coordinator import CoordinatorType, FindCoordinatorRequest
from minikafka.wire.apis.init_producer_id import InitProducerIdRequest
from minikafka.wire.apis.list_transactions import ListTransactionsRequest
from tests.support.requests import Request
from tests.support.simulation import Simulation

E = ErrorCode
K = ApiKey
SETTINGS = {"transaction.state.log.num.partitions": "1", "offsets.topic.num.partitions": "1"}
ID = "x"


class Producer:
    """A producer of transactional id ``ID``, on a cluster of one broker with topic t of two partitions."""

    def __init__(self) -> None:
        self.world = Simulation()
        self.world.start_brokers(1, SETTINGS)
        self.world.create_topic("t", partitions=2)
        self.find()
        self.world.settle()
        self.ids = ProducerIdAndEpoch(-1, -1)

    def call(self, key: ApiKey, version: int, body: Any) -> Any:
        response = self.world.call(Request(key, version, body))
        self.world.settle()
        return response

    def find(self) -> Any:
        return self.call(K.FIND_COORDINATOR, 1, FindCoordinatorRequest(ID, CoordinatorType.TRANSACTION))

    def init(self, version: int = 4) -> ErrorCode:
        found = self.call(K.INIT_PRODUCER_ID, version, InitProducerIdRequest(ID, 60_000))
        self.ids = ProducerIdAndEpoch(found.producer_id, found.producer_epoch)
        return ErrorCode(found.error_code)

    def add(self, *partitions: tuple[str, int], version: int = 3) -> list[ErrorCode]:
        topics = tuple(AddPartitionsToTxnTopic(topic, (number,)) for topic, number in partitions)
        request = AddPartitionsToTxnRequest(ID, *self.ids, topics)
        return codes(self.call(K.ADD_PARTITIONS_TO_TXN, version, request).results_by_topic)

    def verify(self, *partitions: tuple[str, int], verify_only: bool = True) -> list[ErrorCode]:
        topics = tuple(AddPartitionsToTxnTopic(topic, (number,)) for topic, number in partitions)
        rows = (AddPartitionsToTxnTransaction(ID, *self.ids, verify_only, topics),)
        request = AddPartitionsToTxnRequest(transactions=rows)
        response: AddPartitionsToTxnResponse = self.call(K.ADD_PARTITIONS_TO_TXN, 4, request)
        (row,) = response.results_by_transaction
        assert row.transactional_id == ID
        return codes(row.topic_results)

    def add_offsets(self, group: str = "g") -> ErrorCode:
        request = AddOffsetsToTxnRequest(ID, *self.ids, group)
        return ErrorCode(self.call(K.ADD_OFFSETS_TO_TXN, 3, request).error_code)

    def end(self, *, commit: bool = True, version: int = 3) -> ErrorCode:
        request = EndTxnRequest(ID, *self.ids, commit)
        return ErrorCode(self.call(K.END_TXN, version, request).error_code)

    def describe(self, transactional_id: str = ID) -> DescribedTransaction:
        request = DescribeTransactionsRequest((transactional_id,))
        row: DescribedTransaction
        (row,) = self.call(K.DESCRIBE_TRANSACTIONS, 0, request).transaction_states
        return row

    def log_end(self, number: int) -> int:
        return self.world.machine.broker.partitions[TopicPartition("t", number)].log.end_offset


def codes(topics: Any) -> list[ErrorCode]:
    return [ErrorCode(part.partition_error_code) for topic in topics for part in topic.results_by_partition]


@pytest.fixture
def producer() -> Producer:
    return Producer()


@pytest.mark.parametrize("commit", [True, False])
def test_a_transaction_ends_with_markers_in_its_partitions(producer: Producer, commit: bool) -> None:
    assert producer.init() is E.NONE
    assert producer.add(("t", 0), ("t", 1)) == [E.NONE, E.NONE]
    assert producer.describe().transaction_state == "Ongoing"
    assert producer.end(commit=commit) is E.NONE
    assert producer.describe().transaction_state == ("CompleteCommit" if commit else "CompleteAbort")
    assert (producer.log_end(0), producer.log_end(1)) == (1, 1)


def test_transactions_follow_each_other(producer: Producer) -> None:
    producer.init()
    for count in range(1, 4):
        assert producer.add(("t", 0)) == [E.NONE]
        assert producer.end(commit=True) is E.NONE
        assert producer.log_end(0) == count


def test_one_partition_that_does_not_exist_refuses_all(producer: Producer) -> None:
    producer.init()
    expected = [E.OPERATION_NOT_ATTEMPTED, E.UNKNOWN_TOPIC_OR_PARTITION]
    assert producer.add(("t", 0), ("u", 0)) == expected
    assert producer.add((TRANSACTION_STATE_TOPIC, 0)) == [E.TOPIC_AUTHORIZATION_FAILED]
    assert producer.describe().transaction_state == "Empty"


def test_brokers_learn_which_partitions_a_transaction_has(producer: Producer) -> None:
    producer.init()
    producer.add(("t", 0))
    assert producer.verify(("t", 0), ("t", 1)) == [E.NONE, E.TRANSACTION_ABORTABLE]
    assert producer.verify(("t", 1), verify_only=False) == [E.NONE]
    assert producer.verify(("t", 1)) == [E.NONE]


def test_unknown_partition_does_not_hinder_the_verification_of_others(producer: Producer) -> None:
    """Another broker may have it, and this one not have heard of it yet."""
    producer.init()
    producer.add(("t", 0))
    assert producer.verify(("t", 0), ("u", 0)) == [E.NONE, E.TRANSACTION_ABORTABLE]


def test_offsets_of_a_group_are_a_partition_of_the_transaction(producer: Producer) -> None:
    producer.init()
    assert producer.add_offsets() is E.NONE
    (topic,) = producer.describe().topics
    assert (topic.topic, topic.partitions) == ("__consumer_offsets", (0,))
    assert producer.add_offsets("") is E.INVALID_GROUP_ID


def test_fenced_producer_gets_the_error_of_its_version(producer: Producer) -> None:
    producer.init()
    former = producer.ids
    producer.init()
    assert producer.ids == ProducerIdAndEpoch(former.producer_id, former.epoch + 1)
    producer.ids = former
    assert (producer.end(version=1), producer.end(version=2)) == (E.INVALID_PRODUCER_EPOCH, E.PRODUCER_FENCED)
    assert producer.add(("t", 0), version=1) == [E.INVALID_PRODUCER_EPOCH]
    assert producer.add(("t", 0), version=2) == [E.PRODUCER_FENCED]


def test_transactions_are_listed_by_state_and_producer(producer: Producer) -> None:
    producer.init()
    producer.add(("t", 0))

    def listed(*states: str, producers: tuple[int, ...] = ()) -> tuple[list[str], tuple[str, ...]]:
        found = producer.call(K.LIST_TRANSACTIONS, 1, ListTransactionsRequest(states, producers))
        assert found.error_code == E.NONE
        return [row.transactional_id for row in found.transaction_states], found.unknown_state_filters

    assert listed() == ([ID], ())
    assert listed("Ongoing", producers=(producer.ids.producer_id,)) == ([ID], ())
    assert listed("Empty", "Nothing") == ([], ("Nothing",))
    assert listed("Nothing") == ([], ("Nothing",))
    assert listed(producers=(producer.ids.producer_id + 1,)) == ([], ())


def test_unknown_id_is_not_found(producer: Producer) -> None:
    assert producer.describe("nobody").error_code == E.TRANSACTIONAL_ID_NOT_FOUND
    assert producer.describe("").error_code == E.INVALID_REQUEST


def test_coordinator_is_the_leader_of_the_ids_partition(producer: Producer) -> None:
    found = producer.find()
    assert (found.error_code, found.node_id) == (E.NONE, producer.world.machine.broker.broker_id)


def test_transactions_are_refused_while_they_are_not_served(
    producer: Producer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transaction_coordinator, "newest_versions", lambda _: NEWEST_IN_0_10_1)
    assert producer.find().error_code == E.UNSUPPORTED_VERSION
    assert producer.init() is E.UNSUPPORTED_VERSION
