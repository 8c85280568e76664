"""The state machine of one group in its coordinator: members, generations and rebalances.

Invariants
    A generation has one protocol, which all of its members support, and one leader, which is a member.
    Generations only increase. Every accepted request gets exactly one response.
    Members' metadata is sent only to the leader.

A rebalance: responses to heartbeats request the members to join again. When all have, or the longest of their
rebalance time-outs is over, the next generation starts with the members that joined, and with the static
members, which stay until their session expires. A group that was empty waits
``group.initial.rebalance.delay.ms`` for more members instead; before its first generation the delay is
repeated while members arrive, for at most their rebalance time-out, so that a starting application does not
rebalance once for each of its consumers. The leader then sends the assignments of all members, which are
stored before any member gets its own. Members that do not request theirs within the rebalance time-out are
removed.

A static member that comes back to a stable group gets its assignment without a rebalance, unless its
protocols change the group's. Its new id is stored first, so that the next coordinator fences the old one too.

Text: "Consumers and Consumer Groups", which the release moved from ZooKeeper to brokers; ``GroupCoordinator``
and ``GroupMetadata`` of Kafka 3.9. Requests that the release leaves without a response (a second one of the
same member, a member that leaves while it waits) get one here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from minikafka.base.errors import ErrorCode, RemoteWireError
from minikafka.groups import events
from minikafka.groups.events import Effect, Event
from minikafka.groups.members import GroupMembers, Member, MemberSummary
from minikafka.groups.messages import UNKNOWN_MS, GroupMetadataValue
from minikafka.groups.states import VALID_PREDECESSORS, GroupState
from minikafka.wire.consumer_protocol import PROTOCOL_TYPE, decode_subscription

NEW_MEMBER_JOIN_TIMEOUT_MS = 300_000
"""The longest wait of a member's first join. A client that gave up and joins again is another member."""
NO_LIMIT = (1 << 31) - 1
"""``group.max.size`` of groups of any size."""


@dataclass(frozen=True, slots=True)
class GroupSummary:
    """A group in DescribeGroups. ``protocol`` is empty unless it is stable."""

    state: GroupState
    protocol_type: str
    protocol: str
    members: tuple[MemberSummary, ...]


