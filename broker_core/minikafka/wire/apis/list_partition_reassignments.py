"""ListPartitionReassignments: the reassignments in progress.

Of Kafka 2.4. Sent to the controller.
"""

from typing import Annotated

from minikafka.base.values import fast_value
from minikafka.wire.api import Api, ApiKey
from minikafka.wire.fields import Int16, Int32


@fast_value
class ListPartitionReassignmentsTopic:
    """The partitions of a topic that are asked for."""

    name: str
    partition_indexes: tuple[Int32, ...]


@fast_value
class ListPartitionReassignmentsRequest:
    """The partitions that are asked for."""

    timeout_ms: Int32
    topics: Annotated[tuple[ListPartitionReassignmentsTopic, ...] | None, "null: all"]


@fast_value
class OngoingPartitionReassignment:
    """A reassignment. ``replicas`` are all that the partition has now, the new ones first."""

    index: Int32
    replicas: tuple[Int32, ...]
    adding_replicas: tuple[Int32, ...]
    removing_replicas: tuple[Int32, ...]


@fast_value
class OngoingTopicReassignment:
    """The reassignments of a topic's partitions."""

    name: str
    partitions: tuple[OngoingPartitionReassignment, ...]


@fast_value
class ListPartitionReassignmentsResponse:
    """The reassignments in progress; a partition that is not reassigned is left out."""

    throttle_time_ms: Int32
    error_code: Int16
    error_message: str | None
    topics: tuple[OngoingTopicReassignment, ...]


LIST_PARTITION_REASSIGNMENTS = Api(
    ApiKey.LIST_PARTITION_REASSIGNMENTS,
    "ListPartitionReassignments",
    0,
    0,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
