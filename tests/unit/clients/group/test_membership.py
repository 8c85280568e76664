"""``clients/group/membership``: the effects of each event, without a network."""

from __future__ import annotations

from dataclasses import replace

import pytest

from minikafka.base.errors import BrokerError, ErrorCode
from minikafka.clients.group.config import GroupConsumerConfig
from minikafka.clients.group.membership import (
    AssignmentComputed,
    CommitRejected,
    ComputeAssignment,
    Effect,
    Event,
    ForgetCoordinator,
    HeartbeatCompleted,
    JoinCompleted,
    Leaving,
    Membership,
    MemberState,
    Polled,
    PrepareRejoin,
    RaiseError,
    RequestFailed,
    Revoke,
    Revoked,
    SendHeartbeat,
    SendJoinGroup,
    SendLeaveGroup,
    SendSyncGroup,
    StartReading,
    SubscriptionChanged,
    SyncCompleted,
    Ticked,
)
from minikafka.wire.apis.offset_commit import NO_GENERATION

CONFIG = GroupConsumerConfig(
    "g",
    session_timeout_ms=10_000,
    heartbeat_interval_ms=3_000,
    max_poll_interval_ms=60_000,
    retry_backoff_ms=100,
)
ME, LEADER = "me", "other"
ASKS_ELSEWHERE = [ErrorCode.NOT_COORDINATOR_FOR_GROUP, ErrorCode.GROUP_COORDINATOR_NOT_AVAILABLE]


class MembershipHarness:
    """A member with a manual clock."""

    def __init__(self, config: GroupConsumerConfig = CONFIG) -> None:
        self.membership = Membership(config)
        self.now_ms = 0

    def on(self, event: Event, after_ms: int = 0) -> list[Effect]:
        self.now_ms += after_ms
        return self.membership.step(event, self.now_ms)

    def joined(
        self, generation: int = 1, code: ErrorCode = ErrorCode.NONE, leader: str = LEADER
    ) -> list[Effect]:
        return self.on(
            JoinCompleted(code, generation, "range", leader, ME, ((ME, None, b"s"),) if leader == ME else ())
        )

    def become_member(self, generation: int = 1) -> None:
        assert self.on(Polled()) == [SendJoinGroup(self.membership.member_id)]
        assert self.joined(generation) == [SendSyncGroup(generation, ME, "range", ())]
        assert self.on(SyncCompleted(ErrorCode.NONE, b"a")) == [StartReading(b"a")]

    @property
    def state(self) -> MemberState:
        return self.membership.state


@pytest.fixture
def harness() -> MembershipHarness:
    return MembershipHarness()


@pytest.fixture
def member() -> MembershipHarness:
    harness = MembershipHarness()
    harness.become_member()
    return harness


# Joining.


def test_the_first_poll_joins_and_a_follower_only_asks_for_its_share(harness: MembershipHarness) -> None:
    assert harness.on(Polled()) == [SendJoinGroup("")]
    assert harness.joined() == [SendSyncGroup(1, ME, "range", ())]
    assert harness.on(SyncCompleted(ErrorCode.NONE, b"a")) == [StartReading(b"a")]
    assert (harness.state, harness.membership.generation, harness.membership.member_id) == (
        MemberState.STABLE,
        1,
        ME,
    )


def test_the_leader_shares_before_it_syncs(harness: MembershipHarness) -> None:
    harness.on(Polled())
    assert harness.joined(leader=ME) == [ComputeAssignment("range", ((ME, None, b"s"),))]
    assert harness.on(AssignmentComputed(((ME, b"all"),))) == [SendSyncGroup(1, ME, "range", ((ME, b"all"),))]


def test_polls_while_it_joins_ask_nothing_again(harness: MembershipHarness) -> None:
    harness.on(Polled())
    assert harness.on(Polled()) == []
    harness.joined()
    assert harness.on(Polled()) == []


