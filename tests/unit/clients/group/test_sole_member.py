"""``clients/group/sole_member``: the only member of a group, with a coordinator in memory."""

from __future__ import annotations

import pytest

from minikafka.base.errors import BrokerError, ErrorCode, GroupInUse, NetworkError
from minikafka.base.ids import TopicPartition
from minikafka.clients.admin.groups import GroupAdmin
from minikafka.clients.group.config import GroupConsumerConfig
from minikafka.clients.group.consumer import GroupConsumer
from minikafka.clients.group.sole_member import SoleMember
from minikafka.net.memory import Fault
from minikafka.wire.api import ApiKey
from minikafka.wire.apis.join_group import JoinGroupResponse
from tests.support.broker_harness import BrokerHarness, Later

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)


class SoleMemberHarness:
    def __init__(self) -> None:
        self.brokers = BrokerHarness(1, {"t": 2, "u": 1})
        self.cluster = self.brokers.client()

    def member(self, owner: str = "g_one") -> SoleMember:
        return SoleMember(self.cluster, "g", owner)

    def committed(self) -> dict[TopicPartition, int]:
        return self.brokers.committed("g")

    @property
    def members(self) -> list[str]:
        return [member.member_id for member in self.brokers.group("g").members]


@pytest.fixture
def harness() -> SoleMemberHarness:
    return SoleMemberHarness()


def test_it_is_seen_in_the_group_with_its_partitions(harness: SoleMemberHarness) -> None:
    harness.member().hold([T0, U0])
    described = GroupAdmin(harness.cluster).describe("g")
    assert (described.state, described.protocol_type, described.protocol) == ("Stable", "consumer", "g_one")
    assert [member.partitions for member in described.members] == [(T0, U0)]


def test_a_second_one_is_refused_with_the_name_of_the_first(harness: SoleMemberHarness) -> None:
    harness.member().hold([T0])
    with pytest.raises(GroupInUse, match="g_one at client") as refused:
        harness.member("g_two").hold([T1])
    assert refused.value.group_id == "g"
    assert len(harness.members) == 1


def test_one_that_is_refused_does_not_ask_again_by_itself(harness: SoleMemberHarness) -> None:
    harness.member().hold([T0])
    with pytest.raises(GroupInUse):
        harness.member("g_two").hold([T1])
    harness.brokers.settle()
    assert len(harness.brokers.asked(ApiKey.JOIN_GROUP)) == 3  # the first asks for its id before


def test_a_group_of_consumers_is_left_to_them(harness: SoleMemberHarness) -> None:
    consumer = GroupConsumer(harness.cluster, GroupConsumerConfig("g", auto_commit=False), threads=False)
    consumer.subscribe(["t"])
    for _ in range(4):
        consumer.poll(50)
    with pytest.raises(GroupInUse, match=f"consumer {consumer.member_id} at client"):
        harness.member().hold([T0])
    assert consumer.assignment == (T0, T1)


def test_what_it_reads_may_change_without_another_member(harness: SoleMemberHarness) -> None:
    one = harness.member()
    one.hold([])
    one.hold([T0])
    one.hold([T0])
    assert len(harness.brokers.asked(ApiKey.JOIN_GROUP)) == 3
    (described,) = GroupAdmin(harness.cluster).describe("g").members
    assert described.partitions == (T0,)


def test_it_commits_as_the_member_and_nobody_else_can(harness: SoleMemberHarness) -> None:
    one = harness.member()
    one.hold([T0])
    one.commit({T0: 7})
    assert harness.committed() == {T0: 7}
    with pytest.raises(BrokerError) as refused:
        GroupAdmin(harness.cluster).set_offsets("g", {T0: 1})
    assert refused.value.code is ErrorCode.NON_EMPTY_GROUP


@pytest.mark.parametrize("doing", ["commit", "beat"])
def test_one_that_was_forgotten_joins_again(harness: SoleMemberHarness, doing: str) -> None:
    one = harness.member()
    one.hold([T0])
    harness.brokers.remove_member("g", *harness.members)
    assert harness.members == []
    if doing == "commit":
        one.commit({T0: 7})
        assert harness.committed() == {T0: 7}
    else:
        harness.brokers.clock.advance(SoleMember.heartbeat_ms)
        one.hold([T0])
    assert len(harness.members) == 1


def test_heartbeats_are_sent_when_they_are_due(harness: SoleMemberHarness) -> None:
    one = harness.member()
    one.hold([T0])
    one.hold([T0])
    assert harness.brokers.asked(ApiKey.HEARTBEAT) == []
    for _ in range(5):
        harness.brokers.clock.advance(SoleMember.heartbeat_ms)
        one.hold([T0])
    assert len(harness.brokers.asked(ApiKey.HEARTBEAT)) == 5
    assert len(harness.brokers.asked(ApiKey.JOIN_GROUP)) == 2


def test_one_that_was_forgotten_does_not_commit_over_its_successor(harness: SoleMemberHarness) -> None:
    one = harness.member()
    one.hold([T0])
    harness.brokers.remove_member("g", *harness.members)
    harness.member("g_two").hold([T0])
    with pytest.raises(GroupInUse, match="g_two"):
        one.commit({T0: 7})
    assert harness.committed() == {}


def test_another_coordinator_is_found(harness: SoleMemberHarness) -> None:
    one = harness.member()
    one.hold([T0])
    harness.brokers.fault(1, Fault.CUT_REQUEST)
    one.commit({T0: 7})
    assert harness.committed() == {T0: 7}


def test_when_it_is_released_the_group_is_empty_at_once(harness: SoleMemberHarness) -> None:
    one = harness.member()
    one.hold([T0])
    one.release()
    assert harness.members == []
    harness.member("g_two").hold([T0])


def test_one_who_never_joined_has_nothing_to_leave(harness: SoleMemberHarness) -> None:
    harness.member().release()
    assert harness.brokers.asked(ApiKey.LEAVE_GROUP) == []


def test_what_the_coordinator_refuses_for_good_is_raised(harness: SoleMemberHarness) -> None:
    code = int(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    harness.brokers.script(ApiKey.JOIN_GROUP, lambda *_: JoinGroupResponse(0, code, -1, "", "", "", ()))
    with pytest.raises(BrokerError) as refused:
        harness.member().hold([T0])
    assert refused.value.code is ErrorCode.GROUP_AUTHORIZATION_FAILED


def test_brokers_that_are_away_are_an_error_when_the_time_is_over(harness: SoleMemberHarness) -> None:
    harness.brokers.stop(1)
    one = harness.member()
    with pytest.raises(NetworkError, match="group 'g'"):
        one.hold([T0], 500)
    harness.brokers.start(1)
    one.hold([T0])
    assert len(harness.members) == 1


def test_failure_before_the_last_join_explains_no_later_one(harness: SoleMemberHarness) -> None:
    one = harness.member()
    harness.brokers.fault(1, Fault.CUT_REQUEST)
    one.hold([T0])
    harness.brokers.script(ApiKey.JOIN_GROUP, lambda *_: Later())
    with pytest.raises(NetworkError, match=r"group 'g' failed for 500 ms$"):
        one.hold([T1], 500)
