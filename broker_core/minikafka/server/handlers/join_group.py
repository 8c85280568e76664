"""JoinGroup: become or remain a member of a group.

Version 0 has one time-out for session and rebalance; 2 adds throttle_time_ms. From 4 on a new dynamic member
gets MEMBER_ID_REQUIRED with its id, and joins again with it. 5 adds the instance ids of static members, 7 the
protocol type, 8 the client's reason, 9 tells a static leader that came back to keep the assignment.

See ``groups.group``; the response waits until all members have joined, or the rebalance time-out has passed.
A refused join has generation 0 in the versions of 2.1, -1 in later ones.
"""

from __future__ import annotations

from minikafka.base.errors import BrokerError, ErrorCode
from minikafka.groups import events
from minikafka.server.context import RequestContext
from minikafka.server.groups.group_coordinator import GroupCoordinator
from minikafka.wire.apis.join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember

_NEWEST_IN_2_1 = 3
_REQUIRES_MEMBER_ID_SINCE = 4
_NULL_PROTOCOL_SINCE = 7
_SKIPS_ASSIGNMENT_SINCE = 9


def handle(coordinator: GroupCoordinator, context: RequestContext, request: JoinGroupRequest) -> None:
    """Serve one JoinGroup request."""
    version, instance_id = context.version, request.group_instance_id

    def answer(joined: events.Joined) -> None:
        refused_by_2_1 = joined.error is not ErrorCode.NONE and version <= _NEWEST_IN_2_1
        no_protocol = None if version >= _NULL_PROTOCOL_SINCE else ""
        context.answer(
            lambda: JoinGroupResponse(
                throttle_time_ms=0,
                error_code=joined.error,
                generation_id=0 if refused_by_2_1 else joined.generation,
                protocol_type=joined.protocol_type,
                protocol_name=joined.protocol or no_protocol,
                leader=joined.leader,
                skip_assignment=joined.skip_assignment,
                member_id=joined.member_id,
                members=tuple(
                    JoinGroupResponseMember(member_id, metadata, group_instance_id=member_instance_id)
                    for member_id, member_instance_id, metadata in joined.members
                ),
            )
        )

    client_id = context.header.client_id or ""
    join = events.Join(
        request=answer,
        member_id=request.member_id,
        new_member_id=coordinator.new_member_id(client_id if instance_id is None else instance_id),
        client_id=client_id,
        client_host=f"/{context.exchange.client_host}",  # as Java prints an address
        rebalance_timeout_ms=request.session_timeout_ms if version == 0 else request.rebalance_timeout_ms,
        session_timeout_ms=request.session_timeout_ms,
        protocol_type=request.protocol_type,
        protocols=tuple((protocol.name, protocol.metadata) for protocol in request.protocols),
        group_instance_id=instance_id,
        requires_member_id=version >= _REQUIRES_MEMBER_ID_SINCE and instance_id is None,
        skips_assignment=version >= _SKIPS_ASSIGNMENT_SINCE,
        reason=request.reason or "",
    )
    try:
        coordinator.handle_event(request.group_id, join)
    except BrokerError as error:
        answer(events.Joined(answer, error.code, request.member_id))