@pytest.mark.parametrize("code", ASKS_ELSEWHERE)
def test_a_coordinator_that_is_none_is_looked_for_after_a_pause(
    harness: MembershipHarness, code: ErrorCode
) -> None:
    harness.on(Polled())
    assert harness.joined(code=code) == [ForgetCoordinator()]
    assert harness.on(Polled()) == []
    assert harness.membership.pause_ms(harness.now_ms) == 100
    assert harness.on(Polled(), after_ms=100) == [SendJoinGroup("")]


def test_a_group_that_is_being_loaded_is_asked_again_where_it_is(harness: MembershipHarness) -> None:
    harness.on(Polled())
    assert harness.joined(code=ErrorCode.GROUP_LOAD_IN_PROGRESS) == []
    assert harness.on(Polled(), after_ms=100) == [SendJoinGroup("")]


def test_pauses_between_attempts_grow_and_begin_anew_after_success(harness: MembershipHarness) -> None:
    pauses = []
    for _ in range(6):
        harness.on(Polled(), after_ms=harness.membership.pause_ms(harness.now_ms))
        harness.on(RequestFailed())
        pauses.append(harness.membership.pause_ms(harness.now_ms))
    assert pauses == [100, 200, 400, 800, 1_000, 1_000]
    harness.now_ms += 1_000
    harness.become_member()
    harness.on(SubscriptionChanged())
    harness.on(Polled())
    harness.on(Revoked())
    harness.on(RequestFailed())
    assert harness.membership.pause_ms(harness.now_ms) == 100


@pytest.mark.parametrize(
    ("code", "as_whom"), [(ErrorCode.UNKNOWN_MEMBER_ID, ""), (ErrorCode.ILLEGAL_GENERATION, ME)]
)
def test_unknown_member_joins_as_new_and_old_generation_keeps_its_id(
    harness: MembershipHarness, code: ErrorCode, as_whom: str
) -> None:
    harness.on(Polled())
    harness.joined()
    assert harness.on(SyncCompleted(code)) == []
    assert harness.on(Polled()) == [SendJoinGroup(as_whom)]


def test_a_rebalance_during_the_sync_joins_again_at_once(harness: MembershipHarness) -> None:
    harness.on(Polled())
    harness.joined()
    assert harness.on(SyncCompleted(ErrorCode.REBALANCE_IN_PROGRESS)) == []
    assert harness.on(Polled()) == [SendJoinGroup(ME)]


@pytest.mark.parametrize(
    ("code", "hint"),
    [
        (ErrorCode.INVALID_SESSION_TIMEOUT, r"session\.timeout\.ms=10000 is not between .*group\.min"),
        (ErrorCode.INCONSISTENT_GROUP_PROTOCOL, r"no partition\.assignment\.strategy of range"),
        (ErrorCode.GROUP_AUTHORIZATION_FAILED, "cannot join group 'g'"),
    ],
)
def test_what_will_not_pass_is_told_with_what_to_do(
    harness: MembershipHarness, code: ErrorCode, hint: str
) -> None:
    harness.on(Polled())
    (effect,) = harness.joined(code=code)
    assert isinstance(effect, RaiseError)
    assert effect.error.code is code
    with pytest.raises(BrokerError, match=hint):
        raise effect.error


def test_answers_that_come_too_late_change_nothing(member: MembershipHarness) -> None:
    assert member.joined(generation=9) == []
    assert member.on(SyncCompleted(ErrorCode.NONE, b"old")) == []
    assert member.on(RequestFailed()) == []
    assert member.on(Revoked()) == []
    assert member.membership.generation == 1


# Heartbeats and time.


def test_heartbeats_leave_every_interval_one_at_a_time(member: MembershipHarness) -> None:
    assert member.on(Ticked(), after_ms=2_999) == []
    assert member.on(Ticked(), after_ms=1) == [SendHeartbeat(1, ME)]
    assert member.on(Ticked(), after_ms=4_000) == []
    assert member.on(HeartbeatCompleted(1, ErrorCode.NONE)) == []
    assert member.on(Ticked()) == [SendHeartbeat(1, ME)]


