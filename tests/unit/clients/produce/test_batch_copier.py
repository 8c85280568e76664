"""``batch_copier``: staged batches that brokers copy, and those that the client fetches and sends."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from minikafka import TransactionalProducer
from minikafka.base.errors import BrokerError, ErrorCode
from minikafka.base.ids import TopicPartition
from minikafka.clients.network.cluster import ClusterClient
from minikafka.clients.produce import BatchingConfig, BatchingProducer, batch_copier
from minikafka.clients.produce.batch_copier import StagedBatch, StagedRowsLost, copy
from minikafka.net.memory import Fault
from minikafka.records.format.batch import build_batch
from minikafka.records.format.message_set import Codec, Record
from minikafka.wire.api import ApiKey
from tests.support.broker_harness import SERVED, BrokerHarness, produce_error

E = ErrorCode
K = ApiKey
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
S0, S1 = TopicPartition("staged", 0), TopicPartition("staged", 1)
SETTINGS = {
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.min.isr": "1",
}


class Copies:
    """A cluster with a topic, a staging topic that stamps its records, and what is staged in it."""

    def __init__(self, brokers: int = 1) -> None:
        self.brokers = BrokerHarness(brokers, {"t": 2, "staged": 2}, properties=SETTINGS)
        self.brokers.configure("staged", "message.timestamp.type", "LogAppendTime")
        self.cluster = self.brokers.client()
        self.staged: list[StagedBatch] = []

    def stage(
        self, target: TopicPartition, at: TopicPartition, *values: bytes, codec: Codec = Codec.NONE
    ) -> None:
        """Stage one batch, with headers."""
        records = [Record(b"k", value, 1_000 - number, (("h", b"x"),)) for number, value in enumerate(values)]
        data = bytearray(build_batch(records, codec=codec))
        config = BatchingConfig(idempotence=True)
        with BatchingProducer(self.cluster, config, threads=False) as producer:
            (future,) = producer.send_encoded_sets([(at, data, len(values))], sealed=False)
            producer.flush()
            offset = future.result().offset
        self.staged.append(StagedBatch.of(target, at, offset, data))

    def copy(
        self,
        staged: Sequence[StagedBatch] | None = None,
        cluster: ClusterClient | None = None,
        on_copied: Callable[[int], None] | None = None,
    ) -> None:
        """Copy in a transaction, and commit it."""
        cluster = cluster or self.cluster
        with TransactionalProducer(cluster, transactional_id="x", threads=False) as producer:
            producer.init_transactions()
            with producer.transaction():
                batches = self.staged if staged is None else staged
                copy(cluster, producer, "staged", batches, 5_000, on_copied)

    def batches(self, tp: TopicPartition) -> list[bytes]:
        """The batches of records in a log, without the offsets, which only a log gives."""
        return [entry[12:] for entry in self.brokers.logs[tp].entries if not entry[22] & 0x20]

    def values(self, tp: TopicPartition) -> list[bytes | None]:
        return [value for value in self.brokers.logs[tp].values() if value and value.isalnum()]

    def asked(self) -> tuple[int, int, int]:
        """The requests of copies, of fetches, and of records for the topic, so far."""
        produced = [r for r in self.brokers.asked(K.PRODUCE) if r.topics[0].name == "t"]
        return len(self.brokers.asked(K.COPY_BATCHES)), len(self.brokers.asked(K.FETCH)), len(produced)


def test_batches_are_copied_without_their_records_on_the_way() -> None:
    world = Copies()
    world.stage(T0, S0, b"a", b"b")
    world.stage(T1, S0, b"c")
    world.stage(T0, S0, b"d")
    world.copy()
    assert (world.values(T0), world.values(T1)) == ([b"a", b"b", b"d"], [b"c"])
    assert world.asked() == (2, 0, 0)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.ZSTD])
def test_copy_of_a_broker_has_the_bytes_of_that_of_the_client(codec: Codec) -> None:
    entries = []
    for newest in ({}, {K.COPY_BATCHES: -1}):
        world = Copies()
        world.stage(T0, S0, b"a", b"b" * 500, codec=codec)
        world.stage(T0, S0, b"c", codec=codec)
        world.copy(cluster=world.brokers.client(newest_versions=newest))
        assert world.asked()[0] == (0 if newest else 2)
        entries.append(world.batches(T0))
    assert len(entries[0]) == 2
    assert entries[0] == entries[1]


def test_records_keep_their_times_and_headers() -> None:
    world = Copies()
    world.stage(T0, S0, b"a", b"b")
    world.copy()
    first, second = world.brokers.logs[T0].records()[:2]
    assert (first.timestamp_ms, second.timestamp_ms, first.headers) == (1_000, 999, (("h", b"x"),))


def test_broker_without_the_api_gets_the_records() -> None:
    world = Copies()
    world.brokers.unknown = {K.COPY_BATCHES}
    world.stage(T0, S0, b"a")
    world.copy()
    assert world.values(T0) == [b"a"]
    assert world.asked()[0] == 0


def test_batch_on_another_broker_is_fetched_and_sent() -> None:
    world = Copies(brokers=2)
    world.stage(T0, S0, b"near")
    world.stage(T1, S0, b"far")
    world.copy()
    assert (world.values(T0), world.values(T1)) == ([b"near"], [b"far"])
    assert (world.asked()[0], world.asked()[2]) == (1, 1)


def test_new_leader_without_the_staged_batch_gets_its_records() -> None:
    world = Copies(brokers=2)
    world.stage(T0, S0, b"a")
    world.stage(T0, S0, b"b")

    def move(broker_id: int, request: Any) -> object:
        world.brokers.move_leader(T0, 2)
        return SERVED

    world.brokers.script(K.COPY_BATCHES, move)
    world.copy()
    assert world.values(T0) == [b"a", b"b"]


def test_batches_behind_a_new_leader_are_fetched_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_copier, "PORTION_BYTES", 1)
    world = Copies(brokers=2)
    for value in (b"a", b"b", b"c", b"d"):
        world.stage(T0, S0, value)

    def move(copied: int) -> None:
        if world.brokers.leaders[T0] == 1:
            world.brokers.move_leader(T0, 2)
            world.cluster.metadata(["t"], refresh=True)

    world.copy(on_copied=move)
    assert world.values(T0) == [b"a", b"b", b"c", b"d"]
    assert world.asked()[:2] == (1, 2)


def test_batch_that_is_sent_instead_is_fetched_alone() -> None:
    world = Copies()
    for value in (b"a", b"b", b"c"):
        world.stage(T0, S0, value)
    world.brokers.always(K.COPY_BATCHES, produce_error(E.OPERATION_NOT_ATTEMPTED))
    world.copy()
    assert world.values(T0) == [b"a", b"b", b"c"]
    asked = [row.partition_max_bytes for r in world.brokers.asked(K.FETCH) for row in r.topics[0].partitions]
    assert asked == [staged.size_bytes for staged in world.staged]


@pytest.mark.parametrize("fault", [Fault.CUT_REQUEST, Fault.CUT_RESPONSE])
def test_copy_whose_response_is_lost_is_written_once(fault: Fault) -> None:
    world = Copies()
    world.stage(T0, S0, b"a")
    world.stage(T0, S0, b"b")

    def cut(broker_id: int, request: Any) -> object:
        if fault is Fault.CUT_RESPONSE:
            world.brokers.serve(broker_id, request)
        return Fault.CUT_REQUEST

    world.brokers.script(K.COPY_BATCHES, cut)
    world.copy()
    assert world.values(T0) == [b"a", b"b"]


def test_batch_that_is_sent_instead_is_not_written_twice() -> None:
    world = Copies()
    world.stage(T0, S0, b"a")
    world.stage(T0, S0, b"b")

    def refuse(broker_id: int, request: Any) -> Any:
        served = world.brokers.serve(broker_id, request)
        (topic,) = served.topics
        rows = tuple(replace(part, error_code=E.OPERATION_NOT_ATTEMPTED) for part in topic.partitions)
        return replace(served, topics=(replace(topic, partitions=rows),))

    world.brokers.script(K.COPY_BATCHES, refuse)
    world.copy()
    assert world.values(T0) == [b"a", b"b"]
    assert world.asked()[2] == 1


@pytest.mark.parametrize(
    ("others", "reason"), [((), "its log ends at 0"), ((b"other",), "another batch is at offset 0")]
)
def test_batches_of_a_topic_that_was_made_again_are_lost(others: tuple[bytes, ...], reason: str) -> None:
    world = Copies()
    world.stage(T0, S0, b"a")
    (staged,) = world.staged
    world.brokers.delete_topic("staged")
    world.brokers.add_topic("staged", 2)
    world.cluster = world.brokers.client()
    for value in others:
        world.stage(T0, S0, value)
    with pytest.raises(StagedRowsLost, match=reason):
        world.copy([staged])
    assert world.values(T0) == []


def test_header_that_does_not_fit_the_records_is_found_out() -> None:
    world = Copies()
    world.stage(T0, S0, b"a")
    (staged,) = world.staged
    header = bytes([staged.header[0] ^ 1]) + staged.header[1:]
    with pytest.raises(StagedRowsLost, match="the batch at offset 0 is corrupt"):
        world.copy([replace(staged, header=header)])


def test_error_of_a_copy_is_raised_by_its_code() -> None:
    world = Copies()
    world.stage(T0, S0, b"a")
    world.brokers.configure("t", "max.message.bytes", "10")
    with pytest.raises(BrokerError) as error:
        world.copy()
    assert error.value.code is E.MESSAGE_TOO_LARGE
    assert world.asked()[2] == 1


def test_acknowledged_rows_are_counted_and_may_end_the_copy() -> None:
    world = Copies()
    world.stage(T0, S0, b"a", b"b")
    world.stage(T0, S0, b"c")
    counted: list[int] = []
    world.copy(on_copied=counted.append)
    assert counted[-1] == 3

    def stop(copied: int) -> None:
        raise TimeoutError(f"{copied} of 3")

    with pytest.raises(TimeoutError, match="0 of 3"):
        world.copy(on_copied=stop)
    assert world.values(T0) == [b"a", b"b", b"c"]
