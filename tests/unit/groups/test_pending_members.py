"""Members that must join with the id that they were told (KIP-394), and the size of a group (KIP-389)."""

import pytest

from minikafka.base.errors import ErrorCode
from minikafka.groups.states import GroupState
from tests.support.group_harness import REBALANCE_MS, SESSION_MS, Conversation, Member, errors

EMPTY, PREPARING, COMPLETING, STABLE, DEAD = GroupState


@pytest.fixture
def talk() -> Conversation:
    return Conversation()


def told(talk: Conversation, name: str) -> Member:
    """A member that was told its id and has not joined with it yet."""
    member = talk.member(name)
    answer = talk.join(member, requires_member_id=True).answer
    assert answer.error is ErrorCode.MEMBER_ID_REQUIRED
    member.member_id = answer.member_id
    return member


# --- ids before members -------------------------------------------------------------------------------------


def test_a_new_member_is_told_its_id_and_joins_with_it(talk: Conversation) -> None:
    alice = told(talk, "alice")
    assert talk.group.state is EMPTY
    joined = talk.hear(alice, talk.join(alice, requires_member_id=True))
    assert (joined.error, joined.member_id, joined.generation) == (ErrorCode.NONE, "alice-1", 1)


def test_a_static_member_needs_no_id(talk: Conversation) -> None:
    assert errors([talk.join(talk.static("alice"))]) == ["NONE"]


def test_an_id_that_was_told_can_only_join(talk: Conversation) -> None:
    talk.stable("alice")
    bob = told(talk, "bob")
    bob.generation = talk.group.generation
    assert {talk.heartbeat(bob), talk.commit(bob)} == {ErrorCode.UNKNOWN_MEMBER_ID}
    assert errors([talk.sync(bob)]) == ["UNKNOWN_MEMBER_ID"]
    assert talk.group.state is STABLE


def test_an_id_that_was_told_is_not_one_of_a_static_member(talk: Conversation) -> None:
    bob = told(talk, "bob")
    bob.instance_id = "bob"
    assert errors([talk.join(bob)]) == ["UNKNOWN_MEMBER_ID"]


def test_a_rebalance_waits_for_members_that_were_told_their_ids(talk: Conversation) -> None:
    (alice,) = talk.stable("alice")
    bob = told(talk, "bob")
    alices = talk.join(alice)
    assert errors([alices]) == ["waits"]
    bobs = talk.join(bob)
    assert errors([alices, bobs]) == ["NONE", "NONE"]


def test_an_id_that_is_not_used_is_forgotten_after_the_session(talk: Conversation) -> None:
    (alice,) = talk.stable("alice")
    bob = told(talk, "bob")
    alices = talk.join(alice)
    talk.wait(SESSION_MS - 1)
    assert errors([alices]) == ["waits"]
    talk.wait(1)
    assert errors([alices, talk.join(bob)]) == ["NONE", "UNKNOWN_MEMBER_ID"]


def test_a_rebalance_waits_no_longer_than_its_time_for_ids(talk: Conversation) -> None:
    (alice,) = talk.stable("alice")
    talk.join(talk.member("bob"), requires_member_id=True, session_ms=300_000)
    alices = talk.join(alice, rebalance_ms=REBALANCE_MS)
    talk.wait(REBALANCE_MS)
    assert errors([alices]) == ["NONE"]


def test_a_member_may_leave_before_it_has_joined(talk: Conversation) -> None:
    (alice,) = talk.stable("alice")
    bob = told(talk, "bob")
    alices = talk.join(alice)
    assert talk.leave(bob) is ErrorCode.NONE
    assert errors([alices, talk.join(bob)]) == ["NONE", "UNKNOWN_MEMBER_ID"]


def test_reasons_of_clients_are_told_when_a_rebalance_begins(talk: Conversation) -> None:
    talk.join(talk.member("alice"), reason="need to join")
    assert talk.reasons == ["member alice-1 joins; client: need to join"]


# --- assignments that nobody requests -----------------------------------------------------------------------


