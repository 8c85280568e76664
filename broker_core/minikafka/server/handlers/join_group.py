"""JoinGroup: become or remain a member of a group.

Version 0 has one time-out for session and rebalance; 2 adds throttle_time_ms. See ``groups.group``; the
response waits until all members have joined, or the rebalance time-out has passed. A refused join has
generation 0 in the versions of 2.1, -1 in later ones.
"""

from __future__ import annotations

from minikafka.base.errors import BrokerError, ErrorCode
from minikafka.groups import events
from minikafka.server.context import RequestContext
from minikafka.server.groups.group_coordinator import GroupCoordinator
from minikafka.wire.apis.join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember

_NEWEST_IN_2_1 = 3


def handle(coordinator: GroupCoordinator, context: RequestContext, request: JoinGroupRequest) -> None:
    """Serve one JoinGroup request."""

    def answer(joined: events.Joined) -> None:
        refused_by_2_1 = joined.error is not ErrorCode.NONE and context.version <= _NEWEST_IN_2_1
        context.answer(
            lambda: JoinGroupResponse(
                throttle_time_ms=0,
                error_code=joined.error,
                generation_id=0 if refused_by_2_1 else joined.generation,
                protocol_name=joined.protocol or "",
                leader=joined.leader,
                member_id=joined.member_id,
                members=tuple(
                    JoinGroupResponseMember(member_id, metadata) for member_id, _, metadata in joined.members
                ),
            )
        )

    client_id = context.header.client_id or ""
    one_timeout = context.version == 0
    join = events.Join(
        request=answer,
        member_id=request.member_id,
        new_member_id=coordinator.new_member_id(client_id),
        client_id=client_id,
        client_host=f"/{context.exchange.client_host}",  # as Java prints an address
        rebalance_timeout_ms=request.session_timeout_ms if one_timeout else request.rebalance_timeout_ms,
        session_timeout_ms=request.session_timeout_ms,
        protocol_type=request.protocol_type,
        protocols=tuple((protocol.name, protocol.metadata) for protocol in request.protocols),
    )
    try:
        coordinator.handle_event(request.group_id, join)
    except BrokerError as error:
        answer(events.Joined(answer, error.code, request.member_id))
