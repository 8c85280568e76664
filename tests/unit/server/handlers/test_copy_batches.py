"""CopyBatches: batches of other logs are appended as if a client had produced them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from minikafka.base.errors import ErrorCode, NetworkError, StorageError
from minikafka.base.ids import ProducerIdAndEpoch, TopicPartition
from minikafka.records.format.batch import build_batch
from minikafka.records.format.message_set import Codec, Record
from minikafka.records.format.stored_batch import sent_header
from minikafka.server.handlers import copy_batches
from minikafka.server.workers.request_admission import RequestAdmission
from minikafka.wire.api import ApiKey
from minikafka.wire.apis.copy_batches import CopyBatchesRequest, CopyPartition, CopyTopic
from minikafka.wire.apis.produce import (
    ProducePartition,
    ProducePartitionResponse,
    ProduceRequest,
    ProduceTopic,
)
from tests.support.held_verifier import HeldVerifier
from tests.support.holding_pool import HoldingPool
from tests.support.requests import Request, produce
from tests.support.simulation import Client, Simulation

E = ErrorCode
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
P = ProducerIdAndEpoch(7, 0)
STAGER = ProducerIdAndEpoch(3, 0)


def batch(
    sequence: int,
    *values: bytes,
    producer: ProducerIdAndEpoch = STAGER,
    codec: Codec = Codec.NONE,
    **more: Any,
) -> bytes:
    return build_batch(
        [Record(b"k", value, 5) for value in values],
        codec=codec,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        base_sequence=sequence,
        **more,
    )


class Copying(Simulation):
    """A broker with topic t and a staging topic that stamps its records, and a verifier of transactions."""

    def __init__(
        self, *, held: bool = False, topic: Mapping[str, str] | None = None, **properties: str
    ) -> None:
        super().__init__()
        self.machine.start({name.replace("_", "."): value for name, value in properties.items()})
        assert self.create_topic("t", partitions=2, settings=topic) == 0
        assert self.create_topic("staged", settings={"message.timestamp.type": "LogAppendTime"}) == 0
        self.broker = self.machine.broker
        self.broker.verify_transaction = self.verifier = HeldVerifier(held=held)
        self.sequence = 0

    def stage(self, *values: bytes, codec: Codec = Codec.NONE) -> CopyPartition:
        """Stage a batch; return the row that copies it to partition 0 with the first sequence number."""
        data = batch(self.sequence, *values, codec=codec)
        self.sequence += len(values)
        (topic,) = self.call(produce("staged", data, partitions=(0,), version=7)).topics
        (part,) = topic.partitions
        assert part.error_code == 0
        return CopyPartition(0, "staged", 0, part.base_offset, sent_header(data), *P, 0)

    def begin_copy(self, *rows: CopyPartition, acks: int = -1) -> Client:
        client = self.another_client()
        body = CopyBatchesRequest("tx", acks, 5_000, (CopyTopic("t", rows),))
        client.begin(Request(ApiKey.COPY_BATCHES, 11, body))
        return client

    def copy(self, *rows: CopyPartition) -> list[ErrorCode]:
        return codes(results(self.begin_copy(*rows)))

    def produce_to(self, target: TopicPartition, data: bytes) -> ErrorCode:
        topic = ProduceTopic(target.topic, (ProducePartition(target.partition, data),))
        (code,) = codes(
            self.call(Request(ApiKey.PRODUCE, 11, ProduceRequest("tx", -1, 5_000, (topic,))))
            .topics[0]
            .partitions
        )
        return code

    def log(self, target: TopicPartition = T0) -> bytes:
        found = self.broker.partition(target).log.read(0, 1 << 30).slice
        return b"" if found is None else found.read()


def results(client: Client) -> tuple[ProducePartitionResponse, ...]:
    (topic,) = client.finish().topics
    rows: tuple[ProducePartitionResponse, ...] = topic.partitions
    return rows


def codes(rows: Iterable[ProducePartitionResponse]) -> list[ErrorCode]:
    return [ErrorCode.of(row.error_code) for row in rows]


@pytest.mark.parametrize("codec", Codec)
def test_copy_is_the_batch_that_a_client_would_have_produced(codec: Codec) -> None:
    world = Copying()
    row = world.stage(b"a", b"b" * 300, codec=codec)
    assert world.copy(row) == [E.NONE]
    same = batch(0, b"a", b"b" * 300, producer=P, codec=codec, transactional=True)
    assert world.produce_to(T1, same) == E.NONE
    assert world.log(T0) == world.log(T1)
    assert world.verifier.asked[0] == ("tx", P, [T0])


def test_retried_copy_is_appended_once_and_gets_its_offset() -> None:
    world = Copying()
    row = world.stage(b"a", b"b")
    assert world.copy(world.stage(b"first"), replace(row, index=1)) == [E.NONE, E.NONE]
    (again,) = results(world.begin_copy(replace(row, index=1)))
    assert (again.error_code, again.base_offset) == (E.NONE, 0)
    assert world.broker.partition(T1).log.end_offset == 2


def test_gap_in_the_sequence_and_an_old_epoch_are_refused() -> None:
    world = Copying()
    row = world.stage(b"a")
    assert world.copy(replace(row, producer_epoch=1)) == [E.NONE]
    assert world.copy(replace(row, producer_epoch=1, base_sequence=5)) == [E.OUT_OF_ORDER_SEQUENCE_NUMBER]
    assert world.copy(replace(row, base_sequence=1)) == [E.INVALID_PRODUCER_EPOCH]


def test_nothing_is_copied_before_the_transaction_is_verified() -> None:
    world = Copying(held=True)
    client = world.begin_copy(world.stage(b"a"))
    assert (client.answered(), world.log()) == (False, b"")
    world.verifier.answer(E.INVALID_TXN_STATE)
    assert codes(results(client)) == [E.INVALID_TXN_STATE]
    assert world.log() == b""


@pytest.mark.parametrize(
    "change",
    [
        {"source_topic": "absent"},
        {"source_partition": 7},
        {"source_offset": 1},
        {"source_offset": 99},
        {"sent_header": sent_header(batch(8, b"a"))},
        {"sent_header": bytes(4) + sent_header(batch(0, b"a"))[4:]},
    ],
    ids=["topic", "partition", "end", "beyond", "numbers", "checksum"],
)
def test_batch_that_is_not_here_is_left_to_the_client(change: dict[str, Any]) -> None:
    world = Copying()
    row = world.stage(b"a")
    assert world.copy(replace(row, **change), replace(row, index=1)) == [E.OPERATION_NOT_ATTEMPTED, E.NONE]
    assert (world.log(T0), world.log(T1) != b"") == (b"", True)


@pytest.mark.parametrize("step", ["minikafka.log.log.Log.read", "minikafka.base.files.FileSlice.read"])
def test_source_that_cannot_be_read_is_left_to_the_client(step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    world = Copying()
    row = world.stage(b"a")

    def fails(*_: object) -> bytes:
        raise StorageError("bad sector")

    monkeypatch.setattr(step, fails)
    assert world.copy(row) == [E.OPERATION_NOT_ATTEMPTED]


def test_target_that_is_not_here_has_the_error_of_produce() -> None:
    world = Copying()
    assert world.copy(replace(world.stage(b"a"), index=9)) == [E.UNKNOWN_TOPIC_OR_PARTITION]


def test_invalid_rows_are_refused_and_others_served() -> None:
    world = Copying()
    row = world.stage(b"a")
    cut = replace(row, sent_header=row.sent_header[:-1])
    assert world.copy(cut, replace(row, index=1)) == [E.INVALID_REQUEST, E.NONE]
    assert world.copy(row, row) == [E.INVALID_REQUEST, E.INVALID_REQUEST]
    assert world.log() == b""


def test_large_request_is_copied_in_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    world = Copying()
    monkeypatch.setattr(copy_batches, "PORTION_BYTES", 1)
    assert world.copy(world.stage(b"a"), replace(world.stage(b"b"), index=1)) == [E.NONE, E.NONE]
    assert b"a" in world.log(T0)
    assert b"b" in world.log(T1)


def test_copies_wait_until_those_before_them_are_appended() -> None:
    world = Copying()
    row = world.stage(b"a")
    world.broker.pool = pool = HoldingPool()
    world.broker.copies = RequestAdmission(1)
    first, second = world.begin_copy(row), world.begin_copy(replace(row, index=1))
    (job,) = pool.jobs
    pool.jobs.clear()
    for _ in job:
        assert not pool.jobs
    assert len(pool.jobs) == 1
    pool.run()
    assert codes([*results(first), *results(second)]) == [E.NONE, E.NONE]


def test_copy_that_fails_unexpectedly_lets_others_in(monkeypatch: pytest.MonkeyPatch) -> None:
    world = Copying()
    row = world.stage(b"a")
    world.broker.copies = RequestAdmission(1)

    def fails(*_: object) -> bytearray:
        raise RuntimeError("a bug")

    with monkeypatch.context() as patched:
        patched.setattr(copy_batches, "as_sent", fails)
        with pytest.raises(NetworkError):
            world.copy(row)
    assert world.copy(row) == [E.NONE]


def test_request_for_very_many_batches_ends_its_connection() -> None:
    world = Copying()
    row = world.stage(b"a")
    with pytest.raises(NetworkError):
        world.copy(*[replace(row, index=number) for number in range(2_000)])
    assert world.copy(row) == [E.NONE]


def test_limits_of_the_topic_hold_for_copies() -> None:
    world = Copying(topic={"max.message.bytes": "200"})
    assert world.copy(world.stage(b"a" * 300)) == [E.MESSAGE_TOO_LARGE]


def test_copy_needs_in_sync_replicas_as_a_produce_request_does() -> None:
    world = Copying(topic={"min.insync.replicas": "2"})
    assert world.copy(world.stage(b"a")) == [E.NOT_ENOUGH_REPLICAS]


def test_copied_bytes_count_for_the_quota_of_the_producer() -> None:
    world = Copying(quota_producer_default="20000", quota_window_num="2")
    row = world.stage(b"a" * 19_000)
    world.pass_time(60_000)
    assert world.begin_copy(replace(row, index=1)).finish().throttle_time_ms == 0
    assert world.begin_copy(replace(row, index=0)).finish().throttle_time_ms > 0


def test_bytes_that_are_not_copied_do_not_count_for_the_quota() -> None:
    world = Copying(quota_producer_default="20000", quota_window_num="2")
    other = replace(world.stage(b"a" * 19_000), sent_header=sent_header(batch(8, b"a")))
    world.pass_time(60_000)
    for _ in range(2):
        assert world.begin_copy(other).finish().throttle_time_ms == 0


def test_brokers_without_transactions_refuse_copies() -> None:
    world = Copying()
    world.broker.verify_transaction = None
    assert world.copy(world.stage(b"a")) == [E.UNSUPPORTED_VERSION]
