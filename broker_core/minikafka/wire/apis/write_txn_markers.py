"""WriteTxnMarkers: write the ends of transactions to their partitions.

Of Kafka 0.11. A transaction coordinator sends it to the leaders of the partitions. Version 1 has no new
fields.
"""

from typing import Annotated

from minikafka.base.values import fast_value
from minikafka.wire.api import Api, ApiKey
from minikafka.wire.fields import Int16, Int32, Int64


@fast_value
class WritableTxnMarkerTopic:
    """The partitions of one topic to write a marker to."""

    name: str
    partition_indexes: tuple[Int32, ...]


@fast_value
class WritableTxnMarker:
    """The end of one transaction. ``coordinator_epoch`` is the leader epoch of the coordinator's partition of
    ``__transaction_state``, by which a leader refuses a former coordinator.
    """

    producer_id: Int64
    producer_epoch: Int16
    transaction_result: Annotated[bool, "true committed, false aborted"]
    topics: tuple[WritableTxnMarkerTopic, ...]
    coordinator_epoch: Int32


@fast_value
class WriteTxnMarkersRequest:
    """The markers to write."""

    markers: tuple[WritableTxnMarker, ...]


@fast_value
class WritableTxnMarkerPartitionResult:
    """The result for one partition."""

    partition_index: Int32
    error_code: Int16


@fast_value
class WritableTxnMarkerTopicResult:
    """The results for the partitions of one topic."""

    name: str
    partitions: tuple[WritableTxnMarkerPartitionResult, ...]


@fast_value
class WritableTxnMarkerResult:
    """The results for one marker."""

    producer_id: Int64
    topics: tuple[WritableTxnMarkerTopicResult, ...]


@fast_value
class WriteTxnMarkersResponse:
    """The results for the markers of the request. It has no ``throttle_time_ms``."""

    markers: tuple[WritableTxnMarkerResult, ...]


WRITE_TXN_MARKERS = Api(
    ApiKey.WRITE_TXN_MARKERS, "WriteTxnMarkers", 0, 1, WriteTxnMarkersRequest, WriteTxnMarkersResponse
)
