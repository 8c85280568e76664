"""What a look-up by time needs of the broker's pool."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from minikafka.base.errors import ErrorCode
from minikafka.base.ids import TopicPartition
from minikafka.net.request_times import RequestTimes
from minikafka.records.format.message_set import Codec, Record, build_message_set
from minikafka.server.context import RequestContext
from minikafka.server.handlers import list_offsets
from minikafka.server.workers.work_pool import SMALL_BYTES
from minikafka.wire.api import ApiKey
from minikafka.wire.api_table import APIS
from minikafka.wire.apis.list_offsets import (
    EARLIEST,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from minikafka.wire.framing import RequestHeader
from tests.support import requests
from tests.unit.server.handlers.test_produce import ProduceSimulation


def look_up(world: ProduceSimulation, timestamp_ms: int) -> tuple[list[int], int]:
    """What its steps need, and the offset that is found."""
    client = world.another_client()
    client.begin(requests.list_offsets("t", timestamp_ms=timestamp_ms))
    needs = list(world.pool.jobs.popleft())
    (found,) = client.finish().topics[0].partitions
    assert found.error_code == ErrorCode.NONE
    return needs, found.offset


def append(world: ProduceSimulation, codec: Codec, size: int, timestamp_ms: int) -> None:
    client = world.pending(
        build_message_set([Record(b"k", bytes(size), timestamp_ms)], magic=2, codec=codec), version=7
    )
    world.pool.run()
    client.finish()


def test_usual_batches_are_looked_up_beside_large_content() -> None:
    world = ProduceSimulation()
    for number, codec in enumerate(Codec):
        append(world, codec, 1_000, 10 + number)
    for number in range(len(Codec)):
        needs, offset = look_up(world, 10 + number)
        assert offset == number
        assert 0 < max(needs) <= SMALL_BYTES
    needs, offset = look_up(world, 99)
    assert offset == -1


def test_only_large_content_needs_much_and_as_much_as_it_is() -> None:
    world = ProduceSimulation()
    append(world, Codec.NONE, 10, 1)
    append(world, Codec.ZSTD, 20 << 20, 2)
    append(world, Codec.ZSTD, 10, 3)
    needs, offset = look_up(world, 2)
    assert offset == 1
    assert 20 << 20 <= max(needs) <= 40 << 20
    needs, offset = look_up(world, 3)
    assert offset == 2
    assert max(needs) <= SMALL_BYTES


def test_what_is_behind_large_content_that_does_not_have_it_is_found() -> None:
    world = ProduceSimulation()
    records = [Record(b"k", bytes(20 << 20), 5), Record(b"k", b"", 4)]
    client = world.pending(build_message_set(records, magic=2, codec=Codec.ZSTD), version=7)
    world.pool.run()
    client.finish()
    append(world, Codec.NONE, 10, 6)
    log = world.broker.partition(TopicPartition("t", 0)).log
    log.increment_start_offset(1)
    assert log.offset_for_timestamp(5) == (2, 6)


def test_old_look_ups_of_many_partitions_are_steps_that_need_nothing() -> None:
    world = ProduceSimulation()
    append(world, Codec.NONE, 10, 1)
    parts = (ListOffsetsPartition(0, -1, -1, 5),) * 300
    request = ListOffsetsRequest(-1, 0, (ListOffsetsTopic("t", parts),))
    answers: list[object] = []
    exchange = SimpleNamespace(respond=answers.append, times=RequestTimes())
    steps = list_offsets._serve(world.broker, context_of(0, exchange), request)
    assert list(steps) == [0] * 300
    assert len(answers) == 1


def test_offsets_above_the_high_watermark_are_given_once_and_in_order() -> None:
    partition: Any = SimpleNamespace(
        high_watermark=5, log=SimpleNamespace(offsets_before=lambda *_, **__: [9, 7, 5, 3, 0])
    )
    assert list_offsets._offsets_before(partition, 1, 10, 2) == (5, 3, 0)


@pytest.mark.parametrize(
    ("timestamp", "lags_told"),
    [(-1, True), (99, True), (-2, False), (1, False), (-3, False), (-4, False), (-5, False)],
)
def test_new_leader_returns_no_latest_offset_until_it_catches_up(
    timestamp: int, lags_told: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = ProduceSimulation()
    append(world, Codec.NONE, 10, 1)
    found = world.broker.partition(TopicPartition("t", 0))
    monkeypatch.setattr(type(found), "is_high_watermark_behind", True)
    topic = ListOffsetsTopic("t", (ListOffsetsPartition(0, -1, timestamp, 1),))

    def code(version: int, replica: int = -1) -> int:
        client = world.another_client()
        body = ListOffsetsRequest(replica, 0, (topic,))
        client.begin(requests.Request(ApiKey.LIST_OFFSETS, version, body))
        world.pool.run()
        return int(client.finish().topics[0].partitions[0].error_code)

    old, new = ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.OFFSET_NOT_AVAILABLE
    expected = (old, old, new, new) if lags_told else (ErrorCode.NONE,) * 4
    versions = (1, 4, 5, 9) if timestamp >= EARLIEST else (9,)
    assert [code(version) for version in versions] == [*expected[: len(versions)]]
    assert code(0) == ErrorCode.NONE
    if timestamp == -1:
        assert code(1, replica=2) == ErrorCode.NONE


def context_of(version: int, exchange: Any) -> RequestContext:
    header = RequestHeader(ApiKey.LIST_OFFSETS, version, 1, "old")
    return RequestContext(header, APIS[ApiKey.LIST_OFFSETS], exchange)
