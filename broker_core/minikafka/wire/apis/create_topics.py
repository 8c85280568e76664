"""CreateTopics: create topics, with a number of partitions or an assignment to brokers.

Sent to the controller; any other broker answers NOT_CONTROLLER. Version 1: ``validate_only``, and error
messages; 2: throttle_time_ms; 5: the response has the topic's partitions, replicas and configs; 7: and its
id. Versions 3, 4 and 6 have no new fields. From 4 on a client can rely on -1 partitions, or replicas, without
an assignment meaning the broker's defaults (KIP-464).
"""

from dataclasses import field
from typing import Annotated

from minikafka.base.values import fast_value
from minikafka.wire.api import Api, ApiKey
from minikafka.wire.fields import ZERO_UUID, Int8, Int16, Int32, Uuid, since, tagged

DEFAULTS_SINCE = 4
"""The first version in which a client may request the broker's defaults."""
CONFIGS_SINCE = 5
"""The first version whose response has the partitions, replicas and configs of new topics."""


@fast_value
class CreatableReplicaAssignment:
    """The brokers of one partition, the preferred leader first."""

    partition_index: Int32
    broker_ids: Annotated[tuple[Int32, ...], "the first is preferred"]


@fast_value
class CreatableTopicConfig:
    """A config of the topic."""

    name: str
    value: str | None  # 0.10.1 calls it a plain string; later releases let clients send null here.


@fast_value
class CreatableTopic:
    """A topic to create."""

    name: str
    num_partitions: Annotated[Int32, "-1: the default, or with assignments"]
    replication_factor: Annotated[Int16, "-1: the default, or with assignments"]
    assignments: tuple[CreatableReplicaAssignment, ...] = ()
    configs: tuple[CreatableTopicConfig, ...] = ()


@fast_value
class CreateTopicsRequest:
    """A request to create topics.

    ``timeout_ms``: the time to wait until the topics are complete; 0 or less does not wait.
    ``validate_only``: report the errors, create nothing.
    """

    topics: tuple[CreatableTopic, ...]
    timeout_ms: Int32
    validate_only: Annotated[bool, since(1)] = False


@fast_value
class CreatableTopicConfigs:
    """A config of the new topic; ``config_source`` as in DescribeConfigs."""

    name: str
    value: str | None
    read_only: bool
    config_source: Annotated[Int8, "1 topic, 4 broker's file, 5 default"]
    is_sensitive: bool


@fast_value
class CreatableTopicResult:
    """The result for one topic. ``topic_config_error_code``: the reason for which it has no ``configs``."""

    name: str
    topic_id: Annotated[Uuid, since(7)] = field(default=ZERO_UUID, kw_only=True)
    error_code: Int16
    error_message: Annotated[str | None, since(1)] = None
    num_partitions: Annotated[Int32, since(5), "-1: unknown"] = -1
    replication_factor: Annotated[Int16, since(5), "-1: unknown"] = -1
    configs: Annotated[tuple[CreatableTopicConfigs, ...] | None, since(5)] = None
    topic_config_error_code: Annotated[Int16, tagged(0, 5)] = 0


@fast_value
class CreateTopicsResponse:
    """The results for the topics, in no particular order."""

    throttle_time_ms: Annotated[Int32, since(2, default=0)]
    topics: tuple[CreatableTopicResult, ...]


CREATE_TOPICS = Api(ApiKey.CREATE_TOPICS, "CreateTopics", 0, 7, CreateTopicsRequest, CreateTopicsResponse)
