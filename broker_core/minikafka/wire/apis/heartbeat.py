"""Heartbeat: a member reports that it is alive; the response reports a rebalance.

Version 1: throttle_time_ms; 2 is the same.
"""

from __future__ import annotations

from minikafka.base.values import fast_value
from minikafka.wire.api import Api, ApiKey
from minikafka.wire.schema import INT16, INT32, STRING, Struct, field


@fast_value
class HeartbeatRequest:
    """The member, and the generation that it knows."""

    group_id: str
    generation_id: int
    member_id: str


@fast_value
class HeartbeatResponse:
    """The error code; after REBALANCE_IN_PROGRESS the member must join again."""

    throttle_time_ms: int
    error_code: int


HEARTBEAT = Api(
    ApiKey.HEARTBEAT,
    "Heartbeat",
    0,
    2,
    request=Struct(
        HeartbeatRequest, field("group_id", STRING), field("generation_id", INT32), field("member_id", STRING)
    ),
    response=Struct(
        HeartbeatResponse, field("throttle_time_ms", INT32, since=1, default=0), field("error_code", INT16)
    ),
)
