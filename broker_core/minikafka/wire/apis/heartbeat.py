"""Heartbeat: a member reports that it is alive; the response reports a rebalance.

Version 1: throttle_time_ms; 3: the instance id of a static member. Versions 2 and 4 have no new fields.
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
    group_instance_id: Annotated[str | None, since(3), "of a static member"] = None


@fast_value
class HeartbeatResponse:
    """The error code; after REBALANCE_IN_PROGRESS the member must join again."""

    throttle_time_ms: Annotated[Int32, since(1, default=0)]
    error_code: Int16


HEARTBEAT = Api(ApiKey.HEARTBEAT, "Heartbeat", 0, 4, HeartbeatRequest, HeartbeatResponse)
