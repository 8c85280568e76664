"""ZooKeeper restored from an older copy, and compacted logs: removed messages are no divergence."""

from __future__ import annotations

import pytest

from minikafka.base.errors import ErrorCode
from minikafka.records.format.message_set import Record, build_message_set
from minikafka.server.admin import topics
from tests.scenarios.test_restored_zookeeper import BROKERS, PROPERTIES, bounce, leader_of, values
from tests.support import requests
from tests.support.simulation import Simulation

CLEANED = {**PROPERTIES, "log.cleaner.backoff.ms": "1000", "log.cleaner.dedupe.buffer.size": "65536"}
COMPACTED = {"cleanup.policy": "compact", "segment.bytes": "80", "min.cleanable.dirty.ratio": "0.01"}


def put(simulation: Simulation, key: bytes, value: bytes) -> None:
    """Produce to the leader until the message is acknowledged."""
    for _ in range(60):
        leader, _ = leader_of(simulation)
        if leader >= 0 and simulation.machine_of(leader).running is not None:
            simulation.move_to(f"machine-{leader}")
            record = Record(key, value, simulation.clock.now_ms())
            answer = simulation.call(requests.produce("t", build_message_set([record])))
            if answer.topics[0].partitions[0].error_code == ErrorCode.NONE:
                return
        simulation.pass_time(500)
    raise AssertionError(f"{value!r} was not acknowledged within 30 s")


@pytest.mark.parametrize("first", [0, 1, 2])
@pytest.mark.parametrize("bounced", [False, True])
def test_replica_down_since_the_copy_keeps_compacted_logs_of_others(
    first: int, bounced: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topics.random, "randrange", lambda end: first)  # the first leader
    simulation = Simulation()
    machines = simulation.start_brokers(BROKERS, CLEANED)
    assert simulation.create_topic("t", replicas=BROKERS, settings=COMPACTED) == ErrorCode.NONE
    put(simulation, b"k", b"0")
    put(simulation, b"k", b"1")
    copy = simulation.zookeeper.copy()
    machines[0].kill()
    simulation.zookeeper.expire(machines[0].store)
    simulation.pass_time(6_000)
    for number in range(6):
        put(simulation, b"k", b"new %d" % number)
    simulation.pass_time(5_000)
    if bounced:
        bounce(simulation, machines[1], CLEANED)
        put(simulation, b"k", b"newest")
    before = values(simulation)
    assert b"1" not in before
    for machine in machines[1:]:
        machine.stop()
    simulation.zookeeper.restore(copy)
    simulation.zookeeper.end_stray_sessions()
    for machine in machines:
        machine.start(CLEANED)
        simulation.pass_time(4_000)
    simulation.pass_time(5_000)
    assert values(simulation)[-1] == before[-1]
