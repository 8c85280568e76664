"""ElectLeaders: elect the preferred replicas of partitions as leaders, or any live ones.

Of Kafka 2.2. Sent to the controller. Version 1 adds the type of the election and an error for the whole
request; version 0 elects preferred replicas.
"""

from enum import IntEnum
from typing import Annotated

from minikafka.base.values import fast_value
from minikafka.wire.api import Api, ApiKey
from minikafka.wire.fields import Int8, Int16, Int32, since


class ElectionType(IntEnum):
    """The replica that becomes leader."""

    PREFERRED = 0
    """The first assigned one, if it is in sync."""
    UNCLEAN = 1
    """The first live one, for partitions without a leader: messages may be lost."""


@fast_value
class ElectLeadersTopic:
    """The partitions of a topic to elect leaders for."""

    topic: str
    partitions: tuple[Int32, ...]


@fast_value
class ElectLeadersRequest:
    """The partitions to elect leaders for. ``timeout_ms``: how long to wait for the new leaders."""

    election_type: Annotated[Int8, since(1, default=int(ElectionType.PREFERRED)), "0 preferred, 1 unclean"]
    topic_partitions: Annotated[tuple[ElectLeadersTopic, ...] | None, "null: all"]
    timeout_ms: Int32


@fast_value
class ElectLeadersPartitionResult:
    """The result for a partition."""

    partition_id: Int32
    error_code: Int16
    error_message: str | None


@fast_value
class ElectLeadersTopicResult:
    """The results for the partitions of a topic."""

    topic: str
    partition_result: tuple[ElectLeadersPartitionResult, ...]


@fast_value
class ElectLeadersResponse:
    """The results for the partitions of the request; of all, if it names none, for those that needed it."""

    throttle_time_ms: Int32
    error_code: Annotated[Int16, since(1, default=0)]
    replica_election_results: tuple[ElectLeadersTopicResult, ...]


ELECT_LEADERS = Api(ApiKey.ELECT_LEADERS, "ElectLeaders", 0, 2, ElectLeadersRequest, ElectLeadersResponse)
