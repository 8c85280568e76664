"""Requests of the APIs of transactions, by what tests name in them. See ``requests``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from minikafka.base.ids import ProducerIdAndEpoch, TopicPartition
from minikafka.wire.api import ApiKey
from minikafka.wire.apis.add_offsets_to_txn import AddOffsetsToTxnRequest
from minikafka.wire.apis.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from minikafka.wire.apis.describe_transactions import DescribeTransactionsRequest
from minikafka.wire.apis.end_txn import EndTxnRequest
from minikafka.wire.apis.find_coordinator import CoordinatorType, FindCoordinatorRequest
from minikafka.wire.apis.init_producer_id import InitProducerIdRequest
from minikafka.wire.apis.list_transactions import ListTransactionsRequest
from minikafka.wire.apis.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from minikafka.wire.apis.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopic,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from tests.support.requests import Request

NOBODY = ProducerIdAndEpoch(-1, -1)
Partitions = Mapping[str, Sequence[int]]
"""Topic -> numbers of partitions."""


def find(name: str, version: int = 1) -> Request:
    return Request(
        ApiKey.FIND_COORDINATOR, version, FindCoordinatorRequest(name, CoordinatorType.TRANSACTION)
    )


def init(
    name: str, *, timeout_ms: int = 60_000, producer: ProducerIdAndEpoch = NOBODY, version: int = 4
) -> Request:
    return Request(ApiKey.INIT_PRODUCER_ID, version, InitProducerIdRequest(name, timeout_ms, *producer))


def add(name: str, producer: ProducerIdAndEpoch, partitions: Partitions, version: int = 3) -> Request:
    """As a producer sends it; ``verify`` is of brokers."""
    return Request(
        ApiKey.ADD_PARTITIONS_TO_TXN, version, AddPartitionsToTxnRequest(name, *producer, _topics(partitions))
    )


def verify(
    names: Iterable[str], producer: ProducerIdAndEpoch, partitions: Partitions, version: int = 4
) -> Request:
    rows = tuple(AddPartitionsToTxnTransaction(name, *producer, True, _topics(partitions)) for name in names)
    return Request(ApiKey.ADD_PARTITIONS_TO_TXN, version, AddPartitionsToTxnRequest(transactions=rows))


def _topics(partitions: Partitions) -> tuple[AddPartitionsToTxnTopic, ...]:
    return tuple(AddPartitionsToTxnTopic(topic, tuple(numbers)) for topic, numbers in partitions.items())


def add_offsets(name: str, producer: ProducerIdAndEpoch, group: str, version: int = 3) -> Request:
    return Request(ApiKey.ADD_OFFSETS_TO_TXN, version, AddOffsetsToTxnRequest(name, *producer, group))


def commit_offsets(
    name: str, producer: ProducerIdAndEpoch, group: str, partitions: Partitions, version: int = 3
) -> Request:
    topics = tuple(
        TxnOffsetCommitRequestTopic(
            topic, tuple(TxnOffsetCommitRequestPartition(number, 5, "") for number in numbers)
        )
        for topic, numbers in partitions.items()
    )
    body = TxnOffsetCommitRequest(name, group, *producer, topics)
    return Request(ApiKey.TXN_OFFSET_COMMIT, version, body)


def end(name: str, producer: ProducerIdAndEpoch, *, commit: bool = True, version: int = 3) -> Request:
    return Request(ApiKey.END_TXN, version, EndTxnRequest(name, *producer, commit))


def write_markers(
    producers: Iterable[ProducerIdAndEpoch],
    partitions: Partitions,
    *,
    commit: bool = True,
    coordinator_epoch: int = 0,
    version: int = 1,
) -> Request:
    topics = tuple(WritableTxnMarkerTopic(topic, tuple(numbers)) for topic, numbers in partitions.items())
    markers = tuple(WritableTxnMarker(*producer, commit, topics, coordinator_epoch) for producer in producers)
    return Request(ApiKey.WRITE_TXN_MARKERS, version, WriteTxnMarkersRequest(markers))


def describe(*names: str) -> Request:
    return Request(ApiKey.DESCRIBE_TRANSACTIONS, 0, DescribeTransactionsRequest(names))


def list_all(*states: str, version: int = 1) -> Request:
    return Request(ApiKey.LIST_TRANSACTIONS, version, ListTransactionsRequest(states, ()))


def markers_response(
    request: WriteTxnMarkersRequest, code: Callable[[TopicPartition], int]
) -> WriteTxnMarkersResponse:
    """The response of a broker to markers, with a code for each partition."""
    return WriteTxnMarkersResponse(
        tuple(
            WritableTxnMarkerResult(
                marker.producer_id,
                tuple(
                    WritableTxnMarkerTopicResult(
                        topic.name,
                        tuple(
                            WritableTxnMarkerPartitionResult(number, code(TopicPartition(topic.name, number)))
                            for number in topic.partition_indexes
                        ),
                    )
                    for topic in marker.topics
                ),
            )
            for marker in request.markers
        )
    )
