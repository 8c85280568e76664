"""A generation as its members see it: the behaviours of Kafka's coordinator, one by one."""

from dataclasses import replace

import pytest

from minikafka.base.errors import ErrorCode
from minikafka.groups.states import VALID_PREDECESSORS, GroupState
from tests.support.group_harness import SESSION_MS, Conversation, Member, errors

EMPTY, PREPARING, COMPLETING, STABLE, DEAD = GroupState


# --- the assignment -----------------------------------------------------------------------------------------


@pytest.fixture
def talk() -> Conversation:
    return Conversation()


def test_a_follower_waits_for_the_leader(talk: Conversation) -> None:
    alice, bob = talk.joined("alice", "bob")
    waiting = talk.sync(bob)
    assert errors([waiting]) == ["waits"]
    leading = talk.sync(alice, {alice.member_id: b"0", bob.member_id: b"1"})
    assert (leading.answer.assignment, waiting.answer.assignment) == (b"0", b"1")
    assert talk.group.state is STABLE


def test_a_follower_that_comes_after_the_leader_gets_its_share_at_once(talk: Conversation) -> None:
    alice, bob = talk.joined("alice", "bob")
    talk.sync(alice, {bob.member_id: b"1"})
    assert talk.sync(bob).answer.assignment == b"1"


def test_whom_the_leader_does_not_name_gets_nothing(talk: Conversation) -> None:
    (alice,) = talk.joined("alice")
    synced = talk.sync(alice, {"nobody": b"1"}).answer
    assert (synced.error, synced.assignment) == (ErrorCode.NONE, b"")


def test_the_assignment_of_an_unknown_member_is_refused(talk: Conversation) -> None:
    talk.stable("alice")
    assert errors([talk.sync(Member("x", (), "x-1", 1))]) == ["UNKNOWN_MEMBER_ID"]


def test_the_assignment_of_another_generation_is_refused(talk: Conversation) -> None:
    (alice,) = talk.stable("alice")
    assert errors([talk.sync(alice, generation=alice.generation + 1)]) == ["ILLEGAL_GENERATION"]


def test_sync_while_a_rebalance_is_prepared_is_refused(talk: Conversation) -> None:
    alice, bob = talk.stable("alice", "bob")
    talk.join(alice)
    assert errors([talk.sync(bob)]) == ["REBALANCE_IN_PROGRESS"]


def test_nobody_gets_an_assignment_before_it_is_stored(talk: Conversation) -> None:
    alice, bob = talk.joined("alice", "bob")
    talk.holds_stores = True
    requests = [talk.sync(bob), talk.sync(alice, {bob.member_id: b"1"})]
    assert errors(requests) == ["waits", "waits"]
    talk.store()
    assert errors(requests) == ["NONE", "NONE"]
    (stored,) = [value for value in talk.stored if value.members]
    assert [(member.member_id, member.assignment) for member in stored.members] == [
        (alice.member_id, b""),
        (bob.member_id, b"1"),
    ]


def test_an_assignment_that_cannot_be_stored_makes_a_rebalance(talk: Conversation) -> None:
    alice, bob = talk.joined("alice", "bob")
    talk.holds_stores = True
    requests = [talk.sync(bob), talk.sync(alice)]
    talk.store(ErrorCode.NOT_COORDINATOR_FOR_GROUP)
    assert errors(requests) == ["NOT_COORDINATOR_FOR_GROUP"] * 2
    assert talk.group.state is PREPARING


def test_an_assignment_that_is_stored_too_late_changes_nothing(talk: Conversation) -> None:
    alice, _ = talk.joined("alice", "bob")
    talk.holds_stores = True
    late = talk.sync(alice, {alice.member_id: b"old"})
    talk.join(talk.member("carol"))
    assert errors([late]) == ["REBALANCE_IN_PROGRESS"]
    talk.store()
    assert talk.group.state is PREPARING


