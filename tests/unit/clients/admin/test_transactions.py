"""``clients/admin/transactions`` against scripted coordinators and leaders."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from minikafka.base.errors import BrokerError, ErrorCode, MinikafkaError
from minikafka.base.ids import TopicPartition
from minikafka.clients.admin.transactions import AbortTransactionSpec, TransactionAdmin
from minikafka.net.memory import Fault
from minikafka.wire.api import ApiKey
from minikafka.wire.apis.api_versions import ApiVersion
from minikafka.wire.apis.describe_producers import (
    ActiveProducer,
    DescribeProducersPartition,
    DescribeProducersResponse,
    DescribeProducersTopicResult,
)
from minikafka.wire.apis.describe_transactions import (
    DescribedTransaction,
    DescribedTransactionTopic,
    DescribeTransactionsResponse,
)
from minikafka.wire.apis.find_coordinator import Coordinator, FindCoordinatorResponse
from minikafka.wire.apis.list_transactions import ListedTransaction, ListTransactionsResponse
from minikafka.wire.apis.write_txn_markers import WriteTxnMarkersResponse
from tests.support.broker_harness import FIRST_PORT, HOST, BrokerHarness
from tests.support.transaction_requests import markers_response

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
SERVED = {
    ApiKey.WRITE_TXN_MARKERS: 1,
    ApiKey.FIND_COORDINATOR: 4,
    ApiKey.DESCRIBE_PRODUCERS: 0,
    ApiKey.DESCRIBE_TRANSACTIONS: 0,
    ApiKey.LIST_TRANSACTIONS: 1,
}
NOW_MS = 2_000_000
MAX_MS = 900_000


class Cluster:
    """Two brokers; partition 0 of t is led by broker 1, partition 1 by 2. Broker 2 coordinates all ids."""

    def __init__(self) -> None:
        self.brokers = BrokerHarness(2, {"t": 2})
        self.admin = TransactionAdmin(self.brokers.client())
        self.ids: dict[str, DescribedTransaction] = {}
        self.producers: dict[TopicPartition, list[ActiveProducer]] = {T0: [], T1: []}
        self.served = dict(SERVED)
        always = self.brokers.always
        always(ApiKey.API_VERSIONS, self._versions)
        always(ApiKey.LIST_TRANSACTIONS, self._list)
        always(ApiKey.FIND_COORDINATOR, self._find)
        always(ApiKey.DESCRIBE_TRANSACTIONS, self._describe)
        always(ApiKey.DESCRIBE_PRODUCERS, self._producers)
        self.brokers.clock.advance(NOW_MS - self.brokers.clock.now_ms() % NOW_MS)

    def add(self, name: str, producer_id: int, *partitions: TopicPartition, state: str = "Ongoing") -> None:
        topics = (DescribedTransactionTopic("t", tuple(tp.partition for tp in partitions)),)
        self.ids[name] = DescribedTransaction(0, name, state, 60_000, 5_000, producer_id, 3, topics)

    def open(self, tp: TopicPartition, producer_id: int, offset: int, age_ms: int = MAX_MS + 1) -> None:
        at_ms = self.brokers.clock.now_ms() - age_ms
        self.producers[tp].append(ActiveProducer(producer_id, 3, 0, at_ms, -1, offset))

    def markers(self) -> list[Any]:
        return self.brokers.asked(ApiKey.WRITE_TXN_MARKERS)

    def _versions(self, broker_id: int, request: Any) -> Any:
        served = self.brokers.serve(broker_id, request)
        versions = {row.api_key: row for row in served.api_keys}
        versions |= {int(key): ApiVersion(int(key), 0, newest) for key, newest in self.served.items()}
        for key in SERVED.keys() - self.served.keys():
            versions.pop(int(key), None)
        return replace(served, api_keys=tuple(versions.values()))

    def _list(self, broker_id: int, request: Any) -> ListTransactionsResponse:
        rows = [
            ListedTransaction(row.transactional_id, row.producer_id, row.transaction_state)
            for row in self.ids.values()
            if broker_id == 2
            and (not request.state_filters or row.transaction_state in request.state_filters)
            and (not request.producer_id_filters or row.producer_id in request.producer_id_filters)
        ]
        return ListTransactionsResponse(0, 0, (), tuple(rows))

    def _find(self, _: int, request: Any) -> FindCoordinatorResponse:
        assert request.key_type == 1
        rows = [Coordinator(key, 2, HOST, FIRST_PORT + 2, 0, None) for key in request.coordinator_keys]
        return FindCoordinatorResponse(0, 0, None, -1, "", -1, tuple(rows))

    def _describe(self, broker_id: int, request: Any) -> DescribeTransactionsResponse:
        assert broker_id == 2
        return DescribeTransactionsResponse(0, tuple(map(self._described, request.transactional_ids)))

    def _described(self, name: str) -> DescribedTransaction:
        unknown = int(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
        return self.ids.get(name) or DescribedTransaction(unknown, name, "", 0, -1, -1, -1, ())

    def _producers(self, _: int, request: Any) -> DescribeProducersResponse:
        return DescribeProducersResponse(
            0,
            tuple(
                DescribeProducersTopicResult(
                    topic.name,
                    tuple(
                        DescribeProducersPartition(
                            n, 0, None, tuple(self.producers[TopicPartition(topic.name, n)])
                        )
                        for n in topic.partition_indexes
                    ),
                )
                for topic in request.topics
            ),
        )


def written(code: ErrorCode = ErrorCode.NONE) -> Any:
    """An answer to the markers of a request."""

    def answer(_: int, request: Any) -> WriteTxnMarkersResponse:
        return markers_response(request, lambda _: code)

    return answer


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def hanging(cluster: Cluster, *partitions: TopicPartition) -> Sequence[tuple[TopicPartition, int]]:
    found = cluster.admin.find_hanging(partitions or (T0, T1))
    return [(row.topic_partition, row.producer_id) for row in found]


def test_ids_of_all_brokers_are_listed_by_name(cluster: Cluster) -> None:
    cluster.add("b", 8)
    cluster.add("a", 7, state="Empty")
    found = cluster.admin.list_transactions()
    assert [(row.transactional_id, row.coordinator.broker_id) for row in found] == [("a", 2), ("b", 2)]
    assert [row.producer_id for row in cluster.admin.list_transactions(states=["Ongoing"])] == [8]
    assert [row.producer_id for row in cluster.admin.list_transactions(producer_ids=[7])] == [7]


def test_a_filter_by_duration_needs_kafka_3_8(cluster: Cluster) -> None:
    cluster.served[ApiKey.LIST_TRANSACTIONS] = 0
    with pytest.raises(BrokerError, match=r"cannot filter transactions by duration; this needs Kafka 3\.8"):
        cluster.admin.list_transactions(longer_than_ms=5)
    assert cluster.admin.list_transactions() == []


def test_a_coordinator_that_loads_is_asked_again(cluster: Cluster) -> None:
    cluster.add("a", 7, T1)
    loading = int(ErrorCode.GROUP_LOAD_IN_PROGRESS)
    row = replace(cluster.ids["a"], error_code=loading)
    cluster.brokers.script(ApiKey.DESCRIBE_TRANSACTIONS, lambda *_: DescribeTransactionsResponse(0, (row,)))
    found = cluster.admin.describe("a")
    assert (found.coordinator.broker_id, found.partitions, found.start_time_ms) == (2, (T1,), 5_000)


def test_an_unknown_id_is_an_error_with_a_similar_one(cluster: Cluster) -> None:
    cluster.add("copier-1", 7)
    with pytest.raises(BrokerError, match="there is no transactional id 'copier-2'; there is 'copier-1'"):
        cluster.admin.describe("copier-2")
    assert cluster.admin.find("copier-2") is None


def test_a_denied_id_names_the_missing_right(cluster: Cluster) -> None:
    cluster.add("a", 7)
    denied = int(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    cluster.ids["a"] = replace(cluster.ids["a"], error_code=denied)
    with pytest.raises(BrokerError, match="not authorized: Describe on TransactionalId:a"):
        cluster.admin.describe("a")


def test_brokers_without_transactions_are_refused_by_name(cluster: Cluster) -> None:
    cluster.served = {}
    for call in (cluster.admin.list_transactions, lambda: cluster.admin.describe("a")):
        with pytest.raises(BrokerError, match=r"needs brokers with transactions, of Kafka 3\.0") as raised:
            call()
        assert raised.value.code is ErrorCode.UNSUPPORTED_VERSION


def test_producers_are_asked_of_the_leaders(cluster: Cluster) -> None:
    cluster.open(T0, 7, 5)
    cluster.open(T1, 8, 6)
    found = cluster.admin.describe_producers([T1, T0])
    assert [(tp, rows[0].producer_id, rows[0].start_offset) for tp, rows in found.items()] == [
        (T0, 7, 5),
        (T1, 8, 6),
    ]


def test_a_leader_that_has_moved_is_looked_up_again(cluster: Cluster) -> None:
    cluster.open(T0, 7, 5)
    moved = DescribeProducersPartition(0, int(ErrorCode.NOT_LEADER_FOR_PARTITION), None, ())
    answer = DescribeProducersResponse(0, (DescribeProducersTopicResult("t", (moved,)),))
    cluster.brokers.script(ApiKey.DESCRIBE_PRODUCERS, lambda *_: answer)
    assert cluster.admin.describe_producers([T0])[T0][0].producer_id == 7
    cluster.brokers.script(ApiKey.DESCRIBE_PRODUCERS, lambda *_: answer)
    with pytest.raises(MinikafkaError, match="describing the producers of t-0 at broker 2"):
        cluster.admin.describe_producers([T0], broker_id=2)


def test_a_transaction_of_no_coordinator_is_hanging(cluster: Cluster) -> None:
    cluster.open(T0, 7, 5)
    cluster.open(T1, 8, 6)
    cluster.add("known", 8, T1)
    assert hanging(cluster) == [(T0, 7)]


def test_a_transaction_without_this_partition_is_hanging(cluster: Cluster) -> None:
    cluster.open(T0, 7, 5)
    cluster.add("known", 7, T1)
    assert hanging(cluster) == [(T0, 7)]
    cluster.add("known", 7, T0, state="PrepareAbort")
    assert hanging(cluster) == []


def test_a_young_transaction_is_not_hanging(cluster: Cluster) -> None:
    cluster.open(T0, 7, 5, age_ms=MAX_MS)
    assert hanging(cluster) == []


def test_a_transaction_that_ends_meanwhile_is_not_hanging(cluster: Cluster) -> None:
    cluster.open(T0, 7, 5)

    def list_and_end(broker_id: int, request: Any) -> Any:
        cluster.producers[T0] = []
        return cluster._list(broker_id, request)

    cluster.brokers.script(ApiKey.LIST_TRANSACTIONS, list_and_end)
    assert hanging(cluster) == []


def test_the_first_open_transaction_is_described(cluster: Cluster) -> None:
    cluster.open(T0, 7, 9)
    cluster.open(T0, 8, 5)
    cluster.add("known", 8, T0)
    found = cluster.admin.first_open([T0, T1])
    assert list(found) == [T0]
    assert (found[T0].producer.producer_id, found[T0].producer.start_offset) == (8, 5)
    assert (found[T0].transactional_id, found[T0].start_time_ms) == ("known", 5_000)


def test_a_marker_goes_to_the_leader_with_an_epoch_of_at_least_0(cluster: Cluster) -> None:
    cluster.open(T1, 7, 5)
    cluster.brokers.script(ApiKey.WRITE_TXN_MARKERS, written(ErrorCode.NOT_LEADER_FOR_PARTITION), written())
    spec = AbortTransactionSpec.of(cluster.admin.open_transaction(T1, 5))
    assert spec == AbortTransactionSpec(T1, 7, 3, -1)
    cluster.admin.abort(spec)
    _, request = cluster.markers()
    (marker,) = request.markers
    assert (marker.producer_id, marker.producer_epoch, marker.coordinator_epoch) == (7, 3, 0)
    assert not marker.transaction_result


def test_an_offset_without_an_open_transaction_is_an_error(cluster: Cluster) -> None:
    cluster.open(T1, 7, 5)
    with pytest.raises(BrokerError, match="starts at offset 6: open ones start at 5"):
        cluster.admin.open_transaction(T1, 6)
    with pytest.raises(BrokerError, match="starts at offset 6: none is open"):
        cluster.admin.open_transaction(T0, 6)


def test_a_marker_whose_response_is_lost_is_not_sent_again(cluster: Cluster) -> None:
    cluster.brokers.script(ApiKey.WRITE_TXN_MARKERS, lambda *_: Fault.CUT_REQUEST)
    with pytest.raises(MinikafkaError, match="the marker for t-1, which may be written"):
        cluster.admin.abort(AbortTransactionSpec(T1, 7, 3, 0))
    assert len(cluster.markers()) == 1


@pytest.mark.parametrize(
    ("code", "why"),
    [
        (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "not authorized: Alter or ClusterAction on Cluster"),
        (ErrorCode.INVALID_PRODUCER_EPOCH, "the producer has a newer epoch than 3"),
        (ErrorCode.TRANSACTION_COORDINATOR_FENCED, "a coordinator with a newer epoch than 2"),
    ],
)
def test_a_refused_marker_says_why(cluster: Cluster, code: ErrorCode, why: str) -> None:
    cluster.brokers.script(ApiKey.WRITE_TXN_MARKERS, written(code))
    with pytest.raises(BrokerError, match=why) as raised:
        cluster.admin.abort(AbortTransactionSpec(T1, 7, 3, 2))
    assert raised.value.code is code
