"""Answers to Metadata requests: when they are made anew, and on which thread."""

from __future__ import annotations

from typing import Any

import pytest

from minikafka.server.core.broker import Broker
from minikafka.server.handlers import metadata
from minikafka.server.workers.work_pool import Steps
from minikafka.wire.api import ApiKey
from minikafka.wire.apis.metadata import MetadataResponse, metadata_request
from tests.support.requests import Request
from tests.support.simulation import Simulation

ALL_TOPICS = Request(ApiKey.METADATA, 5, metadata_request(None, False))


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Simulation:
    """A broker with a topic of three partitions, which are many here."""
    monkeypatch.setattr(metadata, "STEP_PARTITIONS", 2)
    return Simulation.serving("t", partitions=3)


def broker_of(world: Simulation) -> Broker:
    return world.machine.broker


def encodings(world: Simulation, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The versions in which answers are encoded from now on."""
    versions: list[int] = []
    real = metadata.join

    def counted(parts: Any) -> bytes:
        versions.append(1)
        return real(parts)

    monkeypatch.setattr(metadata, "join", counted)
    return versions


def test_an_answer_about_all_topics_is_made_once(world: Simulation, monkeypatch: pytest.MonkeyPatch) -> None:
    made = encodings(world, monkeypatch)
    first: MetadataResponse = world.call(ALL_TOPICS)
    assert world.call(ALL_TOPICS) == first
    assert len(first.topics[0].partitions) == 3
    assert len(made) == 1


def test_an_answer_about_all_topics_is_made_once_for_each_listener(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "STEP_PARTITIONS", 2)
    listeners = {
        "listeners": "IN://machine-0:9092,OUT://machine-0:9093",
        "listener.security.protocol.map": "IN:PLAINTEXT,OUT:PLAINTEXT",
    }
    world = Simulation.serving("t", partitions=3, properties=listeners)
    made = encodings(world, monkeypatch)
    ports = []
    for port in (9092, 9093, 9092, 9093):
        world.go_to(port)
        ports.append(world.call(ALL_TOPICS).brokers[0].port)
    assert (ports, len(made)) == ([9092, 9093, 9092, 9093], 2)


def test_a_new_topic_is_in_the_next_answer_about_all(world: Simulation) -> None:
    world.call(ALL_TOPICS)
    world.create_topic("u", partitions=3)
    assert {topic.name for topic in world.call(ALL_TOPICS).topics} == {"t", "u"}


def test_a_partition_that_is_served_no_more_is_told_of_at_once(world: Simulation) -> None:
    broker = broker_of(world)
    assert [part.error_code for part in world.call(ALL_TOPICS).topics[0].partitions] == [0, 0, 0]
    key = next(iter(broker.partitions))
    removed = broker.remove_partition(key)
    assert removed is not None
    codes = {part.index: part.error_code for part in world.call(ALL_TOPICS).topics[0].partitions}
    assert codes.pop(key.partition) != 0
    broker.add_partition(removed)
    assert [part.error_code for part in world.call(ALL_TOPICS).topics[0].partitions] == [0, 0, 0]


class _Pool:
    def __init__(self) -> None:
        self.jobs: list[Steps] = []

    def submit(self, steps: Steps) -> None:
        self.jobs.append(steps)
        for _ in steps:
            pass

    def stop(self) -> None:
        pass


def test_many_partitions_are_described_beside_the_processor(
    world: Simulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = _Pool()
    monkeypatch.setattr(metadata, "PARTITION_BYTES", 100 << 20)
    broker_of(world).pool = pool
    assert len(world.call(ALL_TOPICS).topics[0].partitions) == 3
    assert len(pool.jobs) == 1
