"""The permissions that the APIs of transactions need (see ``request_authorizers``)."""

from __future__ import annotations

from collections.abc import Mapping

from minikafka.base.acls import Operation
from minikafka.server.security.authorization import (
    CLUSTER_DENIED,
    RequestAuthorizer,
    all_or_nothing,
    denied_topic,
)
from minikafka.wire.api import ApiKey
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


TRANSACTION_AUTHORIZERS: Mapping[ApiKey, RequestAuthorizer] = {
    # As since Kafka 3.8: an administrator who ends a hanging transaction need not be a broker.
    ApiKey.WRITE_TXN_MARKERS: all_or_nothing(
        lambda requester, request: (
            requester.may_on_cluster(Operation.CLUSTER_ACTION) or requester.may_on_cluster(Operation.ALTER)
        ),
        _markers_denied,
    )
}
"""The authorizer of each API of transactions."""