def test_only_joined_members_send_heartbeats(harness: MembershipHarness) -> None:
    assert harness.on(Ticked(), after_ms=60_000) == []
    harness.on(Polled())
    assert harness.on(Ticked(), after_ms=60_000) == []


def test_it_says_how_long_it_has_nothing_to_do(member: MembershipHarness) -> None:
    idle_ms = member.membership.idle_ms
    assert idle_ms(member.now_ms) == 3_000
    assert idle_ms(member.now_ms + 2_000) == 1_000
    assert idle_ms(member.now_ms + 9_000) == 0


@pytest.mark.parametrize("code", [None, *ASKS_ELSEWHERE])
def test_heartbeat_without_coordinator_is_resent_to_the_new_one(
    member: MembershipHarness, code: ErrorCode | None
) -> None:
    member.on(Ticked(), after_ms=3_000)
    assert member.on(HeartbeatCompleted(1, code)) == [ForgetCoordinator()]
    assert member.on(Ticked(), after_ms=99) == []
    assert member.on(Ticked(), after_ms=1) == [SendHeartbeat(1, ME)]
    assert member.state is MemberState.STABLE


def test_coordinator_is_looked_up_again_after_a_silent_session(member: MembershipHarness) -> None:
    assert member.on(Ticked(), after_ms=9_999) == [SendHeartbeat(1, ME)]
    assert member.on(Ticked(), after_ms=1) == [ForgetCoordinator()]


def test_heartbeats_go_on_while_partitions_are_given_up(member: MembershipHarness) -> None:
    member.on(SubscriptionChanged())
    assert member.on(Polled()) == [Revoke(lost=False)]
    assert member.on(Ticked(), after_ms=3_000) == [SendHeartbeat(1, ME)]


def test_who_does_not_poll_leaves_and_joins_as_a_new_member(member: MembershipHarness) -> None:
    for _ in range(19):
        member.on(Ticked(), after_ms=3_000)
        member.on(HeartbeatCompleted(1, ErrorCode.NONE))
    effects = member.on(Ticked(), after_ms=3_000)
    why = "no poll for max.poll.interval.ms=60000; poll more often, or raise it"
    assert effects == [SendLeaveGroup(ME, why)]
    assert member.membership.generation == NO_GENERATION
    assert member.on(Polled()) == [Revoke(lost=True)]
    assert member.on(Revoked()) == [SendJoinGroup("")]


# Rebalances.


def test_rebalance_revokes_at_the_next_poll_and_keeps_the_member_id(member: MembershipHarness) -> None:
    assert member.on(HeartbeatCompleted(1, ErrorCode.REBALANCE_IN_PROGRESS)) == []
    assert member.membership.must_rejoin
    assert member.on(Polled()) == [Revoke(lost=False)]
    assert member.membership.generation == 1
    assert member.on(Revoked()) == [SendJoinGroup(ME)]


@pytest.mark.parametrize(
    ("code", "as_whom"), [(ErrorCode.UNKNOWN_MEMBER_ID, ""), (ErrorCode.ILLEGAL_GENERATION, ME)]
)
@pytest.mark.parametrize("event", [HeartbeatCompleted, CommitRejected])
def test_partitions_of_whom_the_coordinator_does_not_know_are_lost(
    member: MembershipHarness, event: type[HeartbeatCompleted | CommitRejected], code: ErrorCode, as_whom: str
) -> None:
    assert member.on(event(1, code)) == []
    assert member.membership.generation == NO_GENERATION
    assert member.on(Ticked(), after_ms=3_000) == []
    assert member.on(Polled()) == [Revoke(lost=True)]
    assert member.on(Revoked()) == [SendJoinGroup(as_whom)]