def test_the_assignment_of_one_generation_is_not_that_of_the_next(talk: Conversation) -> None:
    alice, bob = talk.member("alice"), talk.member("bob")
    talk.together(alice)
    talk.holds_stores = True
    talk.sync(alice, {alice.member_id: b"old"})
    talk.rejoin(bob, alice)
    waiting = talk.sync(alice, {alice.member_id: b"new"})
    old, new = talk.to_store
    talk.to_store = [old]
    talk.store()
    assert errors([waiting]) == ["waits"]
    talk.to_store = [new]
    talk.store()
    assert waiting.answer.assignment == b"new"


def test_a_leader_that_dies_before_it_has_assigned_makes_a_rebalance(talk: Conversation) -> None:
    _, bob = talk.joined("alice", "bob")
    waiting = talk.sync(bob)
    talk.wait(SESSION_MS)
    assert errors([waiting]) == ["REBALANCE_IN_PROGRESS"]
    (joined,) = talk.rejoin(bob)
    assert (joined.leader, joined.members) == (bob.member_id, ((bob.member_id, None, b"bob"),))


def test_member_awaiting_its_assignment_does_not_expire(talk: Conversation) -> None:
    leader, bob = talk.member("leader"), talk.member("bob")
    talk.hear(leader, talk.join(leader, session_ms=300_000))
    bobs = talk.join(bob)
    talk.hear(leader, talk.join(leader, session_ms=300_000))
    talk.hear(bob, bobs)
    waiting = talk.sync(bob)
    talk.wait(3 * SESSION_MS)
    talk.sync(leader, {bob.member_id: b"1"})
    assert waiting.answer.assignment == b"1"
    talk.wait(SESSION_MS - 1)
    assert talk.heartbeat(bob) is ErrorCode.NONE


# --- staying alive ------------------------------------------------------------------------------------------


def test_a_heartbeat_keeps_a_member(talk: Conversation) -> None:
    (alice,) = talk.stable("alice")
    for _ in range(5):
        talk.wait(SESSION_MS - 1)
        assert talk.heartbeat(alice) is ErrorCode.NONE


def test_a_commit_keeps_a_member(talk: Conversation) -> None:
    (alice,) = talk.stable("alice")
    for _ in range(5):
        talk.wait(SESSION_MS - 1)
        assert talk.commit(alice) is ErrorCode.NONE


def test_a_member_that_is_silent_for_its_session_timeout_is_out(talk: Conversation) -> None:
    (alice,) = talk.stable("alice")
    talk.wait(SESSION_MS)
    assert talk.heartbeat(alice) is ErrorCode.UNKNOWN_MEMBER_ID
    assert talk.group.state is EMPTY


def test_a_member_that_dies_while_others_wait_for_it_is_not_waited_for(talk: Conversation) -> None:
    alice, _ = talk.stable("alice", "bob")
    waiting = talk.join(alice)
    talk.wait(SESSION_MS)
    assert errors([waiting]) == ["NONE"]


def test_member_awaiting_other_joins_does_not_expire(talk: Conversation) -> None:
    alice, bob = talk.stable("alice", "bob")
    waiting = talk.join(alice)
    for _ in range(3):
        talk.wait(SESSION_MS - 1)
        talk.heartbeat(bob)
    assert errors([waiting]) == ["waits"]
    talk.join(bob)
    assert errors([waiting]) == ["NONE"]


@pytest.mark.parametrize("group_is", [PREPARING, COMPLETING, STABLE])
def test_the_heartbeat_of_a_stranger_is_refused(talk: Conversation, group_is: GroupState) -> None:
    (alice,) = talk.stable("alice")
    if group_is is not STABLE:
        talk.join(talk.member("bob"))
    if group_is is COMPLETING:
        talk.join(alice)
    assert talk.group.state is group_is
    assert talk.heartbeat(Member("x", (), "x-1", alice.generation)) is ErrorCode.UNKNOWN_MEMBER_ID


def test_heartbeat_of_another_generation_is_refused(talk: Conversation) -> None:
    (alice,) = talk.stable("alice")
    talk.wait(SESSION_MS - 1)
    assert talk.heartbeat(alice, generation=99) is ErrorCode.ILLEGAL_GENERATION
    talk.wait(1)
    assert talk.group.state is EMPTY


