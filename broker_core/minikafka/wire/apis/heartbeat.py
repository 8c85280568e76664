"""Heartbeat: a member reports that it is alive; the response reports a rebalance.

Version 1: throttle_time_ms; 2 is the same.
"""

from typing import Annotated

from minikafka.base.values import fast_value
from minikafka.wire.api import Api, ApiKey
from minikafka.wire.fields import Int16, Int32, since


@fast_value
class HeartbeatRequest:
    """The member, and the generation that it knows."""

    group_id: str
    generation_id: Int32
    member_id: str


@fast_value
class HeartbeatResponse:
    """The error code; after REBALANCE_IN_PROGRESS the member must join again."""

    throttle_time_ms: Annotated[Int32, since(1, default=0)]
    error_code: Int16


HEARTBEAT = Api(ApiKey.HEARTBEAT, "Heartbeat", 0, 2, HeartbeatRequest, HeartbeatResponse)
