"""Static members of a group (KIP-345): they keep their place by an instance id."""

import pytest

from minikafka.base.errors import ErrorCode
from minikafka.groups.states import GroupState
from tests.support.group_harness import REBALANCE_MS, SESSION_MS, Conversation, Member, errors

EMPTY, PREPARING, COMPLETING, STABLE, DEAD = GroupState


@pytest.fixture
def talk() -> Conversation:
    return Conversation()


def stable(talk: Conversation, *names: str) -> list[Member]:
    members = [talk.static(name) for name in names]
    talk.together(*members)
    talk.share(*members)
    return members


def restarted(member: Member) -> Member:
    """The client of a static member after a restart: it knows its name only."""
    return Member(member.name, member.protocols, instance_id=member.instance_id)


# --- coming back --------------------------------------------------------------------------------------------


def test_a_static_member_that_comes_back_makes_no_rebalance(talk: Conversation) -> None:
    alice, bob = stable(talk, "alice", "bob")
    again = restarted(bob)
    joined = talk.hear(again, talk.join(again))
    assert (joined.error, joined.generation, joined.leader) == (ErrorCode.NONE, 2, alice.member_id)
    assert again.member_id not in {bob.member_id, ""}
    assert talk.group.state is STABLE
    assert talk.sync(again).answer.assignment == b"share of bob"
    assert talk.heartbeat(alice) is ErrorCode.NONE


def test_leader_that_comes_back_is_told_to_keep_the_assignment(talk: Conversation) -> None:
    alice, bob = stable(talk, "alice", "bob")
    again = restarted(alice)
    joined = talk.join(again, skips_assignment=True).answer
    assert (joined.leader, joined.skip_assignment) == (joined.member_id, True)
    assert {member_id for member_id, _, _ in joined.members} == {joined.member_id, bob.member_id}
    assert {instance_id for _, instance_id, _ in joined.members} == {"alice", "bob"}


def test_old_client_that_leads_is_told_that_another_one_does(talk: Conversation) -> None:
    alice, _ = stable(talk, "alice", "bob")
    joined = talk.join(restarted(alice)).answer
    assert (joined.leader, joined.members, joined.skip_assignment) == (alice.member_id, (), False)
    assert talk.group.leader == joined.member_id


def test_follower_that_comes_back_skips_nothing(talk: Conversation) -> None:
    _, bob = stable(talk, "alice", "bob")
    joined = talk.join(restarted(bob), skips_assignment=True).answer
    assert (joined.skip_assignment, joined.members) == (False, ())


def test_static_member_with_another_subscription_keeps_the_generation(talk: Conversation) -> None:
    stable(talk, "alice", "bob")
    changed = Member("bob", (("range", b"other topics"),), instance_id="bob")
    assert errors([talk.join(changed)]) == ["NONE"]
    assert talk.group.state is STABLE


def test_static_member_that_changes_the_protocol_makes_a_rebalance(talk: Conversation) -> None:
    both = [talk.static("alice", "range", "sticky"), talk.static("bob", "range", "sticky")]
    talk.together(*both)
    talk.share(*both)
    again = Member("bob", (("sticky", b""),), instance_id="bob")
    assert errors([talk.join(again)]) == ["waits"]
    assert talk.group.state is PREPARING


def test_static_member_that_comes_back_in_a_rebalance_joins_it(talk: Conversation) -> None:
    alice, bob = stable(talk, "alice", "bob")
    alices = talk.join(alice)
    bobs = talk.join(restarted(bob))
    assert errors([alices, bobs]) == ["NONE", "NONE"]
    assert {member_id for member_id, _, _ in alices.answer.members} == {
        alice.member_id,
        bobs.answer.member_id,
    }


def test_static_member_back_while_the_assignment_is_awaited_rebalances(talk: Conversation) -> None:
    both = [talk.static("alice"), talk.static("bob")]
    talk.together(*both)
    alice, bob = both
    waiting = talk.sync(bob)
    bobs = talk.join(restarted(bob))
    assert errors([waiting, bobs]) == ["FENCED_INSTANCE_ID", "waits"]
    assert errors([talk.join(alice)]) == ["NONE"]
    assert talk.group.state is COMPLETING