def test_heartbeat_keeps_a_member_while_the_assignment_is_awaited(talk: Conversation) -> None:
    alice, bob = talk.joined("alice", "bob")
    talk.wait(SESSION_MS - 1)
    assert talk.heartbeat(alice) is ErrorCode.NONE
    talk.wait(1)
    assert [member.member_id for member in talk.group.describe().members] == [alice.member_id]
    assert talk.heartbeat(bob) is ErrorCode.UNKNOWN_MEMBER_ID


def test_nobody_can_be_alive_in_an_empty_group() -> None:
    assert Conversation().heartbeat(Member("x", (), "x-1", 0)) is ErrorCode.UNKNOWN_MEMBER_ID


# --- leaving ------------------------------------------------------------------------------------------------


def test_a_member_that_leaves_makes_the_others_rebalance(talk: Conversation) -> None:
    alice, bob = talk.stable("alice", "bob")
    assert talk.leave(bob) is ErrorCode.NONE
    assert talk.heartbeat(alice) is ErrorCode.REBALANCE_IN_PROGRESS
    assert talk.heartbeat(bob) is ErrorCode.UNKNOWN_MEMBER_ID


def test_when_the_last_member_leaves_an_empty_generation_is_stored(talk: Conversation) -> None:
    (alice,) = talk.stable("alice")
    talk.leave(alice)
    assert talk.group.state is EMPTY
    last = talk.stored[-1]
    assert (last.generation, last.protocol_type, last.protocol, last.leader, last.members) == (
        2,
        "consumer",
        None,
        None,
        (),
    )


def test_a_stranger_cannot_leave(talk: Conversation) -> None:
    talk.stable("alice")
    assert talk.leave(Member("x", (), "x-1")) is ErrorCode.UNKNOWN_MEMBER_ID


def test_whoever_leaves_while_it_waits_is_answered(talk: Conversation) -> None:
    alice, bob = talk.stable("alice", "bob")
    carol = talk.member("carol")
    carols, bobs = talk.join(carol), talk.join(bob)
    talk.leave(bob)
    assert errors([bobs, carols]) == ["UNKNOWN_MEMBER_ID", "waits"]
    talk.join(alice)
    talk.hear(carol, carols)
    syncing = talk.sync(carol)
    talk.leave(carol)
    assert errors([syncing]) == ["UNKNOWN_MEMBER_ID"]


# --- commits ------------------------------------------------------------------------------------------------


def test_consumer_outside_the_group_may_commit_while_it_is_empty(talk: Conversation) -> None:
    outside = Member("x", ())
    assert talk.commit(outside) is ErrorCode.NONE
    talk.stable("alice")
    assert talk.commit(outside) is ErrorCode.UNKNOWN_MEMBER_ID


def test_members_may_commit_while_a_rebalance_is_prepared(talk: Conversation) -> None:
    alice, bob = talk.stable("alice", "bob")
    talk.join(alice)
    assert talk.group.state is PREPARING
    assert talk.commit(bob) is ErrorCode.NONE


def test_nobody_commits_while_the_assignment_is_awaited(talk: Conversation) -> None:
    (alice,) = talk.joined("alice")
    assert talk.commit(alice) is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_commit_of_an_old_generation_is_refused(talk: Conversation) -> None:
    (alice,) = talk.stable("alice")
    assert talk.commit(alice, generation=alice.generation - 1) is ErrorCode.ILLEGAL_GENERATION


def test_a_member_cannot_commit_to_a_group_that_all_have_left(talk: Conversation) -> None:
    (alice,) = talk.stable("alice")
    talk.wait(SESSION_MS)
    assert talk.commit(alice) is ErrorCode.UNKNOWN_MEMBER_ID


# --- deleting, moving, coming back --------------------------------------------------------------------------


def test_only_a_group_without_members_can_be_deleted(talk: Conversation) -> None:
    (alice,) = talk.stable("alice")
    assert talk.group.delete() is ErrorCode.NON_EMPTY_GROUP
    talk.leave(alice)
    assert talk.group.delete() is ErrorCode.NONE
    assert talk.group.state is DEAD
    assert talk.group.delete() is ErrorCode.GROUP_ID_NOT_FOUND


