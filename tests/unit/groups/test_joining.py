"""Members that join a generation: the behaviours of Kafka's coordinator, one by one."""

import pytest

from minikafka.base.errors import ErrorCode
from minikafka.groups.group import NEW_MEMBER_JOIN_TIMEOUT_MS
from minikafka.groups.states import GroupState
from tests.support.group_harness import REBALANCE_MS, SESSION_MS, Conversation, Member, errors

EMPTY, PREPARING, COMPLETING, STABLE, DEAD = GroupState


# --- joining ------------------------------------------------------------------------------------------------


@pytest.fixture
def talk() -> Conversation:
    return Conversation()


def test_the_first_member_leads_the_first_generation(talk: Conversation) -> None:
    alice = talk.member("alice")
    joined = talk.hear(alice, talk.join(alice))
    assert joined.error is ErrorCode.NONE
    assert (joined.member_id, joined.leader, joined.generation, joined.protocol) == (
        "alice-1",
        "alice-1",
        1,
        "range",
    )
    assert joined.members == (("alice-1", None, b"alice"),)
    assert talk.group.state is COMPLETING


def test_a_second_member_makes_the_first_join_again(talk: Conversation) -> None:
    (alice,) = talk.stable("alice")
    bob = talk.member("bob")
    bobs = talk.join(bob)
    assert errors([bobs]) == ["waits"]
    assert talk.heartbeat(alice) is ErrorCode.REBALANCE_IN_PROGRESS
    alices = talk.join(alice)
    assert errors([alices, bobs]) == ["NONE", "NONE"]
    assert talk.hear(alice, alices).generation == talk.hear(bob, bobs).generation == 2


def test_only_the_leader_hears_what_members_say_about_themselves(talk: Conversation) -> None:
    alice, bob = talk.member("alice"), talk.member("bob")
    talk.together(alice)
    bobs = talk.join(bob)
    alices = talk.join(alice)
    assert alices.answer.members == (("alice-1", None, b"alice"), ("bob-2", None, b"bob"))
    assert bobs.answer.members == ()
    assert bobs.answer.leader == "alice-1"


def test_another_kind_of_group_is_inconsistent(talk: Conversation) -> None:
    talk.stable("alice")
    refused = talk.join(talk.member("bob"), protocol_type="connect")
    assert errors([refused]) == ["INCONSISTENT_GROUP_PROTOCOL"]
    assert talk.group.state is STABLE


def test_a_member_that_shares_no_protocol_with_all_is_inconsistent(talk: Conversation) -> None:
    alice, bob = talk.member("alice", "range", "sticky"), talk.member("bob", "sticky")
    talk.together(alice, bob)
    assert errors([talk.join(talk.member("carol", "range"))]) == ["INCONSISTENT_GROUP_PROTOCOL"]


@pytest.mark.parametrize("protocol_type", ["", "consumer"])
def test_the_first_member_names_a_type_and_a_protocol(talk: Conversation, protocol_type: str) -> None:
    nobody = Member("alice", () if protocol_type else (("range", b""),))
    assert errors([talk.join(nobody, protocol_type=protocol_type)]) == ["INCONSISTENT_GROUP_PROTOCOL"]
    assert talk.group.state is EMPTY


def test_a_member_id_that_the_group_has_not_given_is_unknown(talk: Conversation) -> None:
    talk.stable("alice")
    stranger = talk.member("bob")
    stranger.member_id = "bob-77"
    refused = talk.join(stranger)
    assert errors([refused]) == ["UNKNOWN_MEMBER_ID"]
    assert refused.answer.member_id == "bob-77"


def test_unchanged_follower_that_rejoins_gets_the_same_generation(talk: Conversation) -> None:
    alice, bob = talk.stable("alice", "bob")
    joined = talk.join(bob).answer
    assert (joined.error, joined.generation, joined.members) == (ErrorCode.NONE, bob.generation, ())
    assert talk.group.state is STABLE
    assert talk.heartbeat(alice) is ErrorCode.NONE


def test_a_leader_that_joins_again_unchanged_wants_a_rebalance(talk: Conversation) -> None:
    alice, bob = talk.stable("alice", "bob")
    assert errors([talk.join(alice)]) == ["waits"]
    assert talk.heartbeat(bob) is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_follower_that_has_changed_makes_a_rebalance(talk: Conversation) -> None:
    _, bob = talk.stable("alice", "bob")
    bob.protocols = (("range", b"another topic"),)
    assert errors([talk.join(bob)]) == ["waits"]
    assert talk.group.state is PREPARING


def test_lost_join_response_is_repeated_while_awaiting_assignment(talk: Conversation) -> None:
    alice, bob = talk.joined("alice", "bob")
    assert talk.join(alice).answer.members == (("alice-1", None, b"alice"), ("bob-2", None, b"bob"))
    assert talk.join(bob).answer.generation == bob.generation
    assert talk.group.state is COMPLETING


def test_changed_member_while_awaiting_assignment_rebalances(talk: Conversation) -> None:
    alice, bob = talk.joined("alice", "bob")
    waiting = talk.sync(bob)
    alice.protocols = (("range", b"another topic"),)
    assert errors([talk.join(alice), waiting]) == ["waits", "REBALANCE_IN_PROGRESS"]


def test_a_member_that_asks_again_elsewhere_gets_one_answer_there(talk: Conversation) -> None:
    alice, _ = talk.stable("alice", "bob")
    first, second = talk.join(alice), talk.join(alice)
    assert errors([first, second]) == ["REBALANCE_IN_PROGRESS", "waits"]


