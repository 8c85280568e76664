"""CreatePartitions: add partitions to topics. Existing partitions do not change.

Sent to the controller; any other broker answers NOT_CONTROLLER. All versions are the same.
"""

from typing import Annotated

from minikafka.base.values import fast_value
from minikafka.wire.api import Api, ApiKey
from minikafka.wire.fields import Int16, Int32


@fast_value
class CreatePartitionsAssignment:
    """The brokers of one new partition, the preferred leader first."""

    broker_ids: tuple[Int32, ...]


@fast_value
class CreatePartitionsTopic:
    """A topic that gets more partitions."""

    name: str
    count: Annotated[Int32, "of all partitions, old and new"]
    assignments: Annotated[
        tuple[CreatePartitionsAssignment, ...] | None, "of the new ones; null: the broker chooses"
    ]


@fast_value
class CreatePartitionsRequest:
    """A request to add partitions.

    ``timeout_ms``: the time to wait until the partitions have leaders; 0 or less does not wait.
    ``validate_only``: report the errors, change nothing.
    """

    topics: tuple[CreatePartitionsTopic, ...]
    timeout_ms: Int32
    validate_only: bool


@fast_value
class CreatePartitionsTopicResult:
    """The result for one topic."""

    name: str
    error_code: Int16
    error_message: str | None


@fast_value
class CreatePartitionsResponse:
    """The results for the topics, in no particular order."""

    throttle_time_ms: Int32
    results: tuple[CreatePartitionsTopicResult, ...]


CREATE_PARTITIONS = Api(
    ApiKey.CREATE_PARTITIONS, "CreatePartitions", 0, 3, CreatePartitionsRequest, CreatePartitionsResponse
)
