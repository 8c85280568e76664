"""Scenarios that scripts cannot express: random faults with a seed, and injected bugs."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from minikafka.base.errors import ErrorCode, StorageError
from minikafka.log.reading import LogRead
from minikafka.partition.partition import Partition
from minikafka.records.down_conversion import DownConverter
from minikafka.server.workers.worker import Job
from tests.support.raising import raising
from tests.support.requests import fetch, metadata
from tests.support.seeds import seeds
from tests.support.simulation import Simulation

DURABLE = {"log.flush.interval.messages": "1"}


@pytest.mark.parametrize("seed", seeds(20))
def test_an_acknowledged_and_flushed_message_survives_a_power_cut(seed: int) -> None:
    simulation = Simulation(seed)
    simulation.machine.start(DURABLE)
    simulation.create_topic("t")
    for number in range(5):
        assert simulation.produce("t", b"%d" % number).error_code == ErrorCode.NONE
    simulation.machine.power_cut(partly=True)
    simulation.machine.start(DURABLE)
    assert [record.value for record in simulation.records("t")] == [b"0", b"1", b"2", b"3", b"4"]


@pytest.mark.parametrize("seed", seeds(10))
def test_log_after_a_power_cut_is_a_prefix_and_continues(seed: int) -> None:
    simulation = Simulation(seed)
    simulation.machine.start()
    simulation.create_topic("t")
    for number in range(50):
        simulation.produce("t", b"%d" % number + b" " * 500)
    simulation.machine.power_cut(partly=True)
    simulation.machine.start()
    kept = [int(record.value or b"") for record in simulation.records("t")]
    assert kept == list(range(len(kept)))
    assert simulation.produce("t", b"more").base_offset == len(kept)


def test_failed_down_conversion_closes_only_its_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    simulation = Simulation.serving("t")
    poisoned, healthy = simulation.another_client(), simulation.another_client()
    monkeypatch.setattr(DownConverter, "steps", raising(ValueError("an injected bug")))
    poisoned.begin(fetch("t", version=1, wait_ms=30_000))
    healthy.begin(fetch("t", version=2, wait_ms=30_000))
    assert simulation.produce("t", b"x").error_code == ErrorCode.NONE
    assert healthy.finish().topics[0].partitions[0].records
    assert poisoned.connection is not None
    assert poisoned.connection.closed


def test_unreadable_data_for_down_conversion_is_a_partition_error(monkeypatch: pytest.MonkeyPatch) -> None:
    simulation = Simulation.serving("t")
    simulation.produce("t", b"x")
    monkeypatch.setattr(DownConverter, "steps", raising(StorageError("unreadable")))
    assert simulation.fetch("t", version=1).error_code == ErrorCode.NOT_LEADER_FOR_PARTITION  # as it knows


def test_topic_requested_by_many_is_created_once(monkeypatch: pytest.MonkeyPatch) -> None:
    simulation = Simulation.serving()
    worker = simulation.machine.broker.worker
    simulation.zookeeper.suspend(simulation.machine.store)
    submitted: list[Job] = []
    submit = worker.submit

    def count(job: Job) -> None:
        submitted.append(job)
        submit(job)

    monkeypatch.setattr(worker, "submit", count)
    for _ in range(20):
        simulation.call(metadata("wanted"))
    assert len(submitted) == 1
    simulation.zookeeper.resume(simulation.machine.store)
    simulation.settle()
    assert simulation.call(metadata("wanted")).topics[0].error_code == ErrorCode.NONE


def test_fetch_reads_without_the_brokers_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    simulation = Simulation.serving("t")
    simulation.produce("t", b"x")
    broker = simulation.machine.broker
    monkeypatch.setattr(broker, "run", lambda step: pytest.fail("a fetch took the lock"))
    assert simulation.fetch("t").records
    assert simulation.fetch("t", 7).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_fetch_of_a_duplicate_partition_reads_it_once(monkeypatch: pytest.MonkeyPatch) -> None:
    simulation = Simulation.serving("t")
    simulation.produce("t", b"x")
    reads = []

    def read(partition: Partition, offset: int, *arguments: Any, **options: Any) -> LogRead:
        reads.append(offset)
        return whole(partition, offset, *arguments, **options)

    whole = Partition.read
    monkeypatch.setattr(Partition, "read", read)
    once = fetch("t")
    (topic,) = once.body.topics
    again = dataclasses.replace(topic, partitions=topic.partitions * 100)
    answer = simulation.call(dataclasses.replace(once, body=dataclasses.replace(once.body, topics=(again,))))
    assert {part.error_code for part in answer.topics[0].partitions} == {ErrorCode.INVALID_REQUEST}
    assert len(reads) == 1