def test_a_member_that_never_requests_its_assignment_is_removed(talk: Conversation) -> None:
    alice, bob = talk.joined("alice", "bob")
    talk.sync(alice, {alice.member_id: b"0", bob.member_id: b"1"})
    for _ in range(REBALANCE_MS // 5_000):
        assert (talk.heartbeat(alice), talk.heartbeat(bob)) == (ErrorCode.NONE, ErrorCode.NONE)
        talk.wait(5_000)
    assert talk.heartbeat(alice) is ErrorCode.REBALANCE_IN_PROGRESS
    assert talk.heartbeat(bob) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_leader_that_never_assigns_is_removed(talk: Conversation) -> None:
    alice, bob = talk.joined("alice", "bob")
    waiting = talk.sync(bob)
    for _ in range(REBALANCE_MS // 5_000):
        talk.heartbeat(alice)
        talk.wait(5_000)
    assert errors([waiting]) == ["REBALANCE_IN_PROGRESS"]
    assert talk.heartbeat(alice) is ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("other", [{"protocol_type": "connect"}, {"protocol": "sticky"}])
def test_an_assignment_of_another_protocol_is_inconsistent(talk: Conversation, other: dict[str, str]) -> None:
    (alice,) = talk.stable("alice")
    assert errors([talk.sync(alice, **other)]) == ["INCONSISTENT_GROUP_PROTOCOL"]


def test_an_assignment_tells_its_protocol(talk: Conversation) -> None:
    (alice,) = talk.stable("alice")
    synced = talk.sync(alice, protocol_type="consumer", protocol="range").answer
    assert (synced.error, synced.protocol_type, synced.protocol) == (ErrorCode.NONE, "consumer", "range")


# --- the size of a group ------------------------------------------------------------------------------------


def test_a_member_beyond_the_size_of_the_group_is_refused() -> None:
    talk = Conversation(max_size=2)
    alice, bob = talk.stable("alice", "bob")
    refused = talk.join(talk.member("carol"))
    assert (refused.answer.error, refused.answer.member_id) == (ErrorCode.GROUP_MAX_SIZE_REACHED, "")
    assert talk.group.state is STABLE
    assert errors([talk.join(bob)]) == ["NONE"]
    assert talk.heartbeat(alice) is ErrorCode.NONE


def test_the_size_holds_for_ids_too() -> None:
    talk = Conversation(max_size=1)
    alice, bob = told(talk, "alice"), told(talk, "bob")
    talk.hear(alice, talk.join(alice))
    assert errors([talk.join(bob), talk.join(bob)]) == ["GROUP_MAX_SIZE_REACHED"] * 2
    assert talk.leave(bob) is ErrorCode.UNKNOWN_MEMBER_ID


def test_first_members_of_a_group_are_counted_while_they_wait() -> None:
    talk = Conversation(max_size=1, delay_ms=3_000)
    requests = [talk.join(talk.member("alice")), talk.join(talk.member("bob"))]
    talk.wait(6_000)
    assert errors(requests) == ["NONE", "GROUP_MAX_SIZE_REACHED"]


def test_a_loaded_group_that_is_too_large_sheds_its_last_members() -> None:
    before = Conversation()
    alice, bob, carol = before.stable("alice", "bob", "carol")
    talk = Conversation(stored=before.stored[-1], max_size=2)
    assert talk.heartbeat(alice) is ErrorCode.REBALANCE_IN_PROGRESS
    assert talk.commit(carol) is ErrorCode.NONE
    requests = [talk.join(alice), talk.join(bob), talk.join(carol)]
    assert errors(requests) == ["NONE", "NONE", "GROUP_MAX_SIZE_REACHED"]


def test_a_replaced_static_member_does_not_count_twice() -> None:
    talk = Conversation(max_size=1)
    alice = talk.static("alice")
    talk.together(alice)
    talk.share(alice)
    again = talk.static("alice")
    assert errors([talk.join(again)]) == ["NONE"]
