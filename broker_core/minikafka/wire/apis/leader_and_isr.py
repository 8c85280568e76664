"""LeaderAndIsr: the controller assigns replicas and their leaders to a broker.

A broker becomes leader or follower of each partition of the request; the others do not change. Version 1 says
which replicas are new. Version 2: partitions by topic, and the broker's epoch; 3: a reassignment's replicas;
5: topic ids, and whether the request has all partitions of the broker; 6: the recovery of a leader; 7:
whether a KRaft controller sends it. Version 4 has no new fields.
"""

from dataclasses import field
from typing import Annotated

from minikafka.base.values import fast_value
from minikafka.wire.api import Api, ApiKey
from minikafka.wire.fields import ZERO_UUID, Int8, Int16, Int32, Int64, Uuid, since, until
from minikafka.wire.schema import MAX_CONTROLLER_ELEMENTS


@fast_value
class LeaderAndIsrPartition:
    """A partition, as in its state znode. ``topic`` is empty where the partitions are by topic."""

    topic: Annotated[str, until(1, default="")]
    index: Int32
    controller_epoch: Annotated[Int32, "of the decision"]
    """The epoch of the controller that made the decision. It may be earlier than the request's."""
    leader_id: Annotated[Int32, "-1: none"]
    leader_epoch: Int32
    isr: Annotated[tuple[Int32, ...], "in-sync replicas"]
    zk_version: Annotated[Int32, "of the state znode"]
    """The state znode's version: the leader's first ISR change is a conditional write with this version."""
    replicas: Annotated[tuple[Int32, ...], "the first is preferred"]
    adding_replicas: Annotated[tuple[Int32, ...], since(3), "of a reassignment"] = field(
        default=(), kw_only=True
    )
    removing_replicas: Annotated[tuple[Int32, ...], since(3), "of a reassignment"] = field(
        default=(), kw_only=True
    )
    is_new: Annotated[bool, since(1)] = False
    """True for a new replica. A broker with a failed disk creates no log for an existing one."""
    leader_recovery_state: Annotated[Int8, since(6), "1: recovers from an unclean election"] = 0


@fast_value
class LeaderAndIsrTopicState:
    """The partitions of one topic."""

    topic: str
    topic_id: Annotated[Uuid, since(5)] = field(default=ZERO_UUID, kw_only=True)
    partitions: tuple[LeaderAndIsrPartition, ...]


@fast_value
class LiveLeader:
    """The address of a partition leader for brokers."""

    broker_id: Int32
    host: str
    port: Int32


@fast_value
class LeaderAndIsrRequest:
    """The leaders, replicas and ISRs that the controller of an epoch assigns: ``partitions``, or from version
    2 on ``topics``.
    """

    controller_id: Int32
    is_kraft_controller: Annotated[bool, since(7)] = field(default=False, kw_only=True)
    controller_epoch: Int32
    broker_epoch: Annotated[Int64, since(2), "-1: unknown"] = field(default=-1, kw_only=True)
    type: Annotated[Int8, since(5), "1: partitions that changed, 2: all"] = field(default=0, kw_only=True)
    partitions: Annotated[tuple[LeaderAndIsrPartition, ...], until(1, default=())]
    topics: Annotated[tuple[LeaderAndIsrTopicState, ...], since(2)] = field(default=(), kw_only=True)
    live_leaders: tuple[LiveLeader, ...]


@fast_value
class LeaderAndIsrPartitionError:
    """The result for one partition. ``topic`` is empty where the partitions are by topic."""

    topic: Annotated[str, until(4, default="")]
    index: Int32
    error_code: Int16


@fast_value
class LeaderAndIsrTopicError:
    """The results for the partitions of one topic."""

    topic_id: Uuid
    partitions: tuple[LeaderAndIsrPartitionError, ...]


@fast_value
class LeaderAndIsrResponse:
    """The results: ``partitions``, or from version 5 on ``topics``. ``error_code`` is that of the whole
    request: with STALE_CONTROLLER_EPOCH there are no partitions.
    """

    error_code: Int16
    partitions: Annotated[tuple[LeaderAndIsrPartitionError, ...], until(4, default=())]
    topics: Annotated[tuple[LeaderAndIsrTopicError, ...], since(5)] = ()


LEADER_AND_ISR = Api(
    ApiKey.LEADER_AND_ISR,
    "LeaderAndIsr",
    0,
    7,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    max_elements=MAX_CONTROLLER_ELEMENTS,
)
