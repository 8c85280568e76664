"""DescribeProducers: the producers that a log knows."""

from __future__ import annotations

from minikafka.base.errors import ErrorCode
from minikafka.records.format.batch import build_batch
from minikafka.records.format.message_set import Record
from minikafka.wire.api import ApiKey
from minikafka.wire.apis.describe_producers import (
    ActiveProducer,
    DescribeProducersPartition,
    DescribeProducersRequest,
    DescribeProducersTopic,
)
from tests.support import requests
from tests.support.requests import Request
from tests.support.simulation import Simulation


def described(world: Simulation, topic: str, *indexes: int) -> list[DescribeProducersPartition]:
    body = DescribeProducersRequest((DescribeProducersTopic(topic, indexes),))
    (found,) = world.call(Request(ApiKey.DESCRIBE_PRODUCERS, 0, body)).topics
    assert found.name == topic
    return list(found.partitions)


def test_producers_are_described_with_their_epoch_and_sequence() -> None:
    world = Simulation.serving("t", partitions=2)
    for sequence in (0, 1):
        batch = build_batch([Record(None, b"v", 5)], producer_id=7, producer_epoch=3, base_sequence=sequence)
        world.call(requests.produce("t", batch, version=3))
    now_ms = world.clock.now_ms()
    first, second = described(world, "t", 0, 1)
    assert first.active_producers == (ActiveProducer(7, 3, 1, max(5, now_ms), -1, -1),)
    assert (second.error_code, second.active_producers) == (0, ())


def test_unknown_partitions_and_invalid_topics_are_errors() -> None:
    world = Simulation.serving("t")
    assert [row.error_code for row in described(world, "t", 0, 1)] == [0, 3]
    assert [row.error_code for row in described(world, "u", 0)] == [3]
    assert [row.error_code for row in described(world, "no/topic", 0)] == [ErrorCode.INVALID_TOPIC]


def test_a_partition_that_is_named_again_gets_an_error() -> None:
    world = Simulation.serving("t", partitions=2)
    assert [row.error_code for row in described(world, "t", 0, 1, 0)] == [0, 0, ErrorCode.INVALID_REQUEST]
