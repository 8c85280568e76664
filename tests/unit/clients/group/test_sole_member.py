"""``clients/group/sole_member``: one who has a group for itself, with a coordinator in memory."""

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
from tests.unit.clients.support import BrokersInMemory

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)


class World:
    def __init__(self) -> None:
        self.brokers = BrokersInMemory(1, {"t": 2, "u": 1})
        self.cluster = self.brokers.client()
        self.deadline = self.cluster.deadline(20_000)
        self.group = self.brokers.groups.group("g")

    def member(self, owner: str = "g_one") -> SoleMember:
        return SoleMember(self.cluster, "g", owner)

    def committed(self) -> dict[TopicPartition, int]:
        return {tp: offset for tp, (offset, _) in self.group.offsets.items()}


@pytest.fixture
def world() -> World:
    return World()


def test_it_is_seen_in_the_group_with_its_partitions(world: World) -> None:
    world.member().hold([T0, U0], world.deadline)
    described = GroupAdmin(world.cluster).describe("g")
    assert (described.state, described.protocol_type, described.protocol) == ("Stable", "consumer", "g_one")
    assert [one.partitions for one in described.members] == [(T0, U0)]


def test_a_second_one_is_refused_with_the_name_of_the_first(world: World) -> None:
    world.member().hold([T0], world.deadline)
    with pytest.raises(GroupInUse, match="g_one at 127") as refused:
        world.member("g_two").hold([T1], world.deadline)
    assert refused.value.group_id == "g"
    assert len(world.group.members) == 1


def test_a_group_of_consumers_is_left_to_them(world: World) -> None:
    consumer = GroupConsumer(world.cluster, GroupConsumerConfig("g", auto_commit=False), threads=False)
    consumer.subscribe(["t"])
    for _ in range(4):
        consumer.poll(50)
    with pytest.raises(GroupInUse, match="the consumer member-1 at 127"):
        world.member().hold([T0], world.deadline)
    assert consumer.assignment == (T0, T1)


def test_what_it_reads_may_change_without_another_member(world: World) -> None:
    one = world.member()
    one.hold([], world.deadline)
    one.hold([T0], world.deadline)
    one.hold([T0], world.deadline)
    assert len(world.brokers.asked(ApiKey.JOIN_GROUP)) == 2
    (described,) = GroupAdmin(world.cluster).describe("g").members
    assert described.partitions == (T0,)


def test_it_commits_as_the_member_and_nobody_else_can(world: World) -> None:
    one = world.member()
    one.hold([T0], world.deadline)
    one.commit({T0: 7}, world.deadline)
    assert world.committed() == {T0: 7}
    with pytest.raises(BrokerError) as refused:
        GroupAdmin(world.cluster).set_offsets("g", {T0: 1})
    assert refused.value.code is ErrorCode.NON_EMPTY_GROUP


@pytest.mark.parametrize("doing", ["commit", "beat"])
def test_one_that_was_forgotten_joins_again(world: World, doing: str) -> None:
    one = world.member()
    one.hold([T0], world.deadline)
    world.brokers.groups.throw_out("g", "member-1")
    if doing == "commit":
        one.commit({T0: 7}, world.deadline)
        assert world.committed() == {T0: 7}
    else:
        one.beat(world.deadline)
    assert list(world.group.members) == ["member-2"]


def test_one_that_was_forgotten_does_not_commit_over_its_successor(world: World) -> None:
    one = world.member()
    one.hold([T0], world.deadline)
    world.brokers.groups.throw_out("g", "member-1")
    world.member("g_two").hold([T0], world.deadline)
    with pytest.raises(GroupInUse, match="g_two"):
        one.commit({T0: 7}, world.deadline)
    assert world.committed() == {}


def test_another_coordinator_is_found(world: World) -> None:
    one = world.member()
    one.hold([T0], world.deadline)
    world.brokers.fault(1, Fault.CUT_REQUEST)
    one.commit({T0: 7}, world.deadline)
    assert world.committed() == {T0: 7}


def test_when_it_is_released_the_group_is_empty_at_once(world: World) -> None:
    one = world.member()
    one.hold([T0], world.deadline)
    one.release(world.deadline)
    assert world.group.members == {}
    world.member("g_two").hold([T0], world.deadline)


def test_one_who_never_joined_has_nothing_to_leave(world: World) -> None:
    world.member().release(world.deadline)
    assert world.brokers.asked(ApiKey.LEAVE_GROUP) == []


def test_what_the_coordinator_refuses_for_good_is_raised(world: World) -> None:
    code = int(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    world.brokers.script(ApiKey.JOIN_GROUP, lambda *_: JoinGroupResponse(0, code, -1, "", "", "", ()))
    with pytest.raises(BrokerError) as refused:
        world.member().hold([T0], world.deadline)
    assert refused.value.code is ErrorCode.GROUP_AUTHORIZATION_FAILED


def test_brokers_that_are_away_are_an_error_when_the_time_is_over(world: World) -> None:
    world.brokers.stop(1)
    with pytest.raises(NetworkError):
        world.member().hold([T0], world.cluster.deadline(500))
