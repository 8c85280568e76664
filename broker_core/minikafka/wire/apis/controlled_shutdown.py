"""ControlledShutdown: a broker that will stop asks the controller to move its leaderships.

Versions 0 and 1 differ only in their header: a request of version 0 has no client id (``framing``).
"""

from __future__ import annotations

from minikafka.base.values import fast_value
from minikafka.wire.api import Api, ApiKey
from minikafka.wire.schema import INT16, INT32, STRING, Struct, array, field


@fast_value
class ControlledShutdownRequest:
    """The broker that is about to stop."""

    broker_id: int


@fast_value
class RemainingPartition:
    """A partition that the broker still leads, because no other replica is in sync."""

    topic: str
    index: int


@fast_value
class ControlledShutdownResponse:
    """The partitions that the broker still leads; without any it can stop safely."""

    error_code: int
    remaining_partitions: tuple[RemainingPartition, ...]


CONTROLLED_SHUTDOWN = Api(
    ApiKey.CONTROLLED_SHUTDOWN,
    "ControlledShutdown",
    0,
    1,
    request=Struct(ControlledShutdownRequest, field("broker_id", INT32)),
    response=Struct(
        ControlledShutdownResponse,
        field("error_code", INT16),
        array("remaining_partitions", RemainingPartition, field("topic", STRING), field("index", INT32)),
    ),
)