def test_the_rebalance_goes_on_without_those_that_do_not_come_in_time(talk: Conversation) -> None:
    alice, bob = talk.stable("alice", "bob")
    alices = talk.join(alice)
    for _ in range(REBALANCE_MS // 5_000):  # it lives, and yet does not join
        assert talk.heartbeat(bob) is ErrorCode.REBALANCE_IN_PROGRESS
        talk.wait(5_000)
    assert talk.hear(alice, alices).members == (("alice-1", None, b"alice"),)
    assert talk.heartbeat(bob) is ErrorCode.UNKNOWN_MEMBER_ID
    assert errors([talk.join(bob)]) == ["UNKNOWN_MEMBER_ID"]


def test_the_longest_rebalance_timeout_of_the_members_counts(talk: Conversation) -> None:
    patient, other = talk.member("patient"), talk.member("other")
    talk.hear(patient, talk.join(patient, rebalance_ms=90_000, session_ms=200_000))
    waiting = talk.join(other, rebalance_ms=1_000)
    talk.wait(89_999)
    assert errors([waiting]) == ["waits"]
    talk.wait(1)
    assert errors([waiting]) == ["NONE"]
    assert waiting.answer.leader == waiting.answer.member_id


def test_a_leader_that_does_not_come_is_followed_by_another(talk: Conversation) -> None:
    alice, bob, carol = talk.stable("alice", "bob", "carol")
    requests = [talk.join(talk.member("dave")), talk.join(carol), talk.join(bob)]
    assert talk.leave(alice) is ErrorCode.NONE
    assert {request.answer.leader for request in requests} == {bob.member_id}


def test_each_rebalance_makes_a_generation(talk: Conversation) -> None:
    (alice,) = talk.stable("alice")
    for generation in (2, 3, 4):
        (joined,) = talk.rejoin(alice)
        assert joined.generation == generation
        talk.share(alice)


# --- the first members of a group ---------------------------------------------------------------------------


def test_a_new_group_waits_for_more_members() -> None:
    talk = Conversation(delay_ms=3_000)
    alices = talk.join(talk.member("alice"))
    talk.wait(2_999)
    assert errors([alices]) == ["waits"]
    talk.wait(1)
    assert errors([alices]) == ["NONE"]


def test_member_arriving_in_the_delay_extends_the_first_join() -> None:
    talk = Conversation(delay_ms=3_000)
    alices = talk.join(talk.member("alice"))
    talk.wait(2_000)
    bobs = talk.join(talk.member("bob"))
    talk.wait(3_999)
    assert errors([alices, bobs]) == ["waits", "waits"]
    talk.wait(1)
    assert errors([alices, bobs]) == ["NONE", "NONE"]
    assert alices.answer.generation == 1


def test_a_new_group_waits_no_longer_than_its_members_do() -> None:
    talk = Conversation(delay_ms=3_000)
    requests = []
    for number in range(8):
        requests.append(talk.join(talk.member(f"m{number}"), rebalance_ms=7_000))
        talk.wait(1_000)
    assert errors(requests) == ["NONE"] * 7 + ["waits"]


def test_a_group_that_was_empty_for_a_while_waits_once() -> None:
    talk = Conversation(delay_ms=3_000)
    alice = talk.member("alice")
    request = talk.join(alice)
    talk.wait(3_000)
    talk.hear(alice, request)
    talk.share(alice)
    talk.leave(alice)
    bobs = talk.join(talk.member("bob"))
    talk.wait(1_000)
    carols = talk.join(talk.member("carol"))
    talk.wait(2_000)
    assert errors([bobs, carols]) == ["NONE", "NONE"]


def test_all_may_leave_before_the_first_generation_and_others_come() -> None:
    talk = Conversation(delay_ms=400_000)
    lost = talk.join(talk.member("lost"), rebalance_ms=500_000)
    talk.wait(NEW_MEMBER_JOIN_TIMEOUT_MS)
    assert errors([lost]) == ["UNKNOWN_MEMBER_ID"]
    late = talk.join(talk.member("late", "another protocol"))
    talk.wait(200_000)
    assert errors([late]) == ["NONE"]


def test_new_member_that_waits_five_minutes_must_join_again(talk: Conversation) -> None:
    alice = talk.member("alice")
    talk.hear(alice, talk.join(alice, session_ms=3_600_000, rebalance_ms=3_600_000))
    request = talk.join(talk.member("bob"), session_ms=SESSION_MS)
    talk.wait(NEW_MEMBER_JOIN_TIMEOUT_MS - 1)
    assert errors([request]) == ["waits"]
    talk.wait(1)
    assert (request.answer.error, request.answer.member_id) == (ErrorCode.UNKNOWN_MEMBER_ID, "")


# --- protocols ----------------------------------------------------------------------------------------------


def protocol_of(*wishes: tuple[str, ...]) -> str:
    talk = Conversation()
    talk.together(*(talk.member(f"m{number}", *wish) for number, wish in enumerate(wishes)))
    return talk.group.protocol or ""


def test_the_protocol_that_most_members_prefer_is_chosen() -> None:
    assert protocol_of(("range", "roundrobin"), ("roundrobin", "range"), ("roundrobin", "range")) == (
        "roundrobin"
    )


def test_only_a_protocol_that_all_can_follow_is_chosen() -> None:
    assert protocol_of(("sticky", "range"), ("sticky", "range"), ("range",)) == "range"
