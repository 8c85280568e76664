"""Where a produce request is served: a small one where it was received, a large one in the broker's pool."""

from __future__ import annotations

import functools
import tracemalloc
from types import SimpleNamespace
from typing import Any

import pytest

from minikafka.base.clock import ManualClock
from minikafka.base.errors import ErrorCode
from minikafka.base.ids import TopicPartition
from minikafka.partition.partition import LogAppendResult
from minikafka.records.append.produced import Limits, ValidatedRecords
from minikafka.records.append.validation import assign, prepare
from minikafka.records.format.compression import ContentBudget
from minikafka.records.format.message_set import Codec, Record, build_message_set
from minikafka.server.handlers import produce
from minikafka.server.metrics.broker_metrics import BrokerMetrics
from minikafka.wire.api import ApiKey
from minikafka.wire.apis.produce import ProducePartition, ProduceRequest, ProduceTopic
from tests.support import requests
from tests.support.holding_pool import HoldingPool
from tests.support.simulation import Simulation


class ProduceSimulation(Simulation):
    """One broker with such a pool, and the topic ``t``."""

    def __init__(self, partitions: int = 1, **settings: str) -> None:
        super().__init__()
        self.machine.start()
        configs = {key.replace("_", "."): value for key, value in settings.items()}
        self.create_topic("t", partitions=partitions, settings=configs)
        self.broker = self.machine.broker
        self.pool = self.broker.pool = HoldingPool()

    def pending(self, *arguments: Any, **named: Any) -> Any:
        """A produce request on a connection of its own: its client, whose answer may be still to come."""
        client = self.another_client()
        client.begin(requests.produce("t", *arguments, **named))
        return client

    def end_offset(self, partition: int) -> int:
        """How many records a partition of ``t`` got."""
        return self.broker.partition(TopicPartition("t", partition)).log.end_offset


def batch(codec: Codec = Codec.NONE, size: int = 10, magic: int = 2) -> bytes:
    return build_message_set([Record(b"k", bytes(size), 1)], magic=magic, codec=codec)


def codes(client: Any) -> list[int]:
    return [part.error_code for part in client.finish().topics[0].partitions]


@pytest.mark.parametrize("codec", list(Codec))
def test_a_small_request_is_served_where_it_was_received(codec: Codec) -> None:
    world = ProduceSimulation()
    client = world.pending(batch(codec, 1_000), version=7)
    assert client.answered()
    assert not world.pool.jobs
    assert codes(client) == [ErrorCode.NONE]


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_large_compressed_content_is_opened_in_the_pool(codec: Codec) -> None:
    world = ProduceSimulation(3)
    client = world.pending(batch(codec, 600_000), version=7, partitions=(0, 1, 2))
    assert not client.answered()
    assert world.pool.run() >= 2
    assert codes(client) == [ErrorCode.NONE] * 3


@pytest.mark.parametrize("magic", [0, 1])
def test_large_wrappers_are_opened_in_the_pool(magic: int) -> None:
    world = ProduceSimulation()
    client = world.pending(batch(Codec.GZIP, 600_000, magic) * 3)
    assert not client.answered()
    assert world.pool.run() >= 3
    assert codes(client) == [ErrorCode.NONE]
    assert [record.value for record in world.records("t")] == [bytes(600_000)] * 3


def test_a_request_for_many_partitions_is_served_in_the_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(produce, "LIGHT_PARTITIONS", 2)
    world = ProduceSimulation(5)
    client = world.pending(batch(), version=7, partitions=(0, 1, 2, 3, 4))
    assert world.pool.run() >= 5
    assert codes(client) == [ErrorCode.NONE] * 5


def test_a_large_plain_request_is_served_in_the_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(produce, "LIGHT_BYTES", 1_000)
    world = ProduceSimulation(2)
    client = world.pending(batch(size=1_000), version=7, partitions=(0, 1))
    assert not client.answered()
    assert world.pool.run() >= 2
    assert codes(client) == [ErrorCode.NONE] * 2


def test_recompression_for_the_topic_runs_in_the_pool() -> None:
    world = ProduceSimulation(compression_type="gzip")
    client = world.pending(batch(size=200_000), version=7)
    assert not client.answered()
    world.pool.run()
    assert codes(client) == [ErrorCode.NONE]
    (record,) = world.records("t")
    assert (record.codec, record.value) == (Codec.GZIP, bytes(200_000))