def test_the_new_id_is_stored_before_it_is_told(talk: Conversation) -> None:
    _, bob = stable(talk, "alice", "bob")
    talk.holds_stores = True
    bobs = talk.join(restarted(bob))
    assert errors([bobs]) == ["waits"]
    talk.store()
    joined = bobs.answer
    stored = {member.group_instance_id: member for member in talk.stored[-1].members}
    assert (stored["bob"].member_id, stored["bob"].assignment) == (joined.member_id, b"share of bob")


def test_a_new_id_that_cannot_be_stored_is_not_given(talk: Conversation) -> None:
    _, bob = stable(talk, "alice", "bob")
    talk.holds_stores = True
    bobs = talk.join(restarted(bob))
    talk.store(ErrorCode.NOT_COORDINATOR_FOR_GROUP)
    assert errors([bobs]) == ["NOT_COORDINATOR_FOR_GROUP"]
    assert talk.heartbeat(bob) is ErrorCode.NONE
    assert talk.sync(bob).answer.assignment == b"share of bob"


def test_a_rebalance_while_the_new_id_is_stored_takes_it_along(talk: Conversation) -> None:
    alice, bob = stable(talk, "alice", "bob")
    talk.holds_stores = True
    bobs = talk.join(restarted(bob))
    alices = talk.join(alice)
    assert errors([alices, bobs]) == ["NONE", "NONE"]
    talk.store(ErrorCode.NOT_COORDINATOR_FOR_GROUP)
    assert bobs.answer.generation == 3
    assert talk.group.state is COMPLETING


def test_client_that_is_started_three_times_has_one_member(talk: Conversation) -> None:
    _, bob = stable(talk, "alice", "bob")
    talk.holds_stores = True
    second, third = talk.join(restarted(bob)), talk.join(restarted(bob))
    assert errors([second, third]) == ["FENCED_INSTANCE_ID", "waits"]
    talk.store()
    assert errors([third]) == ["NONE"]
    assert len(talk.group.members) == 2


# --- fencing ------------------------------------------------------------------------------------------------


def test_the_old_client_of_a_static_member_is_fenced(talk: Conversation) -> None:
    _, bob = stable(talk, "alice", "bob")
    talk.join(restarted(bob))
    assert errors([talk.join(bob), talk.sync(bob)]) == ["FENCED_INSTANCE_ID"] * 2
    assert {talk.heartbeat(bob), talk.commit(bob), talk.leave(bob)} == {ErrorCode.FENCED_INSTANCE_ID}


def test_an_old_client_that_waits_is_fenced_at_once(talk: Conversation) -> None:
    _, bob = stable(talk, "alice", "bob")
    bob.protocols = (("range", b"other topics"),)
    waiting = talk.join(bob)
    talk.join(restarted(bob))
    assert errors([waiting]) == ["FENCED_INSTANCE_ID"]
    assert waiting.answer.member_id == bob.member_id


def test_an_instance_id_that_nobody_has_is_unknown(talk: Conversation) -> None:
    (alice,) = stable(talk, "alice")
    alice.instance_id = "carol"
    assert errors([talk.join(alice), talk.sync(alice)]) == ["UNKNOWN_MEMBER_ID"] * 2
    assert {talk.heartbeat(alice), talk.commit(alice), talk.leave(alice)} == {ErrorCode.UNKNOWN_MEMBER_ID}


# --- staying and leaving ------------------------------------------------------------------------------------


def test_a_static_member_that_is_away_stays_until_its_session_ends(talk: Conversation) -> None:
    alice, bob = talk.static("alice"), talk.static("bob")
    talk.together(alice)
    talk.rejoin(bob, alice)
    talk.share(alice, bob)
    talk.hear(bob, talk.join(restarted(bob), session_ms=300_000))
    waiting = talk.join(alice, rebalance_ms=REBALANCE_MS)
    talk.wait(REBALANCE_MS)
    assert {instance_id for _, instance_id, _ in waiting.answer.members} == {"alice", "bob"}


