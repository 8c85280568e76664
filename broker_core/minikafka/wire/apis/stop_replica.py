"""StopReplica: the controller stops replicas of a broker, and may delete them."""

from minikafka.base.values import fast_value
from minikafka.wire.api import Api, ApiKey
from minikafka.wire.fields import Int16, Int32


@fast_value
class StopReplicaPartition:
    """A partition whose replica is stopped."""

    topic: str
    index: Int32


@fast_value
class StopReplicaRequest:
    """The replicas that the controller of an epoch stops. ``delete_partitions``: delete their logs too."""

    controller_id: Int32
    controller_epoch: Int32
    delete_partitions: bool
    partitions: tuple[StopReplicaPartition, ...]


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


STOP_REPLICA = Api(ApiKey.STOP_REPLICA, "StopReplica", 0, 0, StopReplicaRequest, StopReplicaResponse)