def test_errors_for_an_older_generation_are_ignored(member: MembershipHarness) -> None:
    member.on(SubscriptionChanged())
    member.on(Polled())
    member.on(Revoked())
    member.joined(generation=2)
    member.on(SyncCompleted(ErrorCode.NONE, b"b"))
    for event in (
        HeartbeatCompleted(1, ErrorCode.ILLEGAL_GENERATION),
        CommitRejected(1, ErrorCode.UNKNOWN_MEMBER_ID),
    ):
        assert member.on(event) == []
    assert member.membership.generation == 2
    assert not member.membership.must_rejoin


def test_a_heartbeat_that_is_answered_after_a_new_join_changes_nothing(member: MembershipHarness) -> None:
    member.on(Ticked(), after_ms=3_000)
    member.on(SubscriptionChanged())
    member.on(Polled())
    member.on(Revoked())
    assert member.on(HeartbeatCompleted(1, None)) == []
    assert member.on(HeartbeatCompleted(1, ErrorCode.UNKNOWN_MEMBER_ID)) == []
    assert member.state is MemberState.JOINING


def test_rejected_offset_in_a_commit_does_not_change_the_member(member: MembershipHarness) -> None:
    assert member.on(CommitRejected(1, ErrorCode.GROUP_LOAD_IN_PROGRESS)) == []
    assert member.on(CommitRejected(1, ErrorCode.OFFSET_METADATA_TOO_LARGE)) == []
    assert member.on(CommitRejected(1, ErrorCode.NOT_COORDINATOR_FOR_GROUP)) == [ForgetCoordinator()]
    assert not member.membership.must_rejoin


def test_a_change_while_it_joins_is_joined_for_once_more(harness: MembershipHarness) -> None:
    harness.on(Polled())
    harness.on(SubscriptionChanged())
    harness.joined()
    harness.on(SyncCompleted(ErrorCode.NONE, b"a"))
    assert harness.on(Polled()) == [Revoke(lost=False)]


def test_a_listener_that_failed_does_not_keep_its_partitions(member: MembershipHarness) -> None:
    member.on(SubscriptionChanged())
    assert member.on(Polled()) == [Revoke(lost=False)]
    # No Revoked came.
    assert member.on(Polled()) == [SendJoinGroup(ME)]


# Leaving.


def test_leaving_revokes_first_and_commits_as_a_member(member: MembershipHarness) -> None:
    assert member.on(Leaving()) == [Revoke(lost=False)]
    assert member.membership.generation == 1
    assert member.on(Revoked()) == [SendLeaveGroup(ME)]
    assert member.state is MemberState.CLOSED


def test_nothing_happens_after_the_end(member: MembershipHarness) -> None:
    member.on(Leaving())
    member.on(Revoked())
    for event in (
        Polled(),
        Ticked(),
        SubscriptionChanged(),
        Leaving(),
        Revoked(),
        HeartbeatCompleted(1, ErrorCode.NONE),
    ):
        assert member.on(event, after_ms=100_000) == []


def test_who_leaves_for_a_while_can_join_again(member: MembershipHarness) -> None:
    member.on(Leaving(for_good=False))
    assert member.on(Revoked()) == [SendLeaveGroup(ME)]
    assert member.on(Polled()) == [SendJoinGroup("")]


def test_who_was_never_in_leaves_without_a_word(harness: MembershipHarness) -> None:
    assert harness.on(Leaving()) == []
    assert harness.state is MemberState.CLOSED


def test_who_leaves_on_the_way_says_so_as_far_as_it_has_a_name(harness: MembershipHarness) -> None:
    harness.on(Polled())
    harness.joined()
    assert harness.on(Leaving()) == [SendLeaveGroup(ME)]


# Ids, static members, cooperative rebalances.


def test_a_member_that_needs_an_id_joins_again_with_it_at_once(harness: MembershipHarness) -> None:
    harness.on(Polled())
    assert harness.joined(code=ErrorCode.MEMBER_ID_REQUIRED) == [SendJoinGroup(ME)]
    assert harness.joined() == [SendSyncGroup(1, ME, "range", ())]


