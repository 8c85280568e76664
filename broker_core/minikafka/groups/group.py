"""The state machine of one group in its coordinator: members, generations and rebalances.

Invariants
    A generation has one protocol, which all of its members support, and one leader, which is a member.
    Generations only increase. Every accepted request gets exactly one response.
    Members' metadata is sent only to the leader.

A rebalance: responses to heartbeats request the members to join again. When all have, or the longest of their
rebalance time-outs is over, the next generation starts with the members that joined. A group that was empty
waits ``group.initial.rebalance.delay.ms`` for more members instead; before its first generation the delay is
repeated while members arrive, for at most their rebalance time-out, so that a starting application does not
rebalance once for each of its consumers. The leader then sends the assignments of all members, which are
stored before any member gets its own.

Text: "Consumers and Consumer Groups", which the release moved from ZooKeeper to brokers; ``GroupCoordinator``
and ``GroupMetadata`` of Kafka 2.1. Requests that the release leaves without a response (a second one of the
same member, a member that leaves while it waits) get one here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from minikafka.base.errors import ErrorCode
from minikafka.groups import events
from minikafka.groups.events import Effect, Event
from minikafka.groups.messages import UNKNOWN_MS, GroupMetadataValue, MemberMetadataValue
from minikafka.groups.states import VALID_PREDECESSORS, GroupState

GROUP_BYTES = 2_000
"""Approximate bytes of memory of a group that has had members."""
MEMBER_BYTES = 2_000
"""Approximate bytes of memory of a member, without the strings that its client sends."""
PROTOCOL_BYTES = 300
"""Approximate bytes of memory of a member's protocol, without its name and metadata."""
NEW_MEMBER_JOIN_TIMEOUT_MS = 300_000
"""The longest wait of a member's first join. A client that gave up and joins again is another member."""

Protocols = tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True)
class MemberSummary:
    """A member in DescribeGroups; metadata and assignment are empty unless the group is stable."""

    member_id: str
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True)
class GroupSummary:
    """A group in DescribeGroups. ``protocol`` is empty unless it is stable."""

    state: GroupState
    protocol_type: str
    protocol: str
    members: tuple[MemberSummary, ...]


class _Member:
    """One member. ``awaiting_join`` and ``awaiting_sync`` are its requests that wait for a response."""

    def __init__(self, join: events.Join, deadline_ms: int) -> None:
        self.member_id = join.new_member_id
        self.client_id = join.client_id
        self.client_host = join.client_host
        self.rebalance_timeout_ms = join.rebalance_timeout_ms
        self.session_timeout_ms = join.session_timeout_ms
        self.protocols = join.protocols
        self.assignment = b""
        self.awaiting_join: Any = None
        self.awaiting_sync: Any = None
        self.is_new = True
        self.session_deadline_ms = deadline_ms

    @classmethod
    def restored(cls, value: MemberMetadataValue, protocol: str, protocol_type: str, now_ms: int) -> _Member:
        """Create a member from its stored value, with a new session."""
        join = events.Join(
            request=None,
            member_id=value.member_id,
            new_member_id=value.member_id,
            client_id=value.client_id,
            client_host=value.client_host,
            rebalance_timeout_ms=value.rebalance_timeout_ms,
            session_timeout_ms=value.session_timeout_ms,
            protocol_type=protocol_type,
            protocols=((protocol, value.subscription),),
        )
        member = cls(join, now_ms + value.session_timeout_ms)
        member.assignment = value.assignment
        member.is_new = False
        return member

    @property
    def memory_bytes(self) -> int:
        """Approximate bytes of memory of the member."""
        return MEMBER_BYTES + protocols_bytes(self.protocols) + len(self.assignment)

    def metadata(self, protocol: str) -> bytes:
        """Return its metadata for a protocol, which the leader gets."""
        return next(metadata for name, metadata in self.protocols if name == protocol)

    def deadline_ms(self) -> int | None:
        """Return when its session expires; None while its request waits, as it cannot send another then."""
        if self.awaiting_sync is not None or (self.awaiting_join is not None and not self.is_new):
            return None
        return self.session_deadline_ms


