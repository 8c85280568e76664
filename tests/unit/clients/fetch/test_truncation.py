"""``clients``: readers of a partition of which an unclean election has removed what they have read."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from minikafka.base.errors import BrokerError, ErrorCode, LogTruncated
from minikafka.base.ids import TopicPartition
from minikafka.clients.fetch.fetch_state import PositionEpochs
from minikafka.clients.fetch.list_offsets import LATEST, list_offsets
from minikafka.clients.fetch.range_fetcher import RangeFetcher
from minikafka.clients.group.config import GroupConsumerConfig, Reset
from minikafka.clients.group.consumer import GroupConsumer
from minikafka.clients.network.cluster import ClusterClient
from minikafka.records.format.message_set import iterate
from minikafka.wire.api import ApiKey
from minikafka.wire.apis.offset_for_leader_epoch import (
    EpochPartitionResponse,
    EpochTopicResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)
from tests.support.broker_harness import BrokerHarness
from tests.support.fetcher_harness import FetcherHarness

TP = TopicPartition("t", 0)
OLD = [b"old-%d" % number for number in range(5)]
NEW = [b"new-%d" % number for number in range(5)]
TRUNCATED = (
    "t-0 was read to offset 5, of leader epoch {}, but an unclean election has truncated the log: that epoch "
    "ends at 3"
)


class Cluster:
    """Two brokers and a partition whose first three messages are on both, the other two on its leader."""

    def __init__(self, magic: int = 2) -> None:
        self.magic = magic
        self.brokers = BrokerHarness(2, {"t": 1}, replicas=2)
        self.brokers.configure("t", "unclean.leader.election.enable", "true")
        self.fill(OLD[:3])
        self.brokers.advance(1_000)
        self.brokers.stop(2)
        self.fill(OLD[3:])

    def fill(self, values: list[bytes]) -> None:
        self.brokers.fill(TP, *values, magic=self.magic)

    def lead_again(self) -> None:
        """Let the same broker lead in a later epoch: the other one has returned, and fallen out again."""
        self.brokers.start(2)
        self.brokers.advance(1_000)
        self.brokers.stop(2)

    def lose_the_last_two(self) -> None:
        """Let the other broker lead, and append five messages to its three."""
        self.brokers.stop(1)
        self.brokers.start(2)
        self.brokers.settle()
        assert self.brokers.leader(TP) == 2
        self.fill(NEW)

    def client(self, **options: Any) -> ClusterClient:
        return self.brokers.client(bootstrap="memory:9001,memory:9002", **options)

    def validations(self) -> list[tuple[int, int]]:
        """The leader epochs and looked-up epochs of all validations."""
        return [
            (part.current_leader_epoch, part.leader_epoch)
            for request in self.brokers.asked(ApiKey.OFFSET_FOR_LEADER_EPOCH)
            for topic in request.topics
            for part in topic.partitions
        ]


@pytest.fixture
def consumer_of() -> Iterator[Callable[[Cluster, Reset], GroupConsumer]]:
    consumers: list[GroupConsumer] = []

    def make(cluster: Cluster, reset: Reset, **client: Any) -> GroupConsumer:
        config = GroupConsumerConfig("g", auto_commit=False, auto_offset_reset=reset)
        consumer = GroupConsumer(cluster.client(**client), config, threads=False)
        consumers.append(consumer)
        consumer.assign([TP])
        consumer.seek(TP, 0)
        return consumer

    yield make
    for consumer in consumers:
        consumer.close()


class ElectionHistory:
    """Random elections, most of them unclean, and what a reader has of the log.

    They are of a broker that was behind: once it leads, the other one must copy its log to lead again.
    """

    def __init__(self, seed: int, consumer_of: Callable[..., GroupConsumer]) -> None:
        self.dice = random.Random(seed)
        self.cluster = Cluster()
        self.brokers = self.cluster.brokers
        self.alive, self.dead = 1, 2
        self.in_step = True
        """True if the log of the dead broker is the start of the other's."""
        self.consumer = consumer_of(self.cluster, Reset.EARLIEST)
        self.kept: dict[int, bytes | None] = {}

    def run(self, steps: int) -> None:
        for step in range(steps):
            self.dice.choice([self.elect, self.rejoin, self.read, self.read])()
            self.cluster.fill([b"%d-%d" % (step, n) for n in range(self.dice.randrange(1, 5))])
        self.read()

    def elect(self) -> None:
        """Let the broker lead that is behind."""
        if not self.in_step:
            self.rejoin()
        self.in_step = False
        self.brokers.stop(self.alive)
        self.alive, self.dead = self.dead, self.alive
        self.brokers.start(self.alive)
        self.brokers.settle()

    def rejoin(self) -> None:
        """Let the dead broker copy the log, and die again."""
        self.in_step = True
        self.brokers.start(self.dead)
        self.brokers.advance(1_000)
        self.brokers.stop(self.dead)

    def read(self) -> None:
        for _ in range(12):
            for record in self.consumer.poll_records(50):
                # Later records that were read before are those of the log before its truncation.
                self.kept = {at: value for at, value in self.kept.items() if at < record.offset}
                self.kept[record.offset] = record.value

    def log(self) -> dict[int, bytes | None]:
        sets = RangeFetcher(self.cluster.client(), TP, 0, 1 << 40, timeout_ms=1)
        return {record.offset: record.value for record in iterate(next(sets))}