def test_a_dead_group_knows_nobody(talk: Conversation) -> None:
    (alice,) = talk.stable("alice")
    talk.leave(alice)
    talk.group.delete()
    assert (
        errors([talk.join(alice), talk.join(talk.member("bob")), talk.sync(alice)])
        == ["UNKNOWN_MEMBER_ID"] * 3
    )
    assert {talk.heartbeat(alice), talk.leave(alice), talk.commit(alice)} == {ErrorCode.UNKNOWN_MEMBER_ID}


def test_a_group_that_moves_answers_all_who_wait(talk: Conversation) -> None:
    alice, bob = talk.stable("alice", "bob")
    joining = talk.join(alice)
    talk.unload()
    other = Conversation()
    carol, dave = other.member("carol"), other.member("dave")
    other.together(carol, dave)
    syncing = other.sync(dave)
    other.unload()
    assert errors([joining, syncing]) == ["NOT_COORDINATOR_FOR_GROUP"] * 2
    assert talk.group.next_deadline_ms() is None
    assert talk.heartbeat(bob) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_stored_group_goes_on_where_it_was() -> None:
    before = Conversation()
    alice, bob = before.stable("alice", "bob")
    stored = before.stored[-1]
    talk = Conversation(stored=stored)
    assert talk.heartbeat(alice) is ErrorCode.NONE
    assert talk.commit(bob) is ErrorCode.NONE
    assert talk.sync(bob).answer.assignment == b"share of bob"
    assert talk.group.describe() == before.group.describe()


def test_members_of_a_stored_group_get_a_new_session() -> None:
    before = Conversation()
    before.stable("alice", "bob")
    talk = Conversation(stored=before.stored[-1])
    talk.wait(SESSION_MS - 1)
    assert talk.group.state is STABLE
    talk.wait(1)
    assert talk.group.state is EMPTY


@pytest.mark.parametrize("strange", [{"protocol": None}, {"leader": None}, {"leader": "somebody else"}])
def test_a_stored_group_without_protocol_or_leader_is_empty(strange: dict[str, str | None]) -> None:
    before = Conversation()
    (alice,) = before.stable("alice")
    stored = replace(before.stored[-1], **strange)  # type: ignore[arg-type]
    talk = Conversation(stored=stored)
    assert talk.group.state is EMPTY
    assert errors([talk.join(alice)]) == ["UNKNOWN_MEMBER_ID"]
    alice.member_id = ""
    (joined,) = talk.rejoin(alice)
    assert joined.generation == 2


# --- what anybody may know ----------------------------------------------------------------------------------


def test_a_stable_group_is_described_with_its_shares(talk: Conversation) -> None:
    talk.stable("alice")
    described = talk.group.describe()
    assert (described.state, described.protocol_type, described.protocol) == (STABLE, "consumer", "range")
    (alice,) = described.members
    assert (alice.member_id, alice.client_id, alice.client_host) == ("alice-1", "alice", "/127.0.0.1")
    assert (alice.metadata, alice.assignment) == (b"alice", b"share of alice")


def test_a_group_in_a_rebalance_is_described_without_them(talk: Conversation) -> None:
    (alice,) = talk.stable("alice")
    talk.join(talk.member("bob"))
    described = talk.group.describe()
    assert (described.state, described.protocol) == (PREPARING, "")
    assert [(member.member_id, member.metadata, member.assignment) for member in described.members] == [
        (alice.member_id, b"", b""),
        ("bob-2", b"", b""),
    ]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (STABLE, STABLE),
        (STABLE, COMPLETING),
        (STABLE, EMPTY),
        (PREPARING, PREPARING),
        (PREPARING, STABLE),
        (COMPLETING, COMPLETING),
        (COMPLETING, EMPTY),
        (EMPTY, STABLE),
        (EMPTY, COMPLETING),
        (DEAD, STABLE),
        (DEAD, PREPARING),
        (DEAD, COMPLETING),
        (DEAD, EMPTY),
    ],
)
def test_these_states_never_follow_each_other(before: GroupState, after: GroupState) -> None:
    assert before not in VALID_PREDECESSORS[after]
