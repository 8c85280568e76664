"""LeaderAndIsr: the controller assigns replicas and their leaders to a broker.

A broker becomes leader or follower of each partition of the request; the others do not change. Version 1 says
which replicas are new.
"""

from typing import Annotated

from minikafka.base.values import fast_value
from minikafka.wire.api import Api, ApiKey
from minikafka.wire.fields import Int16, Int32, since
from minikafka.wire.schema import MAX_CONTROLLER_ELEMENTS


@fast_value
class LeaderAndIsrPartition:
    """A partition, as in its state znode."""

    topic: str
    index: Int32
    controller_epoch: Annotated[Int32, "of the decision"]
    """The epoch of the controller that made the decision. It may be earlier than the request's."""
    leader_id: Annotated[Int32, "-1: none"]
    leader_epoch: Int32
    isr: Annotated[tuple[Int32, ...], "in-sync replicas"]
    zk_version: Annotated[Int32, "of the state znode"]
    """The state znode's version: the leader's first ISR change is a conditional write with this version."""
    replicas: Annotated[tuple[Int32, ...], "the first is preferred"]
    is_new: Annotated[bool, since(1)] = False
    """True for a new replica. A broker with a failed disk creates no log for an existing one."""


@fast_value
class LiveLeader:
    """The address of a partition leader for brokers."""

    broker_id: Int32
    host: str
    port: Int32


@fast_value
class LeaderAndIsrRequest:
    """The leaders, replicas and ISRs that the controller of an epoch assigns."""

    controller_id: Int32
    controller_epoch: Int32
    partitions: tuple[LeaderAndIsrPartition, ...]
    live_leaders: tuple[LiveLeader, ...]


@fast_value
class LeaderAndIsrPartitionError:
    """The result for one partition."""

    topic: str
    index: Int32
    error_code: Int16


@fast_value
class LeaderAndIsrResponse:
    """The results for the partitions. ``error_code`` is that of the whole request: with
    STALE_CONTROLLER_EPOCH there are no partitions.
    """

    error_code: Int16
    partitions: tuple[LeaderAndIsrPartitionError, ...]


LEADER_AND_ISR = Api(
    ApiKey.LEADER_AND_ISR,
    "LeaderAndIsr",
    0,
    1,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    max_elements=MAX_CONTROLLER_ELEMENTS,
)