class Group:
    """The mutable state of one group. Same events at the same times give the same effects."""

    def __init__(self, group_id: str, *, initial_rebalance_delay_ms: int) -> None:
        self.group_id = group_id
        self.state = GroupState.EMPTY
        self.generation = 0
        self.protocol_type: str | None = None
        """None for a group that only commits offsets."""
        self.protocol: str | None = None
        self.leader: str | None = None
        self._initial_delay_ms = initial_rebalance_delay_ms
        self.memory_bytes = GROUP_BYTES
        """Approximate bytes of memory of the group with its members."""
        self._members: dict[str, _Member] = {}
        self._protocol_support: Counter[str] = Counter()
        """Protocol -> number of members that support it."""
        self._join_until_ms = 0
        self._join_extension_ms = 0
        """The time by which the initial join may still be extended."""
        self._join_is_initial = False
        self._has_new_members = False
        """Whether a member has joined since the last extension of the initial join."""
        self._effects: list[Effect] = []

    @classmethod
    def restored(
        cls, group_id: str, value: GroupMetadataValue, now_ms: int, *, initial_rebalance_delay_ms: int
    ) -> Group:
        """Create a group from its stored value; the sessions of its members start now.

        Members without a protocol or a leader are not a generation: they must join again.
        """
        group = cls(group_id, initial_rebalance_delay_ms=initial_rebalance_delay_ms)
        group.generation = value.generation
        group.protocol_type = value.protocol_type or None
        ids = {member.member_id for member in value.members}
        if value.protocol is None or value.leader not in ids:
            return group
        group.state = GroupState.STABLE
        group.protocol, group.leader = value.protocol, value.leader
        for stored in value.members:
            member = _Member.restored(stored, value.protocol, value.protocol_type, now_ms)
            group._members[member.member_id] = member
            group._count(member, 1)
        return group

    # --- queries --------------------------------------------------------------------------------------------

    def describe(self) -> GroupSummary:
        """Return the description of the group for DescribeGroups."""
        stable = self.state is GroupState.STABLE
        protocol = (self.protocol or "") if stable else ""
        return GroupSummary(
            self.state,
            self.protocol_type or "",
            protocol,
            tuple(
                MemberSummary(
                    member.member_id,
                    member.client_id,
                    member.client_host,
                    member.metadata(protocol) if stable else b"",
                    member.assignment if stable else b"",
                )
                for member in self._members.values()
            ),
        )

    def member_bytes(self, member_id: str) -> int:
        """Return the approximate bytes of memory of a member; 0 if there is no such member."""
        member = self._members.get(member_id)
        return 0 if member is None else member.memory_bytes

    def next_deadline_ms(self) -> int | None:
        """Return the time of the next deadline, at which Tick is due; None if there is none."""
        deadlines = [
            deadline_ms
            for member in self._members.values()
            if (deadline_ms := member.deadline_ms()) is not None
        ]
        if self.state is GroupState.PREPARING_REBALANCE:
            deadlines.append(self._join_until_ms)
        return min(deadlines, default=None)

    # --- events ---------------------------------------------------------------------------------------------

    def step(self, event: Event, now_ms: int) -> list[Effect]:
        """Process an event; return the effects to perform. ``now_ms`` is monotonic."""
        match event:
            case events.Join():
                self._join(event, now_ms)
            case events.Sync():
                self._sync(event, now_ms)
            case events.Heartbeat(request, member_id, generation):
                self._answer(request, self._heartbeat(member_id, generation, now_ms))
            case events.Leave(request, member_id):
                self._answer(request, self._leave(member_id, now_ms))
            case events.GroupStored(value, error):
                self._stored(value, error, now_ms)
            case events.Tick():
                self._expire(now_ms)
            case events.Unload():
                self._unload()
        self._try_complete_join(now_ms)
        effects, self._effects = self._effects, []
        return effects

    def check_commit(self, member_id: str, generation: int, now_ms: int) -> ErrorCode:
        """Return NONE if a commit is accepted, otherwise the error. A commit also renews the session.

        A generation below 0 is that of a consumer that is not a member of the group.
        """
        if self.state is GroupState.DEAD:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if generation < 0 and self.state is GroupState.EMPTY:
            return ErrorCode.NONE
        if self.state is GroupState.COMPLETING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return self._check_member(member_id, generation, now_ms)

    def delete(self) -> ErrorCode:
        """Delete the group, if it has no members."""
        if self.state is GroupState.DEAD:
            return ErrorCode.GROUP_ID_NOT_FOUND
        if self.state is not GroupState.EMPTY:
            return ErrorCode.NON_EMPTY_GROUP
        self._move(GroupState.DEAD)
        return ErrorCode.NONE

    # --- joining --------------------------------------------------------------------------------------------

    def _join(self, event: events.Join, now_ms: int) -> None:
        member = self._members.get(event.member_id)
        refusal = self._join_error(event, member)
        if refusal is not ErrorCode.NONE:
            self._effects.append(events.Joined(event.request, refusal, event.member_id))
        elif member is None:
            self._add(event, now_ms)
        elif self._is_repeated_join(member, event):
            self._effects.append(self._joined(member, event.request))
        else:
            self._count(member, -1)
            member.protocols = event.protocols
            self._count(member, 1)
            self._wait_for_join(member, event.request)
            self._prepare_rebalance(now_ms)

    def _join_error(self, event: events.Join, member: _Member | None) -> ErrorCode:
        if self.state is GroupState.DEAD:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if self.state is GroupState.EMPTY:
            if not event.protocol_type or not event.protocols:
                return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        elif event.protocol_type != self.protocol_type or not self._supports(event.protocols):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if event.member_id and member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return ErrorCode.NONE

    def _is_repeated_join(self, member: _Member, event: events.Join) -> bool:
        """Return whether a join changes nothing: the response was lost, or a follower joins again.

        A join of the leader of a stable group does: it requests a rebalance when topics have changed.
        """
        if member.protocols != event.protocols:
            return False
        if self.state is GroupState.STABLE:
            return member.member_id != self.leader
        return self.state is GroupState.COMPLETING_REBALANCE

    def _add(self, event: events.Join, now_ms: int) -> None:
        if not self._members:
            self.protocol_type = event.protocol_type
        # It has no session yet, as it does not know its id, and a disconnect is not noticed.
        member = _Member(event, now_ms + NEW_MEMBER_JOIN_TIMEOUT_MS)
        self._members[member.member_id] = member
        self._count(member, 1)
        if self.leader is None:
            self.leader = member.member_id
        self._has_new_members = self.state is GroupState.PREPARING_REBALANCE and self.generation == 0
        self._wait_for_join(member, event.request)
        self._prepare_rebalance(now_ms)

    def _wait_for_join(self, member: _Member, request: Any) -> None:
        if member.awaiting_join is not None:
            # It has sent the request again, on another connection: this response is no longer awaited.
            self._effects.append(
                events.Joined(member.awaiting_join, ErrorCode.REBALANCE_IN_PROGRESS, member.member_id)
            )
        member.awaiting_join = request

    def _prepare_rebalance(self, now_ms: int) -> None:
        if self.state not in VALID_PREDECESSORS[GroupState.PREPARING_REBALANCE]:
            return
        longest_ms = max((member.rebalance_timeout_ms for member in self._members.values()), default=0)
        if self.state is GroupState.COMPLETING_REBALANCE:
            self._answer_syncs(ErrorCode.REBALANCE_IN_PROGRESS, now_ms)
        self._join_is_initial = self.state is GroupState.EMPTY
        if self._join_is_initial:
            self._join_until_ms = now_ms + self._initial_delay_ms
            self._join_extension_ms = max(0, longest_ms - self._initial_delay_ms)
            self._has_new_members = False
        else:
            self._join_until_ms = now_ms + longest_ms
        self._move(GroupState.PREPARING_REBALANCE)

    def _try_complete_join(self, now_ms: int) -> None:
        """Start the next generation when all members have joined, or the time is over."""
        if self.state is not GroupState.PREPARING_REBALANCE:
            return
        if self._join_is_initial:
            if now_ms < self._join_until_ms:
                return
            if self._has_new_members and self._join_extension_ms > 0:
                delay_ms = min(self._initial_delay_ms, self._join_extension_ms)
                self._join_extension_ms -= delay_ms
                self._join_until_ms = now_ms + delay_ms
                self._has_new_members = False
                return
        elif now_ms < self._join_until_ms and any(
            member.awaiting_join is None for member in self._members.values()
        ):
            return
        self._start_generation(now_ms)

    def _start_generation(self, now_ms: int) -> None:
        for member in list(self._members.values()):
            if member.awaiting_join is None:
                self._forget(member)
        self.generation += 1
        if not self._members:
            self.protocol = None
            self._move(GroupState.EMPTY)
            self._effects.append(events.StoreGroup(self._value({})))
            return
        self.protocol = self._elect_protocol()
        self._move(GroupState.COMPLETING_REBALANCE)
        for member in self._members.values():
            self._effects.append(self._joined(member, member.awaiting_join))
            member.awaiting_join = None
            member.is_new = False
            member.session_deadline_ms = now_ms + member.session_timeout_ms

    def _joined(self, member: _Member, request: Any) -> events.Joined:
        assert self.protocol is not None
        assert self.leader is not None
        members: Protocols = ()
        if member.member_id == self.leader:
            members = tuple(
                (other.member_id, other.metadata(self.protocol)) for other in self._members.values()
            )
        return events.Joined(
            request,
            ErrorCode.NONE,
            member.member_id,
            generation=self.generation,
            protocol=self.protocol,
            leader=self.leader,
            members=members,
        )

    def _candidates(self) -> set[str]:
        """Return the protocols that every member supports. There is at least one member."""
        return {name for name, count in self._protocol_support.items() if count == len(self._members)}

    def _supports(self, protocols: Protocols) -> bool:
        return any(self._protocol_support[name] == len(self._members) for name, _ in protocols)

    def _elect_protocol(self) -> str:
        """Return the candidate with the most votes: each member votes for its first candidate."""
        candidates = self._candidates()
        votes = Counter(
            next(name for name, _ in member.protocols if name in candidates)
            for member in self._members.values()
        )
        return votes.most_common(1)[0][0]

    # --- the assignment -------------------------------------------------------------------------------------

    def _sync(self, event: events.Sync, now_ms: int) -> None:
        member = self._members.get(event.member_id)
        if self.state is GroupState.DEAD or member is None:
            self._effects.append(events.Synced(event.request, ErrorCode.UNKNOWN_MEMBER_ID))
        elif event.generation != self.generation:
            self._effects.append(events.Synced(event.request, ErrorCode.ILLEGAL_GENERATION))
        elif self.state is GroupState.PREPARING_REBALANCE:
            self._effects.append(events.Synced(event.request, ErrorCode.REBALANCE_IN_PROGRESS))
        elif self.state is GroupState.STABLE:
            self._effects.append(events.Synced(event.request, ErrorCode.NONE, member.assignment))
            member.session_deadline_ms = now_ms + member.session_timeout_ms
        else:
            if member.awaiting_sync is not None:
                # As with joins: this response is no longer awaited.
                self._effects.append(events.Synced(member.awaiting_sync, ErrorCode.REBALANCE_IN_PROGRESS))
            member.awaiting_sync = event.request
            if member.member_id == self.leader:
                self._effects.append(events.StoreGroup(self._value(event.assignments)))

    def _stored(self, value: GroupMetadataValue, error: ErrorCode, now_ms: int) -> None:
        if self.state is not GroupState.COMPLETING_REBALANCE or value.generation != self.generation:
            return  # another rebalance has started meanwhile
        if error is not ErrorCode.NONE:
            self._answer_syncs(error, now_ms)
            self._prepare_rebalance(now_ms)
            return
        for stored in value.members:
            self._assign(self._members[stored.member_id], stored.assignment)
        self._move(GroupState.STABLE)
        self._answer_syncs(ErrorCode.NONE, now_ms)

    def _answer_syncs(self, error: ErrorCode, now_ms: int) -> None:
        """Respond to all members that wait for their assignment; after an error no member has one."""
        for member in self._members.values():
            if error is not ErrorCode.NONE:
                self._assign(member, b"")
            if member.awaiting_sync is not None:
                self._effects.append(events.Synced(member.awaiting_sync, error, member.assignment))
                member.awaiting_sync = None
                # It could not send heartbeats while it waited for the response.
                member.session_deadline_ms = now_ms + member.session_timeout_ms

    def _value(self, assignments: Mapping[str, bytes]) -> GroupMetadataValue:
        """Return the generation to store; members not in ``assignments`` get an empty assignment."""
        return GroupMetadataValue(
            protocol_type=self.protocol_type or "",
            generation=self.generation,
            protocol=self.protocol,
            leader=self.leader,
            state_timestamp_ms=UNKNOWN_MS,
            members=tuple(
                MemberMetadataValue(
                    member.member_id,
                    None,
                    member.client_id,
                    member.client_host,
                    member.rebalance_timeout_ms,
                    member.session_timeout_ms,
                    member.metadata(self.protocol or ""),
                    assignments.get(member.member_id, b""),
                )
                for member in self._members.values()
            ),
        )

    # --- heartbeats and leaving -----------------------------------------------------------------------------

    def _heartbeat(self, member_id: str, generation: int, now_ms: int) -> ErrorCode:
        if self.state in {GroupState.DEAD, GroupState.EMPTY} or member_id not in self._members:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if self.state is GroupState.COMPLETING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        error = self._check_member(member_id, generation, now_ms)
        if error is ErrorCode.NONE and self.state is GroupState.PREPARING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return error

    def _check_member(self, member_id: str, generation: int, now_ms: int) -> ErrorCode:
        """Return NONE if a member is of this generation, which renews its session; otherwise the error."""
        member = self._members.get(member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if generation != self.generation:
            return ErrorCode.ILLEGAL_GENERATION
        member.session_deadline_ms = now_ms + member.session_timeout_ms
        return ErrorCode.NONE

    def _leave(self, member_id: str, now_ms: int) -> ErrorCode:
        member = self._members.get(member_id)
        if self.state is GroupState.DEAD or member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        self._remove(member, now_ms)
        return ErrorCode.NONE

    def _expire(self, now_ms: int) -> None:
        for member in list(self._members.values()):
            deadline_ms = member.deadline_ms()
            if deadline_ms is not None and deadline_ms <= now_ms:
                self._remove(member, now_ms)

    def _remove(self, member: _Member, now_ms: int) -> None:
        """Remove a member and start a rebalance."""
        self._forget(member)
        self._refuse(member, "", ErrorCode.UNKNOWN_MEMBER_ID)
        self._prepare_rebalance(now_ms)

    def _refuse(self, member: _Member, member_id: str, error: ErrorCode) -> None:
        """Respond to the member's requests that wait, with ``member_id`` to its join."""
        if member.awaiting_join is not None:
            self._effects.append(events.Joined(member.awaiting_join, error, member_id))
        if member.awaiting_sync is not None:
            self._effects.append(events.Synced(member.awaiting_sync, error))

    def _forget(self, member: _Member) -> None:
        del self._members[member.member_id]
        self._count(member, -1)
        if member.member_id == self.leader:
            self.leader = next(iter(self._members), None)

    def _assign(self, member: _Member, assignment: bytes) -> None:
        self.memory_bytes += len(assignment) - len(member.assignment)
        member.assignment = assignment

    def _count(self, member: _Member, sign: int) -> None:
        """Add a member's memory and protocols to the group's totals; subtract them if ``sign`` is -1."""
        self.memory_bytes += sign * member.memory_bytes
        for name in {name for name, _ in member.protocols}:
            self._protocol_support[name] += sign
            if not self._protocol_support[name]:
                del self._protocol_support[name]

    def _unload(self) -> None:
        for member in self._members.values():
            self._refuse(member, member.member_id, ErrorCode.NOT_COORDINATOR_FOR_GROUP)
        self._members.clear()
        self._protocol_support.clear()
        self.memory_bytes = GROUP_BYTES
        self._move(GroupState.DEAD)

    def _answer(self, request: Any, error: ErrorCode) -> None:
        self._effects.append(events.Answered(request, error))

    def _move(self, to: GroupState) -> None:
        if self.state not in VALID_PREDECESSORS[to]:
            raise AssertionError(f"group {self.group_id} cannot go from {self.state.value} to {to.value}")
        self.state = to


def protocols_bytes(protocols: Protocols) -> int:
    """Return the approximate bytes of memory of a member's protocols."""
    return sum(PROTOCOL_BYTES + len(name) + len(metadata) for name, metadata in protocols)
