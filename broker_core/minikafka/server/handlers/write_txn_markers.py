"""WriteTxnMarkers: append the markers that end transactions, for their coordinator.

The response comes once every partition has a result: its marker is on every in-sync replica, or that failed.
A marker that names a partition twice is appended once. A marker without a producer is INVALID_REQUEST.

A request that its sender may have given up appends nothing: REQUEST_TIMED_OUT. The sender may have sent the
markers again, and the transaction may be complete. A marker that came later would end the next transaction of
the producer, which has the same epoch, and nothing in a marker tells the two apart (KIP-890 raises the epoch,
for clients that can). So the connection is looked at right before the append, and a request has to get there
within ``MAX_WAIT_MS``; and a sender that gives up resets its connection (``Connection.abort``).
"""

from __future__ import annotations

from collections.abc import Sequence

from minikafka.base.clock import Clock
from minikafka.base.errors import ErrorCode
from minikafka.base.ids import TopicPartition
from minikafka.server.context import RequestContext
from minikafka.server.transactions.marker_writer import EndMarker, MarkerResults, MarkerWriter
from minikafka.server.workers.work_pool import Steps
from minikafka.wire.apis.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

MAX_WAIT_MS = 20_000
"""Less than the time-out of any coordinator: ours is 40 s, that of Kafka's 30 s (``request.timeout.ms``)."""
PARTITION_BYTES = 500
"""Estimated memory of a partition until it is answered."""


def handle(
    clock: Clock, writer: MarkerWriter, context: RequestContext, request: WriteTxnMarkersRequest
) -> Steps:
    """Serve one WriteTxnMarkers request."""
    latest_ms = clock.monotonic_ms() + MAX_WAIT_MS
    named = sum(len(topic.partition_indexes) for marker in request.markers for topic in marker.topics)
    yield named * PARTITION_BYTES
    markers = [_end_marker(marker) for marker in request.markers]

    def respond(results: Sequence[MarkerResults]) -> None:
        rows = zip(request.markers, results, strict=True)
        context.answer(lambda: WriteTxnMarkersResponse(tuple(_row(*row) for row in rows)))

    def is_late() -> bool:
        return clock.monotonic_ms() > latest_ms or context.exchange.is_abandoned

    yield from writer.write(markers, respond, is_late)


def _end_marker(marker: WritableTxnMarker) -> EndMarker:
    """Return the marker of a row; one without a producer has no partitions."""
    partitions = (
        TopicPartition(topic.name, number) for topic in marker.topics for number in topic.partition_indexes
    )
    return EndMarker(
        marker.producer_id,
        marker.producer_epoch,
        marker.coordinator_epoch,
        marker.transaction_result,
        tuple(dict.fromkeys(partitions)) if marker.producer_id >= 0 else (),
    )


def _row(marker: WritableTxnMarker, results: MarkerResults) -> WritableTxnMarkerResult:
    return WritableTxnMarkerResult(
        marker.producer_id,
        tuple(
            WritableTxnMarkerTopicResult(
                topic.name,
                tuple(
                    WritableTxnMarkerPartitionResult(
                        number, results.get(TopicPartition(topic.name, number), ErrorCode.INVALID_REQUEST)
                    )
                    for number in topic.partition_indexes
                ),
            )
            for topic in marker.topics
        ),
    )
