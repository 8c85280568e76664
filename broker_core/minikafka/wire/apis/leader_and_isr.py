"""LeaderAndIsr: the controller assigns replicas and their leaders to a broker.

A broker becomes leader or follower of each partition of the request; the others do not change. Version 1 says
which replicas are new.
"""

from __future__ import annotations

from minikafka.base.values import fast_value
from minikafka.wire.api import Api, ApiKey
from minikafka.wire.schema import (
    BOOLEAN,
    INT16,
    INT32,
    MAX_CONTROLLER_ELEMENTS,
    STRING,
    ArrayOf,
    Struct,
    array,
    field,
)


@fast_value
class LeaderAndIsrPartition:
    """A partition, as in its state znode."""

    topic: str
    index: int
    controller_epoch: int
    """The epoch of the controller that made the decision. It may be earlier than the request's."""
    leader_id: int
    leader_epoch: int
    isr: tuple[int, ...]
    zk_version: int
    """The state znode's version: the leader's first ISR change is a conditional write with this version."""
    replicas: tuple[int, ...]
    is_new: bool = False
    """True for a new replica. A broker with a failed disk creates no log for an existing one."""


@fast_value
class LiveLeader:
    """The address of a partition leader for brokers."""

    broker_id: int
    host: str
    port: int


@fast_value
class LeaderAndIsrRequest:
    """The leaders, replicas and ISRs that the controller of an epoch assigns."""

    controller_id: int
    controller_epoch: int
    partitions: tuple[LeaderAndIsrPartition, ...]
    live_leaders: tuple[LiveLeader, ...]


@fast_value
class LeaderAndIsrPartitionError:
    """The result for one partition."""

    topic: str
    index: int
    error_code: int


@fast_value
class LeaderAndIsrResponse:
    """The results for the partitions. ``error_code`` is that of the whole request: with
    STALE_CONTROLLER_EPOCH there are no partitions.
    """

    error_code: int
    partitions: tuple[LeaderAndIsrPartitionError, ...]


LEADER_AND_ISR = Api(
    ApiKey.LEADER_AND_ISR,
    "LeaderAndIsr",
    0,
    1,
    request=Struct(
        LeaderAndIsrRequest,
        field("controller_id", INT32),
        field("controller_epoch", INT32),
        array(
            "partitions",
            LeaderAndIsrPartition,
            field("topic", STRING),
            field("index", INT32),
            field("controller_epoch", INT32, "of the decision"),
            field("leader_id", INT32, "-1: none"),
            field("leader_epoch", INT32),
            field("isr", ArrayOf(INT32), "in-sync replicas"),
            field("zk_version", INT32, "of the state znode"),
            field("replicas", ArrayOf(INT32), "the first is preferred"),
            field("is_new", BOOLEAN, since=1, default=False),
        ),
        array(
            "live_leaders", LiveLeader, field("broker_id", INT32), field("host", STRING), field("port", INT32)
        ),
    ),
    response=Struct(
        LeaderAndIsrResponse,
        field("error_code", INT16),
        array(
            "partitions",
            LeaderAndIsrPartitionError,
            field("topic", STRING),
            field("index", INT32),
            field("error_code", INT16),
        ),
    ),
    max_elements=MAX_CONTROLLER_ELEMENTS,
)