def test_a_leader_that_is_to_skip_the_assignment_computes_none(harness: MembershipHarness) -> None:
    harness.on(Polled())
    event = JoinCompleted(ErrorCode.NONE, 4, "range", ME, ME, ((ME, "one", b"s"),), skip_assignment=True)
    assert harness.on(event) == [SendSyncGroup(4, ME, "range", ())]


def test_a_fenced_member_says_so_and_keeps_its_old_id(member: MembershipHarness) -> None:
    (effect,) = member.on(HeartbeatCompleted(1, ErrorCode.FENCED_INSTANCE_ID))
    assert isinstance(effect, RaiseError)
    assert effect.error.code is ErrorCode.FENCED_INSTANCE_ID
    assert "group.instance.id" in str(effect.error)
    assert member.on(Polled()) == [Revoke(lost=True)]
    assert member.on(Revoked()) == [SendJoinGroup(ME)]
    (effect,) = member.joined(code=ErrorCode.FENCED_INSTANCE_ID)
    assert isinstance(effect, RaiseError)
    assert member.on(Polled()) == [SendJoinGroup(ME)]


def test_a_group_that_is_full_is_told_with_its_limit(harness: MembershipHarness) -> None:
    harness.on(Polled())
    (effect,) = harness.joined(code=ErrorCode.GROUP_MAX_SIZE_REACHED)
    assert isinstance(effect, RaiseError)
    assert "group.max.size" in str(effect.error)


@pytest.fixture
def cooperative() -> MembershipHarness:
    harness = MembershipHarness(replace(CONFIG, assignors=("cooperative-sticky",)))
    harness.become_member()
    return harness


def let_rejoin(cooperative: MembershipHarness) -> None:
    """Let a member send JoinGroup again; its response is awaited."""
    cooperative.on(SubscriptionChanged())
    cooperative.on(Polled())
    cooperative.on(Revoked())


def test_cooperative_member_keeps_its_partitions_while_it_rejoins(cooperative: MembershipHarness) -> None:
    cooperative.on(HeartbeatCompleted(1, ErrorCode.REBALANCE_IN_PROGRESS))
    assert cooperative.on(Polled()) == [PrepareRejoin()]
    assert cooperative.on(Revoked()) == [SendJoinGroup(ME)]
    assert cooperative.membership.keeps_partitions
    assert not cooperative.membership.in_group
    cooperative.joined(2)
    assert cooperative.on(SyncCompleted(ErrorCode.NONE, b"b")) == [StartReading(b"b")]


@pytest.mark.parametrize("code", [ErrorCode.REBALANCE_IN_PROGRESS, *ASKS_ELSEWHERE])
def test_cooperative_member_keeps_them_when_an_attempt_fails(
    cooperative: MembershipHarness, code: ErrorCode
) -> None:
    let_rejoin(cooperative)
    cooperative.joined(code=code)
    assert cooperative.membership.keeps_partitions
    assert cooperative.on(Polled(), after_ms=1_000) == [SendJoinGroup(ME)]


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION])
def test_cooperative_member_loses_them_with_its_place(
    cooperative: MembershipHarness, code: ErrorCode
) -> None:
    let_rejoin(cooperative)
    cooperative.joined(code=code)
    assert not cooperative.membership.keeps_partitions
    assert cooperative.on(Polled()) == [Revoke(lost=True)]


def test_commit_before_a_rejoin_that_is_refused_loses_the_partitions(cooperative: MembershipHarness) -> None:
    cooperative.on(SubscriptionChanged())
    assert cooperative.on(Polled()) == [PrepareRejoin()]
    cooperative.on(CommitRejected(1, ErrorCode.UNKNOWN_MEMBER_ID))
    assert cooperative.on(Revoked()) == [Revoke(lost=True)]
    assert cooperative.on(Revoked()) == [SendJoinGroup("")]


def test_cooperative_member_that_leaves_while_it_joins_commits_nothing(
    cooperative: MembershipHarness,
) -> None:
    let_rejoin(cooperative)
    assert cooperative.on(Leaving()) == [Revoke(lost=True)]
    assert cooperative.on(Revoked()) == [SendLeaveGroup(ME)]