class Group:
    """The mutable state of one group. Same events at the same times give the same effects."""

    def __init__(self, group_id: str, *, initial_rebalance_delay_ms: int, max_size: int = NO_LIMIT) -> None:
        self.group_id = group_id
        self.state = GroupState.EMPTY
        self.generation = 0
        self.protocol_type: str | None = None
        """None for a group that only commits offsets."""
        self.protocol: str | None = None
        self.leader: str | None = None
        self.members = GroupMembers()
        self._initial_delay_ms = initial_rebalance_delay_ms
        self._max_size = max_size
        self._join_until_ms = 0
        self._join_extension_ms = 0
        """The time by which the initial join may still be extended."""
        self._join_is_initial = False
        self._has_new_members = False
        """True if a member has joined since the last extension of the initial join."""
        self._must_sync: set[str] = set()
        """Ids of the members that have not requested their assignment of this generation."""
        self._sync_until_ms = 0
        """The time at which the members in ``_must_sync`` are removed."""
        self._subscriptions: tuple[bytes, ...] = ()
        """The metadata of the generation's members."""
        self._effects: list[Effect] = []

    def restore(self, value: GroupMetadataValue, now_ms: int) -> None:
        """Take over a stored generation; the sessions of its members start now.

        Members without a protocol or a leader are not a generation: they must join again. A group with too
        many members rebalances, so that those beyond ``group.max.size`` can commit before they are refused.
        """
        self.generation = value.generation
        self.protocol_type = value.protocol_type or None
        ids = {member.member_id for member in value.members}
        if value.protocol is None or value.leader not in ids:
            return
        self.state = GroupState.STABLE
        self.protocol, self.leader = value.protocol, value.leader
        for stored in value.members:
            self.members.add(Member.restored(stored, value.protocol, now_ms))
        self._subscriptions = tuple(stored.subscription for stored in value.members)
        if len(self.members) > self._max_size:
            self._prepare_rebalance(now_ms, f"loaded with more members than group.max.size={self._max_size}")

    # --- queries --------------------------------------------------------------------------------------------

    @property
    def memory_bytes(self) -> int:
        """Approximate bytes of memory of the group with its members."""
        return self.members.memory_bytes

    def describe(self) -> GroupSummary:
        """Return the description of the group for DescribeGroups."""
        protocol = (self.protocol or "") if self.state is GroupState.STABLE else ""
        return GroupSummary(
            self.state,
            self.protocol_type or "",
            protocol,
            tuple(member.summary(protocol or None) for member in self.members),
        )

    def subscribed_topics(self) -> frozenset[str] | None:
        """Return the topics that the members of the generation consume; None if that is not known.

        It is known for consumers only, if the metadata of all of them can be decoded.
        """
        if self.protocol_type != PROTOCOL_TYPE or (self.protocol is None and len(self.members)):
            return None
        try:
            return frozenset(
                topic for data in self._subscriptions for topic in decode_subscription(data).topics
            )
        except RemoteWireError:
            return None

    def member_bytes(self, join: events.Join) -> int:
        """Return the approximate bytes of memory of the member that a join replaces; 0 if there is none."""
        member = self._member_of(join)
        return 0 if member is None else member.memory_bytes

    def next_deadline_ms(self) -> int | None:
        """Return the time of the next deadline, at which Tick is due; None if there is none."""
        session_ms = self.members.next_deadline_ms()
        if self.state is GroupState.PREPARING_REBALANCE:
            own_ms = self._join_until_ms
        elif self._must_sync:
            own_ms = self._sync_until_ms
        else:
            return session_ms
        return own_ms if session_ms is None else min(own_ms, session_ms)

    # --- events ---------------------------------------------------------------------------------------------

    def step(self, event: Event, now_ms: int) -> list[Effect]:
        """Process an event; return the effects to perform. ``now_ms`` is monotonic."""
        match event:
            case events.Join():
                self._join(event, now_ms)
            case events.Sync():
                self._sync(event, now_ms)
            case events.Heartbeat():
                self._effects.append(events.Answered(event.request, self._heartbeat(event, now_ms)))
            case events.Leave():
                outcome = tuple((identity, self._leave(identity, now_ms)) for identity in event.members)
                self._effects.append(events.Left(event.request, ErrorCode.NONE, outcome))
            case events.GroupStored(store, error):
                self._stored(store, error, now_ms)
            case events.Tick():
                self._expire(now_ms)
            case events.Unload():
                self._unload()
        self._try_complete_join(now_ms)
        effects, self._effects = self._effects, []
        return effects

    def check_commit(self, member: events.MemberIdentity, generation: int, now_ms: int) -> ErrorCode:
        """Return NONE if a commit is accepted, otherwise the error. A commit also renews the session.

        A generation below 0 is that of a consumer that is not a member of the group.
        """
        if self.state is GroupState.DEAD:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if generation < 0 and self.state is GroupState.EMPTY:
            return ErrorCode.NONE
        error = self._check_member(member.member_id, member.group_instance_id, generation)
        if error is not ErrorCode.NONE:
            return error
        if self.state is GroupState.COMPLETING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        self.members[member.member_id].renew_session(now_ms)
        return ErrorCode.NONE

    def check_txn_commit(self, member: events.MemberIdentity, generation: int) -> ErrorCode:
        """Return NONE if a commit in a transaction is accepted; before KIP-447 it names no member."""
        if generation < 0 and (self.state is GroupState.EMPTY or not member.is_given):
            return ErrorCode.NONE
        return self._check_member(member.member_id, member.group_instance_id, generation)

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
        member = self._member_of(event)
        refusal = self._join_error(event)
        if refusal is ErrorCode.GROUP_MAX_SIZE_REACHED:
            if member is not None:
                self._forget(member)
            self.members.remove_pending(event.member_id)
            self._effects.append(events.Joined(event.request, refusal, ""))
        elif refusal is not ErrorCode.NONE:
            self._effects.append(events.Joined(event.request, refusal, event.member_id))
        elif member is not None and not event.member_id:
            self._replace(member, event, now_ms)
        elif member is not None:
            self._rejoin(member, event, now_ms)
        elif event.requires_member_id and not event.member_id:
            self.members.add_pending(event.new_member_id, now_ms + event.session_timeout_ms)
            self._effects.append(
                events.Joined(event.request, ErrorCode.MEMBER_ID_REQUIRED, event.new_member_id)
            )
        else:
            self._add(event, now_ms)

    def _member_of(self, event: events.Join) -> Member | None:
        """Return the member that joins again, or the static member whose place a new client takes over."""
        if event.member_id:
            return self.members.get(event.member_id)
        return self.members.static(event.group_instance_id)

    def _join_error(self, event: events.Join) -> ErrorCode:
        if self.state is GroupState.DEAD:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if not self._has_room_for(event):
            return ErrorCode.GROUP_MAX_SIZE_REACHED
        if self.state is GroupState.EMPTY:
            if not event.protocol_type or not event.protocols:
                return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        elif event.protocol_type != self.protocol_type or not self.members.supports(event.protocols):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if not event.member_id or (
            event.member_id in self.members.pending and event.group_instance_id is None
        ):
            return ErrorCode.NONE
        return self.members.check(event.member_id, event.group_instance_id)

    def _has_room_for(self, event: events.Join) -> bool:
        """Return whether the member may be in the group.

        While the group rebalances, those that have joined count: so the last ones of a group that is too
        large are refused.
        """
        if self.state is GroupState.EMPTY:
            return True
        member = self._member_of(event)
        if self.state is not GroupState.PREPARING_REBALANCE:
            return member is not None or len(self.members) < self._max_size
        if member is not None and member.awaiting_join is not None:
            return True
        return len(self.members) < self._max_size or (
            sum(other.awaiting_join is not None for other in self.members) < self._max_size
        )

    def _rejoin(self, member: Member, event: events.Join, now_ms: int) -> None:
        if self._is_repeated_join(member, event):
            self._effects.append(self._joined(member, event.request))
            return
        self.members.update(member, event.settings)
        self._wait_for_join(member, event.request)
        self._prepare_rebalance(now_ms, f"member {member.member_id} joins again", event.reason)

    def _is_repeated_join(self, member: Member, event: events.Join) -> bool:
        """Return whether a join changes nothing: the response was lost, or a follower joins again.

        A join of the leader of a stable group does: it requests a rebalance when topics have changed.
        """
        if member.settings.protocols != event.protocols:
            return False
        if self.state is GroupState.STABLE:
            return member.member_id != self.leader
        return self.state is GroupState.COMPLETING_REBALANCE

    def _add(self, event: events.Join, now_ms: int) -> None:
        if not self.members:
            self.protocol_type = event.protocol_type
        # It has no session yet, as it may not know its id, and a disconnect is not noticed.
        member_id = event.member_id or event.new_member_id
        member = Member(member_id, event, event.settings, now_ms + NEW_MEMBER_JOIN_TIMEOUT_MS)
        self.members.add(member)
        if self.leader is None:
            self.leader = member_id
        self._has_new_members = self.state is GroupState.PREPARING_REBALANCE and self.generation == 0
        self._wait_for_join(member, event.request)
        self._prepare_rebalance(now_ms, f"member {member_id} joins", event.reason)

    def _replace(self, member: Member, event: events.Join, now_ms: int) -> None:
        """Give the place of a static member to a client that comes back under a new member id."""
        old_id, old_settings, old_leader = member.member_id, member.settings, self.leader or ""
        self._refuse(member, old_id, ErrorCode.FENCED_INSTANCE_ID)
        self._rename(member, event.new_member_id)
        self.members.update(member, event.settings)
        member.awaiting_join = event.request
        # This counts only before its first generation: later the waiting join keeps its session.
        member.session_deadline_ms = now_ms + NEW_MEMBER_JOIN_TIMEOUT_MS
        if self.state is GroupState.STABLE and self.members.elect_protocol() == self.protocol:
            assignments = {other.member_id: other.assignment for other in self.members}
            replacement = events.Replacement(
                member.member_id, old_id, old_settings, old_leader, event.skips_assignment
            )
            self._effects.append(events.StoreGroup(self._value(assignments), replacement))
            return
        self._prepare_rebalance(now_ms, f"static member {event.group_instance_id} joins", event.reason)

    def _replaced(self, replacement: events.Replacement, error: ErrorCode, now_ms: int) -> None:
        """Respond to a static member that came back: its new id is stored, or it has the old one again."""
        member = self.members.get(replacement.member_id)
        if self.state is not GroupState.STABLE or member is None or member.awaiting_join is None:
            return  # it joins the next generation, has left, or was replaced itself
        request, member.awaiting_join = member.awaiting_join, None
        member.renew_session(now_ms)
        if error is not ErrorCode.NONE:
            self.members.update(member, replacement.old_settings)
            self._rename(member, replacement.old_member_id)
            self._effects.append(events.Joined(request, error, ""))
        elif replacement.skips_assignment:
            self._effects.append(self._joined(member, request, is_unchanged=True))
        else:
            # An older client that knew that it leads would assign partitions, and nobody would get them.
            joined = replace(self._joined(member, request), leader=replacement.old_leader, members=())
            self._effects.append(joined)

    def _rename(self, member: Member, member_id: str) -> None:
        if member.member_id == self.leader:
            self.leader = member_id
        if member.member_id in self._must_sync:
            self._must_sync.remove(member.member_id)
            self._must_sync.add(member_id)
        self.members.rename(member, member_id)

    def _wait_for_join(self, member: Member, request: Any) -> None:
        if member.awaiting_join is not None:
            # It has sent the request again, on another connection: this response is no longer awaited.
            self._effects.append(
                events.Joined(member.awaiting_join, ErrorCode.REBALANCE_IN_PROGRESS, member.member_id)
            )
        member.awaiting_join = request

    def _prepare_rebalance(self, now_ms: int, reason: str, client_reason: str = "") -> None:
        if self.state not in VALID_PREDECESSORS[GroupState.PREPARING_REBALANCE]:
            return
        self._effects.append(
            events.Rebalancing(f"{reason}; client: {client_reason}" if client_reason else reason)
        )
        longest_ms = self.members.longest_rebalance_timeout_ms()
        if self.state is GroupState.COMPLETING_REBALANCE:
            self._answer_syncs(ErrorCode.REBALANCE_IN_PROGRESS, now_ms)
        self._join_is_initial = self.state is GroupState.EMPTY
        if self._join_is_initial:
            self._join_until_ms = now_ms + self._initial_delay_ms
            self._join_extension_ms = max(0, longest_ms - self._initial_delay_ms)
            self._has_new_members = False
        else:
            self._join_until_ms = now_ms + longest_ms
        self._must_sync.clear()
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
        elif now_ms < self._join_until_ms and not self.members.all_joined():
            return
        self._start_generation(now_ms)

    def _start_generation(self, now_ms: int) -> None:
        for member in list(self.members):
            if member.awaiting_join is None and member.group_instance_id is None:
                self._forget(member)
        if not self._elect_leader():
            # Only static members, and none of them has joined: their sessions decide.
            self._join_is_initial = False
            self._join_until_ms = now_ms + max(1, self.members.longest_rebalance_timeout_ms())
            return
        self.generation += 1
        if not self.members:
            self.protocol, self._subscriptions = None, ()
            self._move(GroupState.EMPTY)
            self._effects.append(events.StoreGroup(self._value({})))
            return
        self.protocol = protocol = self.members.elect_protocol()
        self._subscriptions = tuple(member.metadata(protocol) for member in self.members)
        self._move(GroupState.COMPLETING_REBALANCE)
        self._sync_until_ms = now_ms + self.members.longest_rebalance_timeout_ms()
        for member in self.members:
            if member.awaiting_join is not None:
                self._effects.append(self._joined(member, member.awaiting_join))
                member.awaiting_join = None
            member.is_new = False
            member.renew_session(now_ms)
        self._must_sync = {member.member_id for member in self.members}

    def _elect_leader(self) -> bool:
        """Let a member lead that has joined, the former leader if possible; return False if none has."""
        if not self.members:
            return True
        joined = [member.member_id for member in self.members if member.awaiting_join is not None]
        if self.leader not in joined and joined:
            self.leader = joined[0]
        return bool(joined)

    def _joined(self, member: Member, request: Any, *, is_unchanged: bool = False) -> events.Joined:
        """Return the response for a member of the generation; ``is_unchanged``: the leader assigns
        nothing.
        """
        assert self.protocol is not None
        assert self.leader is not None
        leads = member.member_id == self.leader
        members: tuple[tuple[str, str | None, bytes], ...] = ()
        if leads:
            members = tuple(
                (other.member_id, other.group_instance_id, other.metadata(self.protocol))
                for other in self.members
            )
        return events.Joined(
            request,
            ErrorCode.NONE,
            member.member_id,
            generation=self.generation,
            protocol_type=self.protocol_type,
            protocol=self.protocol,
            leader=self.leader,
            members=members,
            skip_assignment=is_unchanged and leads,
        )

    # --- the assignment -------------------------------------------------------------------------------------

    def _sync(self, event: events.Sync, now_ms: int) -> None:
        error = self._sync_error(event)
        if error is not ErrorCode.NONE:
            self._effects.append(events.Synced(event.request, error))
            return
        member = self.members[event.member_id]
        self._must_sync.discard(member.member_id)
        if self.state is GroupState.STABLE:
            self._effects.append(self._synced(member, event.request))
            member.renew_session(now_ms)
            return
        if member.awaiting_sync is not None:
            # As with joins: this response is no longer awaited.
            self._effects.append(events.Synced(member.awaiting_sync, ErrorCode.REBALANCE_IN_PROGRESS))
        member.awaiting_sync = event.request
        if member.member_id == self.leader:
            self._effects.append(events.StoreGroup(self._value(event.assignments)))

    def _sync_error(self, event: events.Sync) -> ErrorCode:
        if self.state in {GroupState.DEAD, GroupState.EMPTY}:
            return ErrorCode.UNKNOWN_MEMBER_ID
        error = self._check_member(event.member_id, event.group_instance_id, event.generation)
        if error is not ErrorCode.NONE:
            return error
        for named, own in ((event.protocol_type, self.protocol_type), (event.protocol, self.protocol)):
            if named is not None and named != own:
                return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        preparing = self.state is GroupState.PREPARING_REBALANCE
        return ErrorCode.REBALANCE_IN_PROGRESS if preparing else ErrorCode.NONE

    def _synced(self, member: Member, request: Any) -> events.Synced:
        return events.Synced(request, ErrorCode.NONE, member.assignment, self.protocol_type, self.protocol)

    def _stored(self, store: events.StoreGroup, error: ErrorCode, now_ms: int) -> None:
        if store.value.generation != self.generation:
            return  # another rebalance has started meanwhile
        if store.replacement is not None:
            self._replaced(store.replacement, error, now_ms)
            return
        if self.state is not GroupState.COMPLETING_REBALANCE:
            return
        if error is not ErrorCode.NONE:
            self._answer_syncs(error, now_ms)
            self._prepare_rebalance(now_ms, f"failed to store the assignment: {error.name}")
            return
        for stored in store.value.members:
            self.members.assign(self.members[stored.member_id], stored.assignment)
        self._move(GroupState.STABLE)
        self._answer_syncs(ErrorCode.NONE, now_ms)

    def _answer_syncs(self, error: ErrorCode, now_ms: int) -> None:
        """Respond to all members that wait for their assignment; after an error no member has one."""
        for member in self.members:
            if error is not ErrorCode.NONE:
                self.members.assign(member, b"")
            if member.awaiting_sync is not None:
                answer = (
                    self._synced(member, member.awaiting_sync)
                    if error is ErrorCode.NONE
                    else events.Synced(member.awaiting_sync, error)
                )
                self._effects.append(answer)
                member.awaiting_sync = None
                # It could not send heartbeats while it waited for the response.
                member.renew_session(now_ms)

    def _value(self, assignments: Mapping[str, bytes]) -> GroupMetadataValue:
        """Return the generation to store; members not in ``assignments`` get an empty assignment."""
        return GroupMetadataValue(
            protocol_type=self.protocol_type or "",
            generation=self.generation,
            protocol=self.protocol,
            leader=self.leader,
            state_timestamp_ms=UNKNOWN_MS,
            members=tuple(
                member.stored_value(self.protocol, assignments.get(member.member_id, b""))
                for member in self.members
            ),
        )

    # --- heartbeats and leaving -----------------------------------------------------------------------------

    def _heartbeat(self, event: events.Heartbeat, now_ms: int) -> ErrorCode:
        if self.state in {GroupState.DEAD, GroupState.EMPTY}:
            return ErrorCode.UNKNOWN_MEMBER_ID
        error = self._check_member(event.member_id, event.group_instance_id, event.generation)
        if error is not ErrorCode.NONE:
            return error
        self.members[event.member_id].renew_session(now_ms)
        preparing = self.state is GroupState.PREPARING_REBALANCE
        return ErrorCode.REBALANCE_IN_PROGRESS if preparing else ErrorCode.NONE

    def _check_member(self, member_id: str, group_instance_id: str | None, generation: int) -> ErrorCode:
        """Return NONE if a request comes from a member of this generation, otherwise the error."""
        error = self.members.check(member_id, group_instance_id)
        if error is ErrorCode.NONE and generation != self.generation:
            return ErrorCode.ILLEGAL_GENERATION
        return error

    def _leave(self, identity: events.MemberIdentity, now_ms: int) -> ErrorCode:
        member_id, instance_id = identity.member_id, identity.group_instance_id
        if self.members.remove_pending(member_id):
            return ErrorCode.NONE
        if not member_id and (static := self.members.static(instance_id)) is not None:
            member_id = static.member_id
        error = self.members.check(member_id, instance_id)
        if error is ErrorCode.NONE:
            self._remove(self.members[member_id], now_ms, "leaves", identity.reason)
        return error

    def _expire(self, now_ms: int) -> None:
        for member_id in [one for one, until_ms in self.members.pending.items() if until_ms <= now_ms]:
            self.members.remove_pending(member_id)
        for member in [member for member in self.members if member.has_expired(now_ms)]:
            self._remove(member, now_ms, "has expired")
        if now_ms >= self._sync_until_ms:
            for member_id in sorted(self._must_sync):
                self._remove(self.members[member_id], now_ms, "has not requested its assignment")

    def _remove(self, member: Member, now_ms: int, why: str, client_reason: str = "") -> None:
        """Remove a member and start a rebalance."""
        self._forget(member)
        self._refuse(member, "", ErrorCode.UNKNOWN_MEMBER_ID)
        self._prepare_rebalance(now_ms, f"member {member.member_id} {why}", client_reason)

    def _refuse(self, member: Member, member_id: str, error: ErrorCode) -> None:
        """Respond to the member's requests that wait, with ``member_id`` to its join."""
        if member.awaiting_join is not None:
            self._effects.append(events.Joined(member.awaiting_join, error, member_id))
            member.awaiting_join = None
        if member.awaiting_sync is not None:
            self._effects.append(events.Synced(member.awaiting_sync, error))
            member.awaiting_sync = None

    def _forget(self, member: Member) -> None:
        self.members.remove(member)
        self._must_sync.discard(member.member_id)
        if member.member_id == self.leader:
            self.leader = next((other.member_id for other in self.members), None)

    def _unload(self) -> None:
        for member in self.members:
            self._refuse(member, member.member_id, ErrorCode.NOT_COORDINATOR_FOR_GROUP)
        self.members.clear()
        self._move(GroupState.DEAD)

    def _move(self, to: GroupState) -> None:
        if self.state not in VALID_PREDECESSORS[to]:
            raise AssertionError(f"group {self.group_id} cannot go from {self.state.value} to {to.value}")
        self.state = to
