"""ISRs that leaders have written, many at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from minikafka.base.clock import ManualClock
from minikafka.base.errors import CoordinationError, CoordinationLost
from minikafka.base.ids import TopicPartition
from minikafka.base.memory_files import MemoryFiles
from minikafka.log.config import LogConfig
from minikafka.log.layout import Layout
from minikafka.log.manager import LogManager
from minikafka.partition.partition import Partition
from minikafka.partition.replica import LeaderAndIsr
from minikafka.server.metrics.broker_metrics import BrokerMetrics
from minikafka.server.replication.isr_writer import IsrWriter

NAMES = tuple(TopicPartition("t", index) for index in range(2))


class States:
    """The state znodes: what a write raises, or takes."""

    def __init__(self) -> None:
        self.failures: list[CoordinationError] = []
        self.reported: list[set[TopicPartition]] = []

    def report_isr_changes(self, partitions: Iterable[TopicPartition]) -> None:
        self.reported.append(set(partitions))

    def write(self, wanted: Mapping[TopicPartition, LeaderAndIsr]) -> dict[TopicPartition, LeaderAndIsr]:
        if self.failures:
            raise self.failures.pop(0)
        return dict(wanted)


def broker_of(states: States, jobs: list[Callable[[], None]]) -> Any:
    """Broker 1, whose followers, 2, lag."""
    clock = ManualClock(0)
    logs = LogManager(MemoryFiles(), ["data"], LogConfig(), Layout.CLASSIC, clock)
    logs.open_all()
    partitions = {name: Partition(name, logs.create(name), 1) for name in NAMES}
    for partition in partitions.values():
        partition.apply_leadership(LeaderAndIsr(1, 0, (1, 2), (1, 2), 1, 0), 0)
    clock.advance(60_000)
    return SimpleNamespace(
        clock=clock,
        logs=logs,
        partitions=partitions,
        config=SimpleNamespace(replication=SimpleNamespace(lag_time_max_ms=10_000)),
        zk_client=SimpleNamespace(creations=lambda topics: {}, states=states),
        worker=SimpleNamespace(submit=jobs.append),
        run=lambda step: step(),
        touch=lambda key: None,
        metrics=BrokerMetrics(),
    )


def isrs(broker: Any) -> list[tuple[int, ...]]:
    return [partition.leadership.isr for partition in broker.partitions.values()]


def test_where_one_cannot_be_written_all_are_tried_again() -> None:
    states, jobs = States(), list[Callable[[], None]]()
    broker = broker_of(states, jobs)
    in_sync = IsrWriter(broker)
    states.failures = [CoordinationError("not authorised to write")]
    in_sync.shrink_isrs()
    (job,) = jobs
    job()
    assert isrs(broker) == [(1, 2), (1, 2)]
    in_sync.shrink_isrs()
    jobs[1]()
    assert isrs(broker) == [(1,), (1,)]


def test_a_lost_connection_has_the_same_job_run_again() -> None:
    states, jobs = States(), list[Callable[[], None]]()
    broker = broker_of(states, jobs)
    in_sync = IsrWriter(broker)
    states.failures = [CoordinationLost("away")]
    in_sync.shrink_isrs()
    (job,) = jobs
    with pytest.raises(CoordinationLost):
        job()
    job()
    assert isrs(broker) == [(1,), (1,)]


def test_expanded_isr_is_reported_at_once_and_a_shrunk_one_later() -> None:
    states, jobs = States(), list[Callable[[], None]]()
    broker = broker_of(states, jobs)
    in_sync = IsrWriter(broker)
    in_sync.shrink_isrs()
    jobs.pop()()
    assert jobs == []
    partition = broker.partitions[NAMES[0]]
    in_sync.write(partition, replace(partition.leadership, isr=(1, 2), version=2))
    jobs.pop(0)()
    jobs.pop(0)()
    assert states.reported == [{NAMES[0]}]
    broker.clock.advance(60_000)
    in_sync.report_changes()
    jobs.pop()()
    assert states.reported[1:] == [set(NAMES)]
