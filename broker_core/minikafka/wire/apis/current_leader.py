"""New leaders of partitions, in responses of Produce and Fetch (KIP-951)."""

from typing import Annotated

from minikafka.base.values import fast_value
from minikafka.wire.fields import Int32


@fast_value
class LeaderIdAndEpoch:
    """A leader and its epoch; -1 and -1 if the response does not tell them."""

    leader_id: Annotated[Int32, "-1: unknown"] = -1
    leader_epoch: Annotated[Int32, "-1: unknown"] = -1


@fast_value
class NodeEndpoint:
    """The address of a leader."""

    node_id: Int32
    host: str
    port: Int32
    rack: str | None = None
