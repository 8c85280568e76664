"""A group coordinator in memory, for the tests of the clients: whole in its states, without any time-out.

A member is thrown out, a rebalance begun or a coordinator moved by the test itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from minikafka.base.errors import ErrorCode
from minikafka.base.ids import TopicPartition
from minikafka.wire.apis.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from minikafka.wire.apis.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from minikafka.wire.apis.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from minikafka.wire.apis.heartbeat import HeartbeatRequest, HeartbeatResponse
from minikafka.wire.apis.join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember
from minikafka.wire.apis.leave_group import LeaveGroupRequest, LeaveGroupResponse
from minikafka.wire.apis.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from minikafka.wire.apis.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from minikafka.wire.apis.offset_fetch import (
    NO_OFFSET,
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from minikafka.wire.apis.sync_group import SyncGroupRequest, SyncGroupResponse

OK = int(ErrorCode.NONE)


class Later:
    """An answer that is given when the test, or another request, comes to it."""

    def __init__(self) -> None:
        self._send: Callable[[Any], None] | None = None

    def bind(self, send: Callable[[Any], None]) -> None:
        self._send = send

    def give(self, response: object) -> None:
        if self._send is not None:
            self._send(response)


@dataclass
class Member:
    """One member, with the requests of it that wait for the others."""

    member_id: str
    protocols: dict[str, bytes]
    joining: Later | None = None
    syncing: Later | None = None
    assignment: bytes = b""


@dataclass
class Group:
    """``state`` is one of those that DescribeGroups tells."""

    group_id: str
    state: str = "Empty"
    generation: int = 0
    protocol: str = ""
    leader: str = ""
    members: dict[str, Member] = field(default_factory=dict)
    offsets: dict[TopicPartition, tuple[int, str | None]] = field(default_factory=dict)


class GroupsInMemory:
    """All groups of a cluster, coordinated by the broker ``coordinator`` (0: by none at the moment)."""

    def __init__(self, address: Callable[[int], tuple[str, int]]) -> None:
        self.coordinator = 1
        self.groups: dict[str, Group] = {}
        self._address = address
        self._members = 0

    # What a test turns.

    def group(self, group_id: str) -> Group:
        return self.groups.setdefault(group_id, Group(group_id))

    def throw_out(self, group_id: str, member_id: str) -> None:
        """What the end of a session does."""
        group = self.group(group_id)
        del group.members[member_id]
        self._prepare(group)

    def rebalance(self, group_id: str) -> None:
        self._prepare(self.group(group_id))

    # What a coordinator does.

    def _code(self, broker_id: int) -> ErrorCode:
        return ErrorCode.NONE if broker_id == self.coordinator else ErrorCode.NOT_COORDINATOR_FOR_GROUP

    def answer_find_coordinator(
        self, broker_id: int, request: FindCoordinatorRequest
    ) -> FindCoordinatorResponse:
        if not self.coordinator:
            code = int(ErrorCode.GROUP_COORDINATOR_NOT_AVAILABLE)
            return FindCoordinatorResponse(0, code, None, -1, "", -1)
        host, port = self._address(self.coordinator)
        return FindCoordinatorResponse(0, OK, None, self.coordinator, host, port)

    def answer_join_group(self, broker_id: int, request: JoinGroupRequest) -> JoinGroupResponse | Later:
        group, code = self.group(request.group_id), self._code(broker_id)
        if code is ErrorCode.NONE and request.member_id and request.member_id not in group.members:
            code = ErrorCode.UNKNOWN_MEMBER_ID
        names = {one.name for one in request.protocols}
        others = [one for one in group.members.values() if one.member_id != request.member_id]
        if code is ErrorCode.NONE and not all(names & set(one.protocols) for one in others):
            code = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if code is not ErrorCode.NONE:
            return JoinGroupResponse(0, int(code), -1, "", "", request.member_id, ())
        self._members += not request.member_id
        member_id = request.member_id or f"member-{self._members}"
        protocols = {one.name: one.metadata for one in request.protocols}
        later = Later()
        group.members[member_id] = Member(member_id, protocols, joining=later)
        # Given below, when ``respond`` has bound it: it comes back to ``settle``.
        group.state = "PreparingRebalance"
        return later

    def answer_sync_group(self, broker_id: int, request: SyncGroupRequest) -> SyncGroupResponse | Later:
        group = self.group(request.group_id)
        code = self._member_code(broker_id, group, request.member_id, request.generation_id)
        if code is ErrorCode.NONE and group.state == "PreparingRebalance":
            code = ErrorCode.REBALANCE_IN_PROGRESS
        if code is not ErrorCode.NONE:
            return SyncGroupResponse(0, int(code), b"")
        member = group.members[request.member_id]
        if group.state == "CompletingRebalance":
            member.syncing = Later()
            if request.member_id == group.leader:
                for share in request.assignments:
                    group.members[share.member_id].assignment = share.assignment
                group.state = "Stable"
            return member.syncing
        return SyncGroupResponse(0, OK, member.assignment)

    def answer_heartbeat(self, broker_id: int, request: HeartbeatRequest) -> HeartbeatResponse:
        group = self.group(request.group_id)
        code = self._member_code(broker_id, group, request.member_id, request.generation_id)
        if code is ErrorCode.NONE and group.state != "Stable":
            code = ErrorCode.REBALANCE_IN_PROGRESS
        return HeartbeatResponse(0, int(code))

    def answer_leave_group(self, broker_id: int, request: LeaveGroupRequest) -> LeaveGroupResponse:
        group, code = self.group(request.group_id), self._code(broker_id)
        if code is ErrorCode.NONE and request.member_id not in group.members:
            code = ErrorCode.UNKNOWN_MEMBER_ID
        if code is ErrorCode.NONE:
            self.throw_out(request.group_id, request.member_id)
        return LeaveGroupResponse(0, int(code))

    def settle(self) -> None:
        """Answer what no longer has to wait."""
        for group in self.groups.values():
            members = list(group.members.values())
            if group.state == "PreparingRebalance" and all(one.joining for one in members):
                self._complete(group)
            if group.state == "Stable":
                for one in members:
                    later, one.syncing = one.syncing, None
                    if later is not None:
                        later.give(SyncGroupResponse(0, OK, one.assignment))

    def _prepare(self, group: Group) -> None:
        group.state = "PreparingRebalance" if group.members else "Empty"
        for one in group.members.values():
            later, one.syncing = one.syncing, None
            if later is not None:
                later.give(SyncGroupResponse(0, int(ErrorCode.REBALANCE_IN_PROGRESS), b""))
        self.settle()

    def _complete(self, group: Group) -> None:
        members = list(group.members.values())
        group.generation += 1
        group.state = "CompletingRebalance"
        if group.leader not in group.members:
            group.leader = members[0].member_id
        offered = group.members[group.leader].protocols
        group.protocol = next(name for name in offered if all(name in one.protocols for one in members))
        rows = tuple(JoinGroupResponseMember(one.member_id, one.protocols[group.protocol]) for one in members)
        for one in members:
            one.assignment = b""
            later, one.joining = one.joining, None
            assert later is not None
            seen = rows if one.member_id == group.leader else ()
            later.give(
                JoinGroupResponse(0, OK, group.generation, group.protocol, group.leader, one.member_id, seen)
            )

    def _member_code(self, broker_id: int, group: Group, member_id: str, generation: int) -> ErrorCode:
        code = self._code(broker_id)
        if code is ErrorCode.NONE and member_id not in group.members:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if code is ErrorCode.NONE and generation != group.generation:
            return ErrorCode.ILLEGAL_GENERATION
        return code

    # Offsets.

    def answer_offset_commit(self, broker_id: int, request: OffsetCommitRequest) -> OffsetCommitResponse:
        group = self.group(request.group_id)
        if request.generation_id < 0 and not group.members:
            code = self._code(broker_id)
        else:
            code = self._member_code(broker_id, group, request.member_id, request.generation_id)
        if code is ErrorCode.NONE:
            group.offsets |= {
                TopicPartition(topic.name, part.partition_index): (
                    part.committed_offset,
                    part.committed_metadata,
                )
                for topic in request.topics
                for part in topic.partitions
            }
        return commit_answer(request, code)

    def answer_offset_fetch(self, broker_id: int, request: OffsetFetchRequest) -> OffsetFetchResponse:
        # Who only asks makes no group.
        group, code = self.groups.get(request.group_id, Group(request.group_id)), self._code(broker_id)
        wanted: dict[str, list[int]] = {}
        if request.topics is None:
            for tp in group.offsets:
                wanted.setdefault(tp.topic, []).append(tp.partition)
        else:
            wanted = {topic.name: list(topic.partition_indexes) for topic in request.topics}
        if code is not ErrorCode.NONE:
            return OffsetFetchResponse(0, (), int(code))
        topics = []
        for name, numbers in wanted.items():
            rows = []
            for number in numbers:
                offset, text = group.offsets.get(TopicPartition(name, number), (NO_OFFSET, ""))
                rows.append(OffsetFetchResponsePartition(number, offset, -1, text, OK))
            topics.append(OffsetFetchResponseTopic(name, tuple(rows)))
        return OffsetFetchResponse(0, tuple(topics), OK)

    # Administration.

    def answer_list_groups(self, broker_id: int, request: ListGroupsRequest) -> ListGroupsResponse:
        listed = self.groups.values() if broker_id == self.coordinator else ()
        rows = (ListedGroup(one.group_id, "consumer" if one.generation else "") for one in listed)
        return ListGroupsResponse(0, OK, tuple(rows))

    def answer_describe_groups(
        self, broker_id: int, request: DescribeGroupsRequest
    ) -> DescribeGroupsResponse:
        return DescribeGroupsResponse(0, tuple(self._described(broker_id, name) for name in request.groups))

    def _described(self, broker_id: int, name: str) -> DescribedGroup:
        code = self._code(broker_id)
        group = self.groups.get(name)
        if code is not ErrorCode.NONE or group is None:
            return DescribedGroup(int(code), name, "" if code else "Dead", "", "", ())
        members = (
            DescribedGroupMember(
                one.member_id,
                "a-client",
                "/127.0.0.1",
                one.protocols.get(group.protocol, b""),
                one.assignment,
            )
            for one in group.members.values()
        )
        kind = "consumer" if group.generation else ""
        return DescribedGroup(OK, name, group.state, kind, group.protocol, tuple(members))

    def answer_delete_groups(self, broker_id: int, request: DeleteGroupsRequest) -> DeleteGroupsResponse:
        rows = []
        for name in request.groups_names:
            code = self._code(broker_id)
            if code is ErrorCode.NONE and name not in self.groups:
                code = ErrorCode.GROUP_ID_NOT_FOUND
            elif code is ErrorCode.NONE and self.groups[name].members:
                code = ErrorCode.NON_EMPTY_GROUP
            if code is ErrorCode.NONE:
                del self.groups[name]
            rows.append(DeletableGroupResult(name, int(code)))
        return DeleteGroupsResponse(0, tuple(rows))


def commit_answer(request: OffsetCommitRequest, code: ErrorCode) -> OffsetCommitResponse:
    """The same code for each offset."""
    return OffsetCommitResponse(
        0,
        tuple(
            OffsetCommitResponseTopic(
                topic.name,
                tuple(
                    OffsetCommitResponsePartition(part.partition_index, int(code))
                    for part in topic.partitions
                ),
            )
            for topic in request.topics
        ),
    )
