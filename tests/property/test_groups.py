"""A group in random sequences of events: members that join, leave, are silent or repeat requests, static
members that come back, ids that are told first, failing storage.

What must hold: generations only grow, and a leader is a member; nobody is answered twice (the conversation
sees to it), and everybody once time passes; a deadline that has come is not a deadline any more; a share is
given to members of the generation that it was made for.
"""

from __future__ import annotations

from hypothesis import settings, strategies
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, rule

from minikafka.base.errors import ErrorCode
from minikafka.groups.group import NEW_MEMBER_JOIN_TIMEOUT_MS, NO_LIMIT
from minikafka.groups.members import GROUP_BYTES, PENDING_MEMBER_BYTES
from minikafka.groups.states import GroupState
from tests.support.group_harness import Conversation, Member, Request

PROTOCOLS = strategies.sampled_from([("range",), ("range", "sticky"), ("sticky", "range"), ("sticky",)])
TIMES_MS = strategies.sampled_from([1, 500, 3_000, 10_000, 60_000])
LONGEST_MS = NEW_MEMBER_JOIN_TIMEOUT_MS + 200_000


class GroupMachine(RuleBasedStateMachine):
    """A group, and all requests that were ever sent to it."""

    people = Bundle("people")

    def __init__(self) -> None:
        super().__init__()
        self.joins: list[tuple[Member, Request]] = []
        self.syncs: list[tuple[int, Request]] = []
        self.generation = 0

    @initialize(delay_ms=strategies.sampled_from([0, 3_000]), max_size=strategies.sampled_from([3, NO_LIMIT]))
    def begin(self, delay_ms: int, max_size: int) -> None:
        self.talk = Conversation(delay_ms=delay_ms, max_size=max_size)
        self.max_size = max_size
        self.talk.holds_stores = True

    @rule(target=people, protocols=PROTOCOLS)
    def a_member_joins(self, protocols: tuple[str, ...]) -> Member:
        member = self.talk.member(f"m{len(self.joins)}", *protocols)
        self.join(member, 60_000)
        return member

    @rule(target=people, name=strategies.sampled_from(["one", "two"]), protocols=PROTOCOLS)
    def a_static_member_joins(self, name: str, protocols: tuple[str, ...]) -> Member:
        member = self.talk.static(name, *protocols)
        self.join(member, 60_000)
        return member

    @rule(target=people, protocols=PROTOCOLS)
    def a_member_is_told_its_id(self, protocols: tuple[str, ...]) -> Member:
        member = self.talk.member(f"m{len(self.joins)}", *protocols)
        request = self.talk.join(member, requires_member_id=True)
        self.joins.append((member, request))
        if request.answer.error is ErrorCode.MEMBER_ID_REQUIRED:
            member.member_id = request.answer.member_id
        return member

    @rule(member=people, rebalance_ms=TIMES_MS)
    def join(self, member: Member, rebalance_ms: int) -> None:
        self.joins.append((member, self.talk.join(member, rebalance_ms=rebalance_ms)))

    @rule(member=people, protocols=PROTOCOLS)
    def change(self, member: Member, protocols: tuple[str, ...]) -> None:
        member.protocols = tuple((name, b"changed") for name in protocols)
        self.join(member, 60_000)

    @rule(member=people, with_assignment=strategies.booleans())
    def sync(self, member: Member, with_assignment: bool) -> None:
        share = b"of %d" % member.generation
        named = {other.member_id: share for other, _ in self.joins if other.member_id}
        self.syncs.append((member.generation, self.talk.sync(member, named if with_assignment else {})))

    @rule(member=people)
    def heartbeat(self, member: Member) -> None:
        self.talk.heartbeat(member)

    @rule(member=people)
    def commit(self, member: Member) -> None:
        self.talk.commit(member)

    @rule(member=people)
    def leave(self, member: Member) -> None:
        self.talk.leave(member)

    @rule(error=strategies.sampled_from([ErrorCode.NONE, ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS]))
    def store(self, error: ErrorCode) -> None:
        self.talk.store(error)

    @rule(milliseconds=TIMES_MS)
    def time_passes(self, milliseconds: int) -> None:
        self.talk.wait(milliseconds)
        deadline_ms = self.talk.group.next_deadline_ms()
        assert deadline_ms is None or deadline_ms > self.talk.now_ms

    @rule()
    def all_who_know_the_group_come_together(self) -> None:
        known = {member.member_id: member for member, _ in self.joins if member.member_id}
        here = [known[row.member_id] for row in self.talk.group.describe().members if row.member_id in known]
        for member in here:
            self.join(member, 60_000)
        self.members_hear_their_answers()
        for member in here:
            self.sync(member, member.member_id == self.talk.group.leader)

    @invariant()
    def members_hear_their_answers(self) -> None:
        for member, request in self.joins:
            joined = request.answer
            if joined is not None and not joined.error and joined.generation > member.generation:
                self.talk.hear(member, request)

    @invariant()
    def generations_only_grow(self) -> None:
        group = self.talk.group
        assert group.generation >= self.generation
        self.generation = group.generation

    @invariant()
    def the_leader_is_a_member_and_the_protocol_is_everybodys(self) -> None:
        group = self.talk.group
        members = {member.member_id for member in group.describe().members}
        assert (group.leader in members) if members else (group.leader is None)
        if group.state in {GroupState.STABLE, GroupState.COMPLETING_REBALANCE}:
            assert group.protocol
            assert members
        if group.state is GroupState.EMPTY:
            assert not members

    @invariant()
    def an_instance_id_has_one_member_and_the_group_its_size(self) -> None:
        members = self.talk.group.describe().members
        names = [member.group_instance_id for member in members if member.group_instance_id]
        assert len(names) == len(set(names))
        joined = [member for member in self.talk.group.members if member.awaiting_join is not None]
        assert len(joined) <= self.max_size
        counted = GROUP_BYTES + sum(member.memory_bytes for member in self.talk.group.members)
        pending = sum(PENDING_MEMBER_BYTES + len(one) for one in self.talk.group.members.pending)
        assert self.talk.group.memory_bytes == counted + pending

    @invariant()
    def a_share_is_of_the_generation_that_asked_for_it(self) -> None:
        for generation, request in self.syncs:
            if request.answer is not None and request.answer.error is ErrorCode.NONE:
                assert request.answer.assignment in {b"", b"of %d" % generation}

    def teardown(self) -> None:
        # Storage works again, and nobody says anything more: all are answered, and then forgotten.
        self.talk.holds_stores = False
        self.talk.store()
        self.talk.wait(3 * LONGEST_MS)
        assert self.talk.group.state is GroupState.EMPTY
        assert all(request.answer is not None for _, request in self.joins)
        assert all(request.answer is not None for _, request in self.syncs)


TestGroup = GroupMachine.TestCase
TestGroup.settings = settings(stateful_step_count=40)
