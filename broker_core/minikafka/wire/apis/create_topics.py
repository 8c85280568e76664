"""CreateTopics: create topics, with a number of partitions or an assignment to brokers.

Sent to the controller; any other broker answers NOT_CONTROLLER. Version 1: ``validate_only``, and error
messages; 2: throttle_time_ms; 3 and 4 are the same. From 4 on a client can rely on -1 partitions, or
replicas, without an assignment meaning the broker's defaults (KIP-464).
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

DEFAULTS_SINCE = 4
"""The first version in which a client may request the broker's defaults."""


@fast_value
class CreatableReplicaAssignment:
    """The brokers of one partition, the preferred leader first."""

    partition_index: int
    broker_ids: tuple[int, ...]


@fast_value
class CreatableTopicConfig:
    """A config of the topic."""

    name: str
    value: str | None


@fast_value
class CreatableTopic:
    """A topic to create. ``num_partitions`` and ``replication_factor`` are -1 with ``assignments`` or for
    defaults.
    """

    name: str
    num_partitions: int
    replication_factor: int
    assignments: tuple[CreatableReplicaAssignment, ...] = ()
    configs: tuple[CreatableTopicConfig, ...] = ()


@fast_value
class CreateTopicsRequest:
    """A request to create topics.

    ``timeout_ms``: the time to wait until the topics are complete; 0 or less does not wait.
    ``validate_only``: report the errors, create nothing.
    """

    topics: tuple[CreatableTopic, ...]
    timeout_ms: int
    validate_only: bool = False


@fast_value
class CreatableTopicResult:
    """The result for one topic."""

    name: str
    error_code: int
    error_message: str | None = None


@fast_value
class CreateTopicsResponse:
    """The results for the topics, in no particular order."""

    throttle_time_ms: int
    topics: tuple[CreatableTopicResult, ...]


CREATE_TOPICS = Api(
    ApiKey.CREATE_TOPICS,
    "CreateTopics",
    0,
    4,
    request=Struct(
        CreateTopicsRequest,
        field(
            "topics",
            ArrayOf(
                Struct(
                    CreatableTopic,
                    field("name", STRING),
                    field("num_partitions", INT32, "-1: the default, or with assignments"),
                    field("replication_factor", INT16, "-1: the default, or with assignments"),
                    array(
                        "assignments",
                        CreatableReplicaAssignment,
                        field("partition_index", INT32),
                        field("broker_ids", ArrayOf(INT32), "the first is preferred"),
                    ),
                    field(
                        "configs",
                        ArrayOf(
                            Struct(
                                CreatableTopicConfig,
                                field("name", STRING),
                                # 0.10.1 calls it a plain string; later releases let clients send null here.
                                field("value", NULLABLE_STRING),
                            )
                        ),
                    ),
                )
            ),
        ),
        field("timeout_ms", INT32),
        field("validate_only", BOOLEAN, since=1, default=False),
    ),
    response=Struct(
        CreateTopicsResponse,
        field("throttle_time_ms", INT32, since=2, default=0),
        array(
            "topics",
            CreatableTopicResult,
            field("name", STRING),
            field("error_code", INT16),
            field("error_message", NULLABLE_STRING, since=1),
        ),
    ),
)
