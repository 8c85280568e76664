"""ZooKeeper restored from an older copy, and a broker that learns of it late: it was paused or isolated."""

from __future__ import annotations

import pytest

from minikafka.base.ids import TopicPartition
from minikafka.server.admin import topics
from tests.scenarios.test_restored_zookeeper import (
    BROKERS,
    PROPERTIES,
    create_topic,
    leader_of,
    pass_time,
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
    machines = [simulation.machine_of(number) for number in range(BROKERS)]
    for machine in machines:
        machine.start(PROPERTIES)
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
    pass_time(simulation, 10_000)
    for _ in range(bounces):
        machines[before].stop()
        pass_time(simulation, 4_000)
        machines[before].start(PROPERTIES)
        pass_time(simulation, 6_000)
    machines[unheard].held = False
    pass_time(simulation, 20_000)
    simulation.zookeeper.end_stray_sessions()
    pass_time(simulation, 20_000)
    running = machines[unheard].running
    assert running is not None
    assert TopicPartition("t", 0) not in running.broker.partitions
    log = running.broker.logs.get(TopicPartition("t", 0))
    assert log is not None
    assert log.end_offset == 2
    assert leader_of(simulation)[0] == before
