"""Many offsets that expire at once."""

from __future__ import annotations

from collections.abc import Mapping

from minikafka.base.ids import OFFSETS_TOPIC, TopicPartition
from minikafka.groups.messages import NEVER_MS, OffsetCommitValue
from minikafka.server.groups.group_coordinator import GroupCoordinator
from tests.support import requests
from tests.support.simulation import Simulation

AT_ONCE = 1_000
FIND = requests.find_coordinator().at(2)
SETTINGS = {"offsets.topic.num.partitions": "1", "offsets.retention.minutes": "1"}


def with_offsets(coordinator: GroupCoordinator, **counts: int) -> None:
    """Commit the given number of offsets of each group, from outside the group."""
    for group_id, count in counts.items():
        commits = {
            TopicPartition("t", number): OffsetCommitValue(
                1, -1, "", coordinator.broker.clock.now_ms(), NEVER_MS
            )
            for number in range(count)
        }
        for start in range(0, count, AT_ONCE):
            part = dict(list(commits.items())[start : start + AT_ONCE])
            coordinator.commit(group_id, "", -1, part, lambda error: None)


def coordinating(more: Mapping[str, str] | None = None) -> tuple[Simulation, GroupCoordinator]:
    """A broker that coordinates the group."""
    simulation = Simulation.serving(properties={**SETTINGS, **(more or {})})
    simulation.call(FIND)
    simulation.settle()
    assert simulation.machine.running is not None
    return simulation, simulation.machine.running.housekeeper._coordinator


def test_offsets_expire_in_bounded_steps() -> None:
    simulation, coordinator = coordinating()
    with_offsets(coordinator, a=300, b=2_500, c=300)
    simulation.clock.advance(61_000)
    with_offsets(coordinator, d=5)
    log = simulation.machine.broker.partitions[TopicPartition(OFFSETS_TOPIC, 0)].log
    written: list[int] = []
    more = True
    while more:
        before = log.end_offset
        more = coordinator.expire()
        written.append(log.end_offset - before)
    assert sum(written) == 3_100
    assert max(written) == AT_ONCE
    assert [group.group_id for group in coordinator.groups()[1]] == ["d"]
    assert len(coordinator.offsets("d")) == 5


def test_housekeeper_expires_all_old_offsets() -> None:
    simulation, coordinator = coordinating({"offsets.retention.check.interval.ms": "600000"})
    with_offsets(coordinator, b=2_500)
    simulation.network.wait(lambda: False, simulation.clock.monotonic_ms() + 601_000)
    assert coordinator.groups()[1] == []