def test_a_static_member_that_is_silent_for_its_session_is_out(talk: Conversation) -> None:
    alice, bob = stable(talk, "alice", "bob")
    talk.wait(SESSION_MS - 1)
    talk.heartbeat(alice)
    talk.wait(1)
    assert talk.heartbeat(bob) is ErrorCode.UNKNOWN_MEMBER_ID
    assert talk.group.state is PREPARING


def test_a_leader_that_is_away_stays_and_another_member_leads(talk: Conversation) -> None:
    alice, bob = talk.static("alice"), talk.static("bob")
    talk.hear(alice, talk.join(alice, session_ms=300_000))
    bobs, alices = talk.join(bob), talk.join(alice, session_ms=300_000)
    talk.hear(alice, alices)
    talk.hear(bob, bobs)
    talk.share(alice, bob)
    bobs, carols = (
        talk.join(Member("bob", (("range", b"new"),), bob.member_id, 2, "bob")),
        talk.join(talk.static("carol")),
    )
    talk.wait(REBALANCE_MS)
    assert errors([bobs, carols]) == ["NONE", "NONE"]
    assert {bobs.answer.leader, carols.answer.leader} == {bob.member_id}
    assert [instance_id for _, instance_id, _ in bobs.answer.members] == ["alice", "bob", "carol"]


def test_a_rebalance_in_which_nobody_joins_waits_for_their_sessions(talk: Conversation) -> None:
    alice, bob, carol = stable(talk, "alice", "bob", "carol")
    for member in (alice, bob):
        talk.hear(member, talk.join(restarted(member), session_ms=300_000))
    talk.leave(carol)
    talk.wait(2 * REBALANCE_MS)
    assert (talk.group.state, talk.group.generation) == (PREPARING, 3)
    talk.wait(300_000)
    assert (talk.group.state, talk.group.generation) == (EMPTY, 4)


def test_an_administrator_removes_a_static_member_by_its_name(talk: Conversation) -> None:
    alice, bob = stable(talk, "alice", "bob")
    assert talk.leave(Member("bob", (), instance_id="bob"), reason="broken") is ErrorCode.NONE
    assert talk.heartbeat(bob) is ErrorCode.UNKNOWN_MEMBER_ID
    assert talk.heartbeat(alice) is ErrorCode.REBALANCE_IN_PROGRESS
    assert talk.reasons[-1] == f"member {bob.member_id} leaves; client: broken"


def test_nobody_is_removed_without_any_name(talk: Conversation) -> None:
    stable(talk, "alice")
    assert talk.leave(Member("x", ())) is ErrorCode.UNKNOWN_MEMBER_ID
    assert talk.leave(Member("x", (), instance_id="bob")) is ErrorCode.UNKNOWN_MEMBER_ID


def test_members_that_leave_together_make_one_rebalance(talk: Conversation) -> None:
    alice, bob, carol = stable(talk, "alice", "bob", "carol")
    talk.reasons.clear()
    assert talk.leave(bob, carol) is ErrorCode.NONE
    assert len(talk.reasons) == 1
    assert errors([talk.join(alice)]) == ["NONE"]


# --- coming back to another coordinator ---------------------------------------------------------------------


def test_a_stored_group_knows_its_static_members(talk: Conversation) -> None:
    _, bob = stable(talk, "alice", "bob")
    later = Conversation(stored=talk.stored[-1])
    assert later.heartbeat(bob) is ErrorCode.NONE
    again = restarted(bob)
    again.name = "bob-again"
    assert errors([later.join(again)]) == ["NONE"]
    assert later.group.state is STABLE
    assert later.heartbeat(bob) is ErrorCode.FENCED_INSTANCE_ID


def test_a_static_member_is_described_with_its_name(talk: Conversation) -> None:
    stable(talk, "alice")
    talk.join(talk.member("bob"))
    assert [member.group_instance_id for member in talk.group.describe().members] == ["alice", None]
