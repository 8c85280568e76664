"""AlterPartitionReassignments: start, replace or cancel reassignments of partitions.

Of Kafka 2.4. Sent to the controller, which answers once the request is stored: ListPartitionReassignments
shows its progress.
"""

from typing import Annotated

from minikafka.base.values import fast_value
from minikafka.wire.api import Api, ApiKey
from minikafka.wire.fields import Int16, Int32


@fast_value
class ReassignablePartition:
    """A partition and its new replicas, the preferred leader first."""

    index: Int32
    replicas: Annotated[tuple[Int32, ...] | None, "null: cancel the reassignment"]


@fast_value
class ReassignableTopic:
    """The partitions of a topic to reassign."""

    name: str
    partitions: tuple[ReassignablePartition, ...]


@fast_value
class AlterPartitionReassignmentsRequest:
    """A request to reassign partitions."""

    timeout_ms: Int32
    topics: tuple[ReassignableTopic, ...]


@fast_value
class ReassignablePartitionResponse:
    """The result for a partition."""

    index: Int32
    error_code: Int16
    error_message: str | None


@fast_value
class ReassignableTopicResponse:
    """The results for the partitions of a topic."""

    name: str
    partitions: tuple[ReassignablePartitionResponse, ...]


@fast_value
class AlterPartitionReassignmentsResponse:
    """The results for the partitions, or an error of the whole request."""

    throttle_time_ms: Int32
    error_code: Int16
    error_message: str | None
    responses: tuple[ReassignableTopicResponse, ...]


ALTER_PARTITION_REASSIGNMENTS = Api(
    ApiKey.ALTER_PARTITION_REASSIGNMENTS,
    "AlterPartitionReassignments",
    0,
    0,
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)
