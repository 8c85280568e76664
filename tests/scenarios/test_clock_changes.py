"""Wall clocks set forward or back under brokers: leaders, ISRs, sessions and offsets are not affected."""

from __future__ import annotations

import pytest

from minikafka.base.errors import ErrorCode
from minikafka.registry import paths
from minikafka.registry.topics import PartitionState
from tests.support import requests
from tests.support.simulation import Simulation

BROKERS = 3
PROPERTIES = {
    "replica.lag.time.max.ms": "3000",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
}
DAY_MS = 86_400_000
"""Longer than sessions, lags and time-outs; shorter than what keeps messages and offsets."""
STARTED_MS = 1_700_000_000_000


class Group:
    """One member of a group on the coordinator, machine 0."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        for _ in range(20):
            found = simulation.call(requests.find_coordinator())
            if found.error_code == ErrorCode.NONE:
                break
            simulation.pass_time(500)
        simulation.move_to(found.host)
        joined = simulation.call(requests.join_group())
        assert joined.error_code == ErrorCode.NONE, joined
        self._id, self._generation, self._host = joined.member_id, joined.generation_id, found.host
        sync = requests.sync_group("g", self._generation, self._id, {self._id: b""})
        assert simulation.call(sync).error_code == ErrorCode.NONE

    def heartbeat(self) -> None:
        self._simulation.move_to(self._host)
        beat = requests.heartbeat("g", self._generation, self._id)
        assert self._simulation.call(beat).error_code == ErrorCode.NONE

    def stay_for(self, ms: int) -> None:
        """Send a heartbeat every half a second."""
        for _ in range(ms // 500):
            self._simulation.pass_time(500)
            self.heartbeat()

    def commit(self, offset: int) -> None:
        self._simulation.move_to(self._host)
        commit = requests.commit_offsets(
            "t", offsets={0: offset}, generation=self._generation, member_id=self._id
        )
        done = self._simulation.call(commit)
        assert done.topics[0].partitions[0].error_code == ErrorCode.NONE, done

    def committed(self) -> int:
        self._simulation.move_to(self._host)
        found = self._simulation.call(requests.fetch_offsets("t"))
        offset: int = found.topics[0].partitions[0].committed_offset
        return offset


def state_of(simulation: Simulation) -> PartitionState:
    store = simulation.zookeeper.connect()
    path = paths.partition_state_path("t", 0)
    state = PartitionState.from_json(store.read(path)[0], path)
    store.close()
    return state


def produce(simulation: Simulation, value: bytes) -> int:
    simulation.move_to(f"machine-{state_of(simulation).leader}")
    answer = simulation.produce("t", value)
    assert answer.error_code == ErrorCode.NONE, answer
    offset: int = answer.base_offset
    return offset


@pytest.mark.parametrize("jumps_ms", [(DAY_MS,), (-DAY_MS,), (DAY_MS, -2 * DAY_MS, 3 * DAY_MS)])
@pytest.mark.parametrize("kind", ["CreateTime", "LogAppendTime"])
def test_clock_changes_keep_leaders_isrs_and_groups(jumps_ms: tuple[int, ...], kind: str) -> None:
    simulation = Simulation()
    simulation.clock.adjust_wall_clock(STARTED_MS)
    machines = simulation.start_brokers(BROKERS, PROPERTIES)
    settings = {"message.timestamp.type": kind, "segment.bytes": "300", "segment.index.bytes": "1000"}
    assert simulation.create_topic("t", replicas=BROKERS, settings=settings) == 0
    simulation.pass_time(3_000)
    group = Group(simulation)
    before, count = state_of(simulation), 0
    for jump_ms in jumps_ms:
        for _ in range(5):
            assert produce(simulation, b"%d" % count) == count
            count += 1
        group.commit(count)
        simulation.clock.adjust_wall_clock(jump_ms)
        group.stay_for(12_000)
        assert group.committed() == count
        for _ in range(5):
            assert produce(simulation, b"%d" % count) == count
            count += 1
        group.stay_for(12_000)
        assert state_of(simulation) == before
    simulation.move_to(f"machine-{before.leader}")
    assert [record.value for record in simulation.records("t")] == [b"%d" % n for n in range(count)]
    for machine in machines:
        machine.kill()
        machine.start(PROPERTIES)
    simulation.pass_time(20_000)
    simulation.move_to(f"machine-{state_of(simulation).leader}")
    assert [record.value for record in simulation.records("t")] == [b"%d" % n for n in range(count)]
