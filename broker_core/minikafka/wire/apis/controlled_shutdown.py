"""ControlledShutdown: a broker that will stop asks the controller to move its leaderships.

Versions 0 and 1 differ only in their header: a request of version 0 has no client id (``framing``). Version 2
has the broker's epoch; 3 has no new fields.
"""

from typing import Annotated

from minikafka.base.values import fast_value
from minikafka.wire.api import Api, ApiKey
from minikafka.wire.fields import Int16, Int32, Int64, since


@fast_value
class ControlledShutdownRequest:
    """The broker that is about to stop."""

    broker_id: Int32
    broker_epoch: Annotated[Int64, since(2), "-1: unknown"] = -1


@fast_value
class RemainingPartition:
    """A partition that the broker still leads, because no other replica is in sync."""

    topic: str
    index: Int32


@fast_value
class ControlledShutdownResponse:
    """The partitions that the broker still leads; without any it can stop safely."""

    error_code: Int16
    remaining_partitions: tuple[RemainingPartition, ...]


CONTROLLED_SHUTDOWN = Api(
    ApiKey.CONTROLLED_SHUTDOWN,
    "ControlledShutdown",
    0,
    3,
    ControlledShutdownRequest,
    ControlledShutdownResponse,
)
