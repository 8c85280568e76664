"""The permissions that the APIs of transactions need (see ``request_authorizers``).

WriteTxnMarkers needs ClusterAction on the cluster, or Alter: since 3.8 (KIP-1037) an administrator who ends a
hanging transaction need not have the rights of a broker. Source: ``KafkaApis.scala`` of 3.7, 3.8, 3.9 and
4.3.1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from minikafka.base.acls import Operation, ResourceType
from minikafka.base.errors import ErrorCode
from minikafka.server.security.authorization import (
    CLUSTER_DENIED,
    GROUP_DENIED,
    TOPIC_DENIED,
    TRANSACTIONAL_ID_DENIED,
    AuthorizationResult,
    RequestAuthorizer,
    Requester,
    all_or_nothing,
    denied_topic,
    each_item,
    each_topic,
    only,
)
from minikafka.wire.api import ApiKey
from minikafka.wire.apis.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from minikafka.wire.apis.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from minikafka.wire.apis.describe_transactions import (
    DescribedTransaction,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from minikafka.wire.apis.end_txn import EndTxnResponse
from minikafka.wire.apis.list_transactions import ListTransactionsRequest
from minikafka.wire.apis.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from minikafka.wire.apis.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

_OF_BROKERS_SINCE = 4
"""The first version of AddPartitionsToTxn for brokers."""

_denied_markers = denied_topic(
    WritableTxnMarkerTopicResult, WritableTxnMarkerPartitionResult, "partition_indexes"
)
_denied_partitions = denied_topic(AddPartitionsToTxnTopicResult, AddPartitionsToTxnPartitionResult)


def _markers_denied(request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
    return WriteTxnMarkersResponse(
        tuple(
            WritableTxnMarkerResult(
                marker.producer_id, tuple(_denied_markers(topic, CLUSTER_DENIED) for topic in marker.topics)
            )
            for marker in request.markers
        )
    )


_denied_txn_commit = denied_topic(
    TxnOffsetCommitResponseTopic,
    lambda part, code: TxnOffsetCommitResponsePartition(part.partition_index, code),
)
_txn_commit_topics = each_topic(Operation.READ, _denied_txn_commit, TxnOffsetCommitResponse(0, ()))


def _txn_offset_commit(
    requester: Requester, version: int, request: TxnOffsetCommitRequest
) -> AuthorizationResult | None:
    """Authorize TxnOffsetCommit: Write on the transactional id, Read on the group and on each topic."""
    if not _may_write(requester, request.transactional_id):
        code = TRANSACTIONAL_ID_DENIED
    elif not requester.may_on_group(Operation.READ, request.group_id):
        code = GROUP_DENIED
    else:
        return _txn_commit_topics(requester, version, request)
    rows = tuple(_denied_txn_commit(topic, code) for topic in request.topics)
    return AuthorizationResult(None, lambda _: TxnOffsetCommitResponse(0, rows))


def _may_write(requester: Requester, transactional_id: str) -> bool:
    return requester.may(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id)


def _may_describe(requester: Requester, transactional_id: str) -> bool:
    return requester.may(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, transactional_id)


def _add_partitions(
    requester: Requester, version: int, request: AddPartitionsToTxnRequest
) -> AuthorizationResult | None:
    if version >= _OF_BROKERS_SINCE:
        if requester.may_on_cluster(Operation.CLUSTER_ACTION):
            return None
        refusal = AddPartitionsToTxnResponse(0, error_code=CLUSTER_DENIED)
        return AuthorizationResult(None, lambda _: refusal)
    codes = {topic.name: ErrorCode.OPERATION_NOT_ATTEMPTED for topic in request.topics}
    if not _may_write(requester, request.transactional_id):
        codes = dict.fromkeys(codes, TRANSACTIONAL_ID_DENIED)
    else:
        denied = [name for name in codes if not requester.may_on_topic(Operation.WRITE, name)]
        if not denied:
            return None
        codes |= dict.fromkeys(denied, TOPIC_DENIED)
    rows = tuple(_denied_partitions(topic, codes[topic.name]) for topic in request.topics)
    return AuthorizationResult(None, lambda _: AddPartitionsToTxnResponse(0, results_by_topic=rows))


def _add_offsets(
    requester: Requester, version: int, request: AddOffsetsToTxnRequest
) -> AuthorizationResult | None:
    if not _may_write(requester, request.transactional_id):
        return AuthorizationResult(None, lambda _: AddOffsetsToTxnResponse(0, TRANSACTIONAL_ID_DENIED))
    if not requester.may_on_group(Operation.READ, request.group_id):
        return AuthorizationResult(None, lambda _: AddOffsetsToTxnResponse(0, GROUP_DENIED))
    return None


_describe_each_id = each_item(
    "transactional_ids",
    _may_describe,
    "transaction_states",
    lambda name: DescribedTransaction(TRANSACTIONAL_ID_DENIED, name, "", 0, 0, 0, 0, ()),
    DescribeTransactionsResponse(0, ()),
)


def _describe_transactions(
    requester: Requester, version: int, request: DescribeTransactionsRequest
) -> AuthorizationResult:
    """Authorize each id, and leave out the topics that the client may not describe."""
    result = _describe_each_id(requester, version, request)

    def visible(row: DescribedTransaction) -> DescribedTransaction:
        topics = (topic for topic in row.topics if requester.may_on_topic(Operation.DESCRIBE, topic.topic))
        return replace(row, topics=tuple(topics))

    def answer(response: DescribeTransactionsResponse) -> DescribeTransactionsResponse:
        served = response if result is None else result.answer(response)
        return replace(served, transaction_states=tuple(map(visible, served.transaction_states)))

    return AuthorizationResult(request if result is None else result.request, answer)


def _list_transactions(
    requester: Requester, version: int, request: ListTransactionsRequest
) -> AuthorizationResult:
    seen = only("transaction_states", lambda row: _may_describe(requester, row.transactional_id))
    return AuthorizationResult(request, seen)


TRANSACTION_AUTHORIZERS: Mapping[ApiKey, RequestAuthorizer] = {
    ApiKey.WRITE_TXN_MARKERS: all_or_nothing(
        lambda requester, request: (
            requester.may_on_cluster(Operation.CLUSTER_ACTION) or requester.may_on_cluster(Operation.ALTER)
        ),
        _markers_denied,
    ),
    ApiKey.TXN_OFFSET_COMMIT: _txn_offset_commit,
    ApiKey.ADD_PARTITIONS_TO_TXN: _add_partitions,
    ApiKey.ADD_OFFSETS_TO_TXN: _add_offsets,
    ApiKey.END_TXN: all_or_nothing(
        lambda requester, request: _may_write(requester, request.transactional_id),
        lambda request: EndTxnResponse(0, TRANSACTIONAL_ID_DENIED),
    ),
    ApiKey.DESCRIBE_TRANSACTIONS: _describe_transactions,
    ApiKey.LIST_TRANSACTIONS: _list_transactions,
}
"""The authorizer of each API of transactions."""