def test_refusals_of_a_large_request_are_each_partitions_own() -> None:
    world = ProduceSimulation(1)
    damaged = bytearray(batch(Codec.GZIP, 2_000_000))
    client = world.pending(bytes(damaged), version=7, partitions=(0, 1))
    world.pool.run()
    assert codes(client) == [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


def test_a_failed_large_request_without_an_answer_ends_its_connection() -> None:
    world = ProduceSimulation()
    client = world.pending(batch(Codec.GZIP, 2_000_000)[:-1] + b"x", version=3, acks=0)
    world.pool.run()
    world.network.run()
    assert client.connection.closed


@pytest.mark.parametrize(("others", "code"), [(2, ErrorCode.NONE), (99, ErrorCode.REQUEST_TIMED_OUT)])
def test_wrappers_are_prepared_again_after_concurrent_appends(
    monkeypatch: pytest.MonkeyPatch, others: int, code: ErrorCode
) -> None:
    world = ProduceSimulation()
    appended = []

    def prepare_too_early(valid: ValidatedRecords, offset: int, *budget: ContentBudget) -> ValidatedRecords:
        prepared = prepare(valid, offset, *budget)
        if valid.wrappers and len(appended) < others:
            appended.append(world.produce("t", b"other").error_code)
        return prepared

    client = world.pending(batch(Codec.GZIP, 600_000, 0) * 2)
    monkeypatch.setattr(produce, "prepare", prepare_too_early)
    world.pool.run()
    assert codes(client) == [code]
    written = 2 if code is ErrorCode.NONE else 0
    assert [record.offset for record in world.records("t")] == list(range(len(appended) + written))


def test_a_request_that_waited_too_long_for_the_pool_is_refused() -> None:
    world = ProduceSimulation()
    client = world.pending(batch(Codec.GZIP, 2_000_000), version=3)
    world.clock.advance(produce.QUEUE_TIMEOUT_MS + 1)
    world.pool.run()
    assert codes(client) == [ErrorCode.REQUEST_TIMED_OUT]
    assert world.records("t") == []


def test_what_is_written_anew_is_appended_before_more_is_opened() -> None:
    world = ProduceSimulation(6, compression_type="uncompressed")
    client = world.pending(batch(Codec.ZSTD, 600_000), version=7, partitions=tuple(range(6)))
    (steps,) = world.pool.jobs
    appended = {sum(map(world.end_offset, range(6))) for _ in steps}
    assert appended >= set(range(5))
    world.pool.run()
    assert codes(client) == [ErrorCode.NONE] * 6


def test_refusals_among_what_is_appended_early_keep_their_places() -> None:
    world = ProduceSimulation(4, compression_type="uncompressed")
    good, damaged = batch(Codec.ZSTD, 600_000), batch(Codec.ZSTD, 600_000)[:-1] + b"x"
    records = {0: good, 1: damaged, 2: good, 9: good, 3: good}
    parts = tuple(ProducePartition(number, data) for number, data in records.items())
    again = ProducePartition(2, good)
    client = world.another_client()
    body = ProduceRequest(None, -1, 1000, (ProduceTopic("t", (*parts, again)),))
    client.begin(requests.Request(ApiKey.PRODUCE, 7, body))
    world.pool.run()
    twice = ErrorCode.INVALID_REQUEST
    assert codes(client) == [
        ErrorCode.NONE,
        ErrorCode.CORRUPT_MESSAGE,
        twice,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NONE,
        twice,
    ]
    assert [world.end_offset(number) for number in range(4)] == [1, 0, 0, 1]


def test_records_validated_at_once_are_appended_once() -> None:
    world = ProduceSimulation(8, compression_type="uncompressed")
    sizes = [100_000] * 4 + [900_000] * 4
    parts = tuple(ProducePartition(number, batch(Codec.ZSTD, size)) for number, size in enumerate(sizes))
    client = world.another_client()
    body = ProduceRequest(None, 1, 1000, (ProduceTopic("t", parts),))
    client.begin(requests.Request(ApiKey.PRODUCE, 7, body))
    world.pool.run()
    assert codes(client) == [ErrorCode.NONE] * 8
    assert [world.end_offset(number) for number in range(8)] == [1] * 8


class ForgettingPartition:
    """A partition that writes nowhere."""

    def __init__(self, topic_partition: TopicPartition) -> None:
        limits = Limits(max_magic=2, codec=Codec.NONE)
        config = SimpleNamespace(message_limits=limits)
        self.topic_partition = topic_partition
        self.log = SimpleNamespace(config=config, end_offset=0, start_offset=0)

    def append(
        self, valid: ValidatedRecords, *, all_in_sync: bool, now_ms: int, guard: None
    ) -> LogAppendResult:
        return LogAppendResult(assign(valid, 0), must_flush=False, leader_epoch=0)


def test_small_request_for_many_partitions_keeps_little_memory() -> None:
    broker: Any = SimpleNamespace(
        clock=ManualClock(),
        partition=functools.cache(ForgettingPartition),
        run=lambda step: step(),
        touch=lambda topic_partition: None,
        metrics=BrokerMetrics(),
    )
    answers: list[Any] = []
    header = SimpleNamespace(client_id="c")
    context: Any = SimpleNamespace(version=7, header=header, listener="PLAINTEXT", reply=answers.append)
    data = batch(Codec.ZSTD, 900_000)
    parts = tuple(ProducePartition(number, bytearray(data)) for number in range(40))
    request = ProduceRequest(None, 1, 1000, (ProduceTopic("t", parts),))
    tracemalloc.start()
    try:
        for _ in produce.serve(broker, context, request):
            pass
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(answers[0].topics[0].partitions) == 40
    assert peak < 9_000_000
