"""Answers to Metadata requests: when they are made anew, and on which thread."""

from __future__ import annotations

from typing import Any

import pytest

from minikafka.base.errors import ErrorCode
from minikafka.server.core.broker import Broker
from minikafka.server.handlers import metadata
from minikafka.server.workers.work_pool import Steps
from minikafka.wire.api import ApiKey
from minikafka.wire.apis.metadata import (
    METADATA,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    metadata_request,
)
from minikafka.wire.fields import ZERO_UUID
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


UNKNOWN = b"?" * 16


def by_id(*topic_ids: bytes, names: tuple[str, ...] = (), **asked: bool) -> MetadataRequest:
    rows = [MetadataRequestTopic(None, topic_id=topic_id) for topic_id in topic_ids]
    return MetadataRequest((*rows, *map(MetadataRequestTopic, names)), **asked)


def test_topics_are_found_by_their_ids_unknown_ones_first(world: Simulation) -> None:
    known = broker_of(world).metadata_cache.topic_ids["t"]
    unknown, found = world.call(Request(ApiKey.METADATA, 12, by_id(known, UNKNOWN, known))).topics
    assert (unknown.error_code, unknown.name, unknown.topic_id) == (ErrorCode.UNKNOWN_TOPIC_ID, None, UNKNOWN)
    assert (found.error_code, found.name, found.topic_id) == (ErrorCode.NONE, "t", known)
    assert len(found.partitions) == 3


def test_names_beside_ids_do_not_count(world: Simulation) -> None:
    answer = world.call(Request(ApiKey.METADATA, 12, by_id(UNKNOWN, names=("t",))))
    assert [topic.topic_id for topic in answer.topics] == [UNKNOWN]


@pytest.mark.parametrize("version", [10, 11])
@pytest.mark.parametrize("row", [MetadataRequestTopic(None), MetadataRequestTopic("t", topic_id=UNKNOWN)])
def test_request_by_id_before_version_12_is_refused(
    world: Simulation, version: int, row: MetadataRequestTopic
) -> None:
    answer = world.call(Request(ApiKey.METADATA, version, MetadataRequest((row,))))
    assert (answer.brokers, answer.controller_id) == ((), -1)
    (refused,) = answer.topics
    assert (refused.error_code, refused.name) == (ErrorCode.INVALID_REQUEST, row.name or "")


def test_topics_have_ids_since_version_10(world: Simulation) -> None:
    known = broker_of(world).metadata_cache.topic_ids["t"]
    found = {
        version: world.call(Request(ApiKey.METADATA, version, metadata_request(("t",)))).topics[0].topic_id
        for version in (9, 10, 12)
    }
    assert found == {9: ZERO_UUID, 10: known, 12: known}


def test_authorized_operations_are_all_where_nothing_is_authorized(world: Simulation) -> None:
    asked = MetadataRequest((MetadataRequestTopic("t"),), True, True, True)
    answer = world.call(Request(ApiKey.METADATA, 8, asked))
    assert answer.topics[0].topic_authorized_operations == 3576
    assert answer.cluster_authorized_operations == 8096
    asked = by_id(UNKNOWN, include_topic_authorized_operations=True)
    answer = world.call(Request(ApiKey.METADATA, 12, asked))
    assert answer.topics[0].topic_authorized_operations == -(1 << 31)


def test_request_of_librdkafka_for_all_topics_is_served() -> None:
    request = METADATA.decode_request(12, bytes.fromhex("00000000010000"))
    assert request == MetadataRequest(None, allow_auto_topic_creation=False)
