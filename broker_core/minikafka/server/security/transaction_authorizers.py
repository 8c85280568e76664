"""The permissions that the APIs of transactions need (see ``request_authorizers``)."""

from __future__ import annotations

from collections.abc import Mapping

from minikafka.base.acls import Operation, ResourceType
from minikafka.server.security.authorization import (
    CLUSTER_DENIED,
    GROUP_DENIED,
    TRANSACTIONAL_ID_DENIED,
    AuthorizationResult,
    RequestAuthorizer,
    Requester,
    all_or_nothing,
    denied_topic,
    each_topic,
)
from minikafka.wire.api import ApiKey
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

_denied_markers = denied_topic(
    WritableTxnMarkerTopicResult, WritableTxnMarkerPartitionResult, "partition_indexes"
)


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
    if not requester.may(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id):
        code = TRANSACTIONAL_ID_DENIED
    elif not requester.may_on_group(Operation.READ, request.group_id):
        code = GROUP_DENIED
    else:
        return _txn_commit_topics(requester, version, request)
    rows = tuple(_denied_txn_commit(topic, code) for topic in request.topics)
    return AuthorizationResult(None, lambda _: TxnOffsetCommitResponse(0, rows))


TRANSACTION_AUTHORIZERS: Mapping[ApiKey, RequestAuthorizer] = {
    # As since Kafka 3.8: an administrator who ends a hanging transaction need not be a broker.
    ApiKey.WRITE_TXN_MARKERS: all_or_nothing(
        lambda requester, request: (
            requester.may_on_cluster(Operation.CLUSTER_ACTION) or requester.may_on_cluster(Operation.ALTER)
        ),
        _markers_denied,
    ),
    ApiKey.TXN_OFFSET_COMMIT: _txn_offset_commit,
}
"""The authorizer of each API of transactions."""
