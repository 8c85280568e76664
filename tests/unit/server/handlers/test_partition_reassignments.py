"""AlterPartitionReassignments and ListPartitionReassignments on brokers with a ZooKeeper in memory."""

from __future__ import annotations

from dataclasses import replace

import pytest

from minikafka.base.errors import ErrorCode
from minikafka.base.ids import TopicPartition
from minikafka.registry.controller import Reassignments
from minikafka.registry.paths import REASSIGN_PARTITIONS, topic_path
from minikafka.registry.topics import TopicAssignment
from minikafka.wire.api import ApiKey
from minikafka.wire.apis.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from minikafka.wire.apis.api_versions import ApiVersionsRequest
from minikafka.wire.apis.create_partitions import CreatePartitionsTopic
from minikafka.wire.apis.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopic,
)
from tests.support.requests import Request, create_partitions, place_topic
from tests.support.simulation import Simulation

T0 = TopicPartition("t", 0)


@pytest.fixture
def world() -> Simulation:
    """Four brokers; the partition of ``t`` is on broker 1, with a record. Broker 0 is the controller."""
    world = Simulation()
    world.start_brokers(4, {})
    world.settle()
    world.move_to_controller()
    world.call(place_topic("t", (1,)))
    world.move_to("machine-1")
    assert world.produce("t", b"v").error_code == ErrorCode.NONE
    world.move_to_controller()
    return world


def alter(
    world: Simulation, *wanted: tuple[int, tuple[int, ...] | None], topic: str = "t"
) -> dict[int, tuple[int, str | None]]:
    partitions = tuple(ReassignablePartition(*row) for row in wanted)
    body = AlterPartitionReassignmentsRequest(5_000, (ReassignableTopic(topic, partitions),))
    answer = world.call(Request(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, body))
    assert answer.error_code == ErrorCode.NONE
    return {
        row.index: (row.error_code, row.error_message)
        for found in answer.responses
        for row in found.partitions
    }


def ongoing(world: Simulation, *indexes: int) -> dict[TopicPartition, tuple[tuple[int, ...], ...]]:
    named = (ListPartitionReassignmentsTopic("t", indexes),) if indexes else None
    body = ListPartitionReassignmentsRequest(5_000, named)
    answer = world.call(Request(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, body))
    assert answer.error_code == ErrorCode.NONE
    return {
        TopicPartition(found.name, row.index): (row.replicas, row.adding_replicas, row.removing_replicas)
        for found in answer.topics
        for row in found.partitions
    }


def stored(world: Simulation) -> TopicAssignment:
    """Return what the znode of the topic has, without the id."""
    held = TopicAssignment.from_json(world.zookeeper.connect().read(topic_path("t"))[0], "t")
    return replace(held, topic_id=None)


def wait(world: Simulation) -> None:
    """Let time pass for all brokers."""
    world.network.wait(lambda: False, world.clock.monotonic_ms() + 10_000)


def hold(world: Simulation, *numbers: int) -> None:
    """Keep brokers from copying: they live, and do not answer the leader."""
    for number in numbers:
        world.machine_of(number).held = True


def test_a_partition_moves_to_other_brokers_with_its_records(world: Simulation) -> None:
    assert alter(world, (0, (2, 3))) == {0: (0, None)}
    wait(world)
    assert ongoing(world) == {}
    assert stored(world) == TopicAssignment({0: (2, 3)})
    world.move_to("machine-2")
    assert [record.value for record in world.records("t")] == [b"v"]
    assert T0 not in world.machine_of(1).broker.logs.logs()


def test_a_request_is_stored_when_it_is_answered_and_listed(world: Simulation) -> None:
    hold(world, 2)
    assert alter(world, (0, (2,))) == {0: (0, None)}
    assert stored(world) == TopicAssignment({0: (2, 1)}, adding={0: (2,)}, removing={0: (1,)})
    assert ongoing(world) == {T0: ((2, 1), (2,), (1,))}
    assert ongoing(world, 0) == {T0: ((2, 1), (2,), (1,))}
    assert ongoing(world, 1) == {}
    answer = world.call(create_partitions(CreatePartitionsTopic("t", 2, None), timeout_ms=1_000))
    assert answer.results[0].error_code == ErrorCode.REASSIGNMENT_IN_PROGRESS


def test_a_cancelled_reassignment_leaves_nothing_behind(world: Simulation) -> None:
    hold(world, 2)
    alter(world, (0, (2, 3)))
    assert alter(world, (0, None)) == {0: (0, None)}
    world.machine_of(2).held = False
    wait(world)
    assert ongoing(world) == {}
    assert stored(world) == TopicAssignment({0: (1,)})
    for number in (2, 3):
        assert T0 not in world.machine_of(number).broker.logs.logs()


def test_the_next_controller_continues_and_can_cancel(world: Simulation) -> None:
    hold(world, 2)
    alter(world, (0, (2,)))
    world.machine.stop()
    wait(world)
    world.move_to_controller()
    assert ongoing(world) == {T0: ((2, 1), (2,), (1,))}
    alter(world, (0, None))
    wait(world)
    assert stored(world) == TopicAssignment({0: (1,)})


def test_partitions_that_cannot_be_reassigned_get_the_reason(world: Simulation) -> None:
    assert {index: code for index, (code, _) in alter(world, (0, (9,)), (7, (1,))).items()} == {
        0: ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        7: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert alter(world, (0, None))[0][0] == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    assert alter(world, (0, (2,)), (0, (3,)))[0][0] == ErrorCode.INVALID_REQUEST
    assert ongoing(world) == {}


def test_another_broker_than_the_controller_refuses(world: Simulation) -> None:
    world.move_to("machine-1")
    for request in (
        Request(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, AlterPartitionReassignmentsRequest(0, ())),
        Request(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, ListPartitionReassignmentsRequest(0, None)),
    ):
        assert world.call(request).error_code == ErrorCode.NOT_CONTROLLER


def test_beside_0_10_1_the_znode_of_a_topic_keeps_its_form() -> None:
    world = Simulation()
    world.start_brokers(2, {"inter.broker.protocol.version": "0.10.1"})
    world.settle()
    world.move_to_controller()
    advertised = world.call(Request(ApiKey.API_VERSIONS, 0, ApiVersionsRequest())).api_keys
    assert max(row.api_key for row in advertised) < ApiKey.ELECT_LEADERS
    (controller, other) = (0, 1) if world.machine.broker.controller.active else (1, 0)
    world.call(place_topic("t", (controller,)))
    hold(world, other)
    request = Reassignments({T0: (other,)}).to_json()
    world.zookeeper.connect().create(REASSIGN_PARTITIONS, request, make_parents=True)
    world.settle()
    assert stored(world) == TopicAssignment({0: (other, controller)})
