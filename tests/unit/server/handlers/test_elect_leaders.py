"""ElectLeaders: leaders that are elected, waited for, and refused."""

from __future__ import annotations

import pytest

from minikafka.base.errors import ErrorCode
from minikafka.base.ids import TopicPartition
from minikafka.controller.election import NO_LEADER
from minikafka.wire.api import ApiKey
from minikafka.wire.apis.elect_leaders import ElectionType, ElectLeadersRequest, ElectLeadersTopic
from tests.support.requests import Request, place_topic
from tests.support.simulation import Simulation

T0 = TopicPartition("t", 0)


@pytest.fixture
def world() -> Simulation:
    """Three brokers; the partitions of ``t`` prefer broker 1 and broker 2, and broker 0 is the controller."""
    world = Simulation()
    world.start_brokers(3, {"auto.leader.rebalance.enable": "false"})
    world.settle()
    world.move_to_controller()
    answer = world.call(place_topic("t", (1, 2), (2, 1)))
    assert [row.error_code for row in answer.topics] == [0]
    return world


def elect(
    world: Simulation,
    *indexes: int,
    topic: str = "t",
    kind: int = ElectionType.PREFERRED,
    version: int = 2,
    timeout_ms: int = 5_000,
) -> tuple[int, dict[TopicPartition, int]]:
    named = (ElectLeadersTopic(topic, indexes),) if indexes else None
    answer = world.call(Request(ApiKey.ELECT_LEADERS, version, ElectLeadersRequest(kind, named, timeout_ms)))
    return answer.error_code, {
        TopicPartition(found.topic, row.partition_id): row.error_code
        for found in answer.replica_election_results
        for row in found.partition_result
    }


def leader(world: Simulation, key: TopicPartition = T0) -> int:
    known = world.machine.broker.metadata_cache.leadership(key)
    assert known is not None
    return known.leader


def kill(world: Simulation, number: int) -> None:
    """Kill a broker, and let its session end."""
    session = world.machine_of(number).store
    world.machine_of(number).kill()
    world.pass_time(30_000)
    world.zookeeper.expire(session)
    world.settle()


def revive(world: Simulation, number: int) -> None:
    world.machine_of(number).start({"auto.leader.rebalance.enable": "false"})
    world.pass_time(30_000)


def test_preferred_replicas_lead_again(world: Simulation) -> None:
    kill(world, 1)
    revive(world, 1)
    assert leader(world) == 2
    assert elect(world) == (0, {T0: 0})
    assert leader(world) == 1


def test_partitions_that_are_named_get_the_reason(world: Simulation) -> None:
    assert elect(world, 0, 7) == (
        0,
        {T0: ErrorCode.ELECTION_NOT_NEEDED, TopicPartition("t", 7): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION},
    )
    assert elect(world) == (0, {})


def test_an_unclean_election_ends_the_time_without_a_leader(world: Simulation) -> None:
    kill(world, 2)
    kill(world, 1)
    revive(world, 2)
    assert leader(world) == NO_LEADER
    assert elect(world, 0)[1] == {T0: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE}
    assert elect(world, 0, kind=ElectionType.UNCLEAN) == (0, {T0: 0})
    assert leader(world) == 2


def test_another_broker_than_the_controller_refuses(world: Simulation) -> None:
    (other, *_) = (machine for machine in world.machines.values() if not machine.broker.controller.active)
    world.move_to(other.host)
    assert elect(world, 0, version=0)[1] == {T0: ErrorCode.NOT_CONTROLLER}


def test_an_unknown_type_of_election_is_refused(world: Simulation) -> None:
    assert elect(world, 0, kind=2) == (ErrorCode.INVALID_REQUEST, {})
