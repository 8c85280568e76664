"""A replica that is moved away while its broker is down, and moved back, without a ZooKeeper restore."""

from __future__ import annotations

import json

import pytest

from minikafka.base.errors import ErrorCode
from minikafka.records.format.message_set import Record, build_message_set
from minikafka.registry import paths
from minikafka.server.admin import topics
from tests.scenarios.test_restored_zookeeper import (
    BROKERS,
    PROPERTIES,
    leader_of,
    produce,
    reassign,
    stray_directories,
    values,
)
from tests.support import requests
from tests.support.simulation import Simulation


@pytest.mark.parametrize("later", [[], [b"b", b"c"]])
def test_uncommitted_messages_go_when_a_replica_is_moved_back(
    later: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topics.random, "randrange", lambda end: 0)  # the first leader
    simulation = Simulation()
    machines = simulation.start_brokers(BROKERS, PROPERTIES)
    assert simulation.create_topic("t", replicas=2) == ErrorCode.NONE
    produce(simulation, b"a")
    simulation.pass_time(5_000)
    old, _ = leader_of(simulation)
    store = simulation.zookeeper.connect()
    (other,) = {*json.loads(store.read(paths.partition_state_path("t", 0))[0])["isr"]} - {old}
    machines[other].kill()
    simulation.move_to(f"machine-{old}")
    message = build_message_set([Record(None, b"uncommitted", simulation.clock.now_ms())])
    answer = simulation.call(requests.produce("t", message, acks=1))
    assert answer.topics[0].partitions[0].error_code == ErrorCode.NONE
    machines[old].kill()
    for number in (old, other):
        simulation.zookeeper.expire(machines[number].store)
    simulation.pass_time(2_000)
    machines[other].start(PROPERTIES)
    simulation.pass_time(5_000)
    for value in later:
        produce(simulation, value)
    reassign(simulation, other, BROKERS - old - other)
    machines[old].start(PROPERTIES)
    simulation.pass_time(5_000)
    reassign(simulation, other, old)
    assert leader_of(simulation)[0] == other
    assert values(simulation) == [b"a", *later]
    assert stray_directories(machines[old]) == []
    store.close()
