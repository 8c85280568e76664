"""StopReplica: the controller stops replicas of a broker, and may delete them.

Version 1: partitions by topic, and the broker's epoch; 3: leader epochs, and the deletion of each; 4: whether
a KRaft controller sends it. Version 2 has no new fields.
"""

from dataclasses import field
from typing import Annotated

from minikafka.base.values import fast_value
from minikafka.wire.api import Api, ApiKey
from minikafka.wire.fields import Int16, Int32, Int64, since, until


@fast_value
class StopReplicaPartition:
    """A partition whose replica is stopped."""

    topic: str
    index: Int32


@fast_value
class StopReplicaTopic:
    """The partitions of one topic."""

    name: str
    partition_indexes: tuple[Int32, ...]


@fast_value
class StopReplicaPartitionState:
    """A partition whose replica is stopped, and whether its log is deleted."""

    index: Int32
    leader_epoch: Annotated[Int32, "-1: unknown, -2: being deleted"]
    delete_partition: bool


@fast_value
class StopReplicaTopicState:
    """The partitions of one topic."""

    topic: str
    partitions: tuple[StopReplicaPartitionState, ...]


@fast_value
class StopReplicaRequest:
    """The replicas that the controller of an epoch stops: ``partitions`` in version 0, ``topics`` in 1 and 2,
    ``topic_states`` later. ``delete_partitions``: delete their logs too.
    """

    controller_id: Int32
    is_kraft_controller: Annotated[bool, since(4)] = field(default=False, kw_only=True)
    controller_epoch: Int32
    broker_epoch: Annotated[Int64, since(1), "-1: unknown"] = field(default=-1, kw_only=True)
    delete_partitions: Annotated[bool, until(2, default=False)]
    partitions: Annotated[tuple[StopReplicaPartition, ...], until(0, default=())]
    topics: Annotated[tuple[StopReplicaTopic, ...], since(1, until=2)] = ()
    topic_states: Annotated[tuple[StopReplicaTopicState, ...], since(3)] = ()


@fast_value
class StopReplicaPartitionError:
    """The result for one replica."""

    topic: str
    index: Int32
    error_code: Int16


@fast_value
class StopReplicaResponse:
    """The results for the replicas. ``error_code`` is that of the whole request: with
    STALE_CONTROLLER_EPOCH there are no partitions.
    """

    error_code: Int16
    partitions: tuple[StopReplicaPartitionError, ...]


STOP_REPLICA = Api(ApiKey.STOP_REPLICA, "StopReplica", 0, 4, StopReplicaRequest, StopReplicaResponse)
