"""CreatePartitions: add partitions to topics. Existing partitions do not change.

Sent to the controller; any other broker answers NOT_CONTROLLER. Versions 0 and 1 are the same.
"""

from __future__ import annotations

from minikafka.base.values import fast_value
from minikafka.wire.api import Api, ApiKey
from minikafka.wire.schema import (
    BOOLEAN,
    INT16,
    INT32,
    NULLABLE_STRING,
    STRING,
    ArrayOf,
    Struct,
    array,
    field,
)


@fast_value
class CreatePartitionsAssignment:
    """The brokers of one new partition, the preferred leader first."""

    broker_ids: tuple[int, ...]


@fast_value
class CreatePartitionsTopic:
    """A topic that gets more partitions.

    ``count``: the new number of partitions. ``assignments``: those of the new partitions; None lets the
    broker choose.
    """

    name: str
    count: int
    assignments: tuple[CreatePartitionsAssignment, ...] | None


@fast_value
class CreatePartitionsRequest:
    """A request to add partitions.

    ``timeout_ms``: the time to wait until the partitions have leaders; 0 or less does not wait.
    ``validate_only``: report the errors, change nothing.
    """

    topics: tuple[CreatePartitionsTopic, ...]
    timeout_ms: int
    validate_only: bool


@fast_value
class CreatePartitionsTopicResult:
    """The result for one topic."""

    name: str
    error_code: int
    error_message: str | None


@fast_value
class CreatePartitionsResponse:
    """The results for the topics, in no particular order."""

    throttle_time_ms: int
    results: tuple[CreatePartitionsTopicResult, ...]


CREATE_PARTITIONS = Api(
    ApiKey.CREATE_PARTITIONS,
    "CreatePartitions",
    0,
    1,
    request=Struct(
        CreatePartitionsRequest,
        array(
            "topics",
            CreatePartitionsTopic,
            field("name", STRING),
            field("count", INT32, "of all partitions, old and new"),
            field(
                "assignments",
                ArrayOf(
                    Struct(CreatePartitionsAssignment, field("broker_ids", ArrayOf(INT32))), nullable=True
                ),
                "of the new ones; null: the broker chooses",
            ),
        ),
        field("timeout_ms", INT32),
        field("validate_only", BOOLEAN),
    ),
    response=Struct(
        CreatePartitionsResponse,
        field("throttle_time_ms", INT32),
        array(
            "results",
            CreatePartitionsTopicResult,
            field("name", STRING),
            field("error_code", INT16),
            field("error_message", NULLABLE_STRING),
        ),
    ),
)
