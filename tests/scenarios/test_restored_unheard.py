"""ZooKeeper restored from an older copy, and a broker that learns of it late: it was paused or isolated."""

from __future__ import annotations

import pytest

from minikafka.base.ids import TopicPartition
from minikafka.server.admin import topics
from tests.scenarios.test_restored_zookeeper import (
    BROKERS,
    PROPERTIES,
    bounce,
    create_topic,
    leader_of,
    produce,
    reassign,
)
from tests.support.simulation import Simulation


@pytest.mark.parametrize("bounces", [0, 1, 2, 3])
def test_late_restore_notice_ends_leadership_of_moved_partition(
    bounces: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topics.random, "randrange", lambda end: 0)  # the replica
    simulation = Simulation()
    machines = simulation.start_brokers(BROKERS, PROPERTIES)
    create_topic(simulation, "t", 1)
    produce(simulation, b"a")
    before, copy = leader_of(simulation)[0], simulation.zookeeper.copy()
    unheard = (before + 1) % BROKERS
    reassign(simulation, unheard)
    produce(simulation, b"b")
    simulation.zookeeper.restore(copy)
    machines[unheard].held = True
    others = [machine for number, machine in enumerate(machines) if number != unheard]
    for machine in others:
        machine.kill()
    simulation.zookeeper.end_stray_sessions()
    for machine in others:
        machine.start(PROPERTIES)
    simulation.pass_time(10_000)
    for _ in range(bounces):
        bounce(simulation, machines[before])
    machines[unheard].held = False
    simulation.pass_time(20_000)
    simulation.end_stray_sessions(20_000)
    broker = machines[unheard].broker
    assert TopicPartition("t", 0) not in broker.partitions
    log = broker.logs.get(TopicPartition("t", 0))
    assert log is not None
    assert log.end_offset == 2
    assert leader_of(simulation)[0] == before