def read(consumer: GroupConsumer, rounds: int = 20) -> list[bytes | None]:
    return [record.value for _ in range(rounds) for record in consumer.poll_records(50)]


@pytest.mark.parametrize("reset", [Reset.EARLIEST, Reset.LATEST])
def test_consumer_continues_where_its_log_was_truncated(
    consumer_of: Callable[..., GroupConsumer], reset: Reset, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = Cluster()
    consumer = consumer_of(cluster, reset)
    assert read(consumer) == OLD
    assert cluster.validations() == []
    cluster.lose_the_last_two()
    with caplog.at_level(logging.WARNING, "minikafka.clients.group"):
        assert read(consumer) == NEW
    ((_, epoch),) = cluster.validations()
    messages = [row.getMessage() for row in caplog.records if row.name == "minikafka.clients.group"]
    assert messages == [f"{TRUNCATED.format(epoch)}; continuing at 3"]


def test_consumer_without_a_reset_raises_until_it_seeks(consumer_of: Callable[..., GroupConsumer]) -> None:
    cluster = Cluster()
    consumer = consumer_of(cluster, Reset.NONE)
    read(consumer)
    cluster.lose_the_last_two()
    for _ in range(2):
        with pytest.raises(LogTruncated, match="was read to offset 5") as caught:
            read(consumer)
        assert (caught.value.offset, caught.value.end_offset) == (5, 3)
        assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    consumer.seek(TP, 4)
    assert read(consumer) == NEW[1:]


@pytest.mark.parametrize("newest", [0, 1])
def test_consumer_reads_on_if_the_broker_cannot_validate(
    consumer_of: Callable[..., GroupConsumer], newest: int
) -> None:
    cluster = Cluster()
    consumer = consumer_of(cluster, Reset.NONE)
    read(consumer)
    cluster.brokers.newest[ApiKey.OFFSET_FOR_LEADER_EPOCH] = newest
    cluster.lose_the_last_two()
    assert read(consumer) == NEW[2:]


def test_consumer_reads_on_if_the_broker_lacks_the_api(consumer_of: Callable[..., GroupConsumer]) -> None:
    cluster = Cluster()
    consumer = consumer_of(cluster, Reset.NONE)
    read(consumer)
    cluster.brokers.unknown.add(ApiKey.OFFSET_FOR_LEADER_EPOCH)
    cluster.lose_the_last_two()
    assert read(consumer) == NEW[2:]
    assert cluster.validations() == []


def test_consumer_of_an_older_format_validates_nothing(consumer_of: Callable[..., GroupConsumer]) -> None:
    cluster = Cluster(magic=1)
    consumer = consumer_of(cluster, Reset.NONE)
    assert read(consumer) == OLD
    cluster.lose_the_last_two()
    assert read(consumer) == NEW[2:]
    assert cluster.validations() == []


def test_consumer_validates_once_for_each_change_of_leaders(
    consumer_of: Callable[..., GroupConsumer],
) -> None:
    cluster = Cluster()
    consumer = consumer_of(cluster, Reset.NONE)
    assert read(consumer) == OLD
    for count in (1, 2):
        cluster.lead_again()
        cluster.fill([b"more"])
        assert read(consumer) == [b"more"]
        assert len(cluster.validations()) == count


@pytest.mark.parametrize("seed", range(10))
def test_reader_has_the_log_after_any_elections(consumer_of: Callable[..., GroupConsumer], seed: int) -> None:
    history = ElectionHistory(seed, consumer_of)
    history.run(12)
    assert history.kept == history.log()


def test_reader_that_does_not_validate_has_another_log(
    consumer_of: Callable[..., GroupConsumer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PositionEpochs, "needs_validation", lambda *_: False)

    def differs(seed: int) -> bool:
        history = ElectionHistory(seed, consumer_of)
        history.run(12)
        return history.kept != history.log()

    assert any(differs(seed) for seed in range(10))


def test_refused_validation_is_asked_again(consumer_of: Callable[..., GroupConsumer]) -> None:
    def fenced(_: int, request: OffsetForLeaderEpochRequest) -> OffsetForLeaderEpochResponse:
        row = EpochPartitionResponse(ErrorCode.FENCED_LEADER_EPOCH, 0, -1, -1)
        return OffsetForLeaderEpochResponse(0, (EpochTopicResponse("t", (row,)),))

    cluster = Cluster()
    consumer = consumer_of(cluster, Reset.EARLIEST)
    read(consumer)
    cluster.brokers.script(ApiKey.OFFSET_FOR_LEADER_EPOCH, fenced)
    cluster.lose_the_last_two()
    assert read(consumer) == NEW
    assert len(cluster.validations()) == 2


def test_fetches_and_list_offsets_name_the_epoch_of_the_leader() -> None:
    cluster = Cluster()
    client = cluster.client()
    epoch = client.metadata(["t"]).leader_epoch(TP)
    assert epoch > 0
    next(RangeFetcher(client, TP, 0, 5))
    list_offsets(client, {TP: LATEST}, client.deadline())
    for key in (ApiKey.FETCH, ApiKey.LIST_OFFSETS):
        request = cluster.brokers.asked(key)[-1]
        assert request.topics[0].partitions[0].current_leader_epoch == epoch


def test_range_ends_with_an_error_where_its_log_was_truncated() -> None:
    cluster = Cluster()
    sets = RangeFetcher(cluster.client(), TP, 0, 8, timeout_ms=60_000)
    assert [record.value for record in iterate(next(sets))] == OLD
    cluster.lose_the_last_two()
    with pytest.raises(LogTruncated, match="that epoch ends at 3"):
        next(sets)


@pytest.mark.parametrize("reset", ["smallest", "largest"])
def test_stream_continues_where_its_log_was_truncated(reset: str) -> None:
    cluster = Cluster()
    harness = FetcherHarness(cluster.brokers, auto_offset_reset=reset)
    stream = harness.stream()
    harness.start(stream, steps=3)
    assert [message.message for message in stream.drain()] == OLD
    cluster.lose_the_last_two()
    harness.step(6)
    assert [message.message for message in stream.drain()] == NEW


def test_stream_without_a_reset_raises_for_a_truncated_log() -> None:
    cluster = Cluster()
    harness = FetcherHarness(cluster.brokers, auto_offset_reset="none")
    stream = harness.stream()
    harness.start(stream, steps=3)
    stream.drain()
    cluster.lose_the_last_two()
    harness.step(6)
    for _ in range(2):
        with pytest.raises(BrokerError, match="that epoch ends at 3"):
            stream.take(1)
