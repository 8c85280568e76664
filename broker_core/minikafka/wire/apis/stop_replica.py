"""StopReplica: the controller stops replicas of a broker, and may delete them."""

from __future__ import annotations

from minikafka.base.values import fast_value
from minikafka.wire.api import Api, ApiKey
from minikafka.wire.schema import BOOLEAN, INT16, INT32, STRING, Struct, array, field


@fast_value
class StopReplicaPartition:
    """A partition whose replica is stopped."""

    topic: str
    index: int


@fast_value
class StopReplicaRequest:
    """The replicas that the controller of an epoch stops. ``delete_partitions``: delete their logs too."""

    controller_id: int
    controller_epoch: int
    delete_partitions: bool
    partitions: tuple[StopReplicaPartition, ...]


@fast_value
class StopReplicaPartitionError:
    """The result for one replica."""

    topic: str
    index: int
    error_code: int


@fast_value
class StopReplicaResponse:
    """The results for the replicas. ``error_code`` is that of the whole request: with
    STALE_CONTROLLER_EPOCH there are no partitions.
    """

    error_code: int
    partitions: tuple[StopReplicaPartitionError, ...]


STOP_REPLICA = Api(
    ApiKey.STOP_REPLICA,
    "StopReplica",
    0,
    0,
    request=Struct(
        StopReplicaRequest,
        field("controller_id", INT32),
        field("controller_epoch", INT32),
        field("delete_partitions", BOOLEAN),
        array("partitions", StopReplicaPartition, field("topic", STRING), field("index", INT32)),
    ),
    response=Struct(
        StopReplicaResponse,
        field("error_code", INT16),
        array(
            "partitions",
            StopReplicaPartitionError,
            field("topic", STRING),
            field("index", INT32),
            field("error_code", INT16),
        ),
    ),
)
