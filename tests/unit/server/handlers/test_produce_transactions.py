"""Produce requests with a transactional id: what is verified, and when records are appended."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from minikafka.base.errors import ErrorCode
from minikafka.base.ids import ProducerIdAndEpoch, TopicPartition
from minikafka.records.format.batch import ControlType, build_batch, build_control_batch
from minikafka.records.format.message_set import Codec, Record, iterate
from minikafka.wire.api import ApiKey
from minikafka.wire.apis.produce import ProducePartition, ProduceRequest, ProduceTopic
from minikafka.wire.frame_parts import buffer_of
from tests.support.held_verifier import HeldVerifier
from tests.support.requests import Request
from tests.support.simulation import Client, Simulation

E = ErrorCode
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
P = ProducerIdAndEpoch(7, 0)


def batch(
    sequence: int = 0,
    *,
    producer: ProducerIdAndEpoch = P,
    transactional: bool = True,
    value: bytes = b"v",
    codec: Codec = Codec.NONE,
) -> bytes:
    return build_batch(
        [Record(None, value, 1)],
        codec=codec,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        base_sequence=sequence,
        transactional=transactional,
    )


class Transactions(Simulation):
    """A broker with topic t, and a verifier that answers at once, or when the test says so."""

    def __init__(self, *, held: bool = False, **settings: str) -> None:
        super().__init__()
        self.machine.start({name.replace("_", "."): value for name, value in settings.items()})
        assert self.create_topic("t", partitions=2) == 0
        self.broker = self.machine.broker
        self.broker.verify_transaction = self.verifier = HeldVerifier(held=held)

    def begin_produce(
        self, records: Mapping[int, bytes], *, name: str | None = "tx", version: int = 11
    ) -> Client:
        client = self.another_client()
        parts = tuple(ProducePartition(index, data) for index, data in records.items())
        body = ProduceRequest(name, -1, 5_000, (ProduceTopic("t", parts),))
        client.begin(Request(ApiKey.PRODUCE, version, body))
        return client

    def produce(self, *records: bytes, name: str | None = "tx", version: int = 11) -> list[ErrorCode]:
        """Produce to partition 0, 1 …; return their errors."""
        return codes(self.begin_produce(dict(enumerate(records)), name=name, version=version))

    def end(self, partition: TopicPartition = T0, *, commit: bool = True) -> None:
        self.broker.partition(partition).append_end_marker(*P, 0, commit=commit)

    def ends(self) -> list[int]:
        return [self.broker.partition(key).log.end_offset for key in (T0, T1)]


def codes(client: Client) -> list[ErrorCode]:
    (topic,) = client.finish().topics
    return [ErrorCode.of(part.error_code) for part in topic.partitions]


def test_first_batches_of_a_transaction_are_verified_together() -> None:
    world = Transactions()
    assert world.produce(batch(), batch()) == [E.NONE, E.NONE]
    assert world.verifier.asked == [("tx", P, [T0, T1])]
    assert world.ends() == [1, 1]


def test_open_transaction_is_not_verified_again() -> None:
    world = Transactions()
    world.produce(batch())
    assert world.produce(batch(1), batch()) == [E.NONE, E.NONE]
    assert [partitions for _, _, partitions in world.verifier.asked] == [[T0], [T1]]
    assert world.produce(batch(2), batch(1)) == [E.NONE, E.NONE]
    assert len(world.verifier.asked) == 2


def test_other_producer_cannot_take_over_an_open_transaction() -> None:
    world = Transactions()
    world.produce(batch())
    world.verifier.result = E.INVALID_PRODUCER_ID_MAPPING
    stranger = ProducerIdAndEpoch(P.producer_id, P.epoch + 1)
    assert world.produce(batch(producer=stranger), name="mine") == [E.INVALID_PRODUCER_ID_MAPPING]
    world.end()  # the marker of the producer itself is not refused
    assert world.ends()[0] == 2


def test_client_cannot_write_the_marker_of_its_own_transaction() -> None:
    world = Transactions()
    world.produce(batch())
    marker = build_control_batch(
        ControlType.COMMIT,
        coordinator_epoch=0,
        producer_id=P.producer_id,
        producer_epoch=P.epoch,
        timestamp_ms=1,
    )
    assert world.produce(marker) == [E.INVALID_RECORD]
    assert world.ends()[0] == 1


def test_each_transaction_is_verified() -> None:
    world = Transactions()
    world.produce(batch())
    world.end()
    assert world.produce(batch(1)) == [E.NONE]
    assert len(world.verifier.asked) == 2


def test_nothing_is_appended_before_the_verification() -> None:
    world = Transactions(held=True)
    client = world.begin_produce({0: batch()})
    assert (client.answered(), world.ends()) == (False, [0, 0])
    world.verifier.answer()
    assert codes(client) == [E.NONE]
    assert world.ends() == [1, 0]


@pytest.mark.parametrize("commit", [True, False])
def test_batch_whose_transaction_ended_meanwhile_is_refused(commit: bool) -> None:
    world = Transactions(held=True)
    client = world.begin_produce({0: batch()})
    world.end(commit=commit)
    world.verifier.answer()
    assert codes(client) == [E.INVALID_TXN_STATE]
    assert world.broker.partition(T0).last_stable_offset == world.ends()[0] == 1


def test_compressed_batch_is_verified_too() -> None:
    world = Transactions(held=True)
    client = world.begin_produce({0: batch(codec=Codec.GZIP, value=bytes(3 << 20))})
    assert not client.answered()
    world.verifier.answer()
    assert codes(client) == [E.NONE]
    (record,) = iterate(buffer_of(world.fetch("t", version=4, isolation_level=0, max_bytes=4 << 20).records))
    assert record.value == bytes(3 << 20)


@pytest.mark.parametrize(
    ("result", "version", "error"),
    [
        (E.TRANSACTION_ABORTABLE, 11, E.TRANSACTION_ABORTABLE),
        (E.TRANSACTION_ABORTABLE, 10, E.INVALID_TXN_STATE),
        (E.PRODUCER_FENCED, 11, E.INVALID_PRODUCER_EPOCH),
        (E.INVALID_PRODUCER_EPOCH, 11, E.INVALID_PRODUCER_EPOCH),
        (E.INVALID_PRODUCER_ID_MAPPING, 11, E.INVALID_PRODUCER_ID_MAPPING),
        (E.CONCURRENT_TRANSACTIONS, 11, E.NOT_ENOUGH_REPLICAS),
        (E.NETWORK_EXCEPTION, 11, E.NOT_ENOUGH_REPLICAS),
        (E.GROUP_LOAD_IN_PROGRESS, 3, E.NOT_ENOUGH_REPLICAS),
        (E.GROUP_COORDINATOR_NOT_AVAILABLE, 11, E.NOT_ENOUGH_REPLICAS),
        (E.NOT_COORDINATOR_FOR_GROUP, 11, E.NOT_ENOUGH_REPLICAS),
    ],
)
def test_failed_verification_is_an_error_that_producers_know(
    result: ErrorCode, version: int, error: ErrorCode
) -> None:
    world = Transactions()
    world.verifier.result = result
    assert world.produce(batch(), version=version) == [error]
    assert world.ends() == [0, 0]


def test_errors_of_a_verification_are_each_partitions_own() -> None:
    world = Transactions(held=True)
    client = world.begin_produce({0: batch(), 1: batch()})
    _, done = world.verifier.waiting.pop()
    done({T0: E.NONE, T1: E.TRANSACTION_ABORTABLE})
    assert codes(client) == [E.NONE, E.TRANSACTION_ABORTABLE]
    assert world.ends() == [1, 0]


def test_partition_of_another_broker_is_refused_without_asking() -> None:
    world = Transactions()
    assert codes(world.begin_produce({5: batch()})) == [E.UNKNOWN_TOPIC_OR_PARTITION]
    assert world.verifier.asked == []


def test_request_of_several_producers_is_refused() -> None:
    world = Transactions()
    other = ProducerIdAndEpoch(8, 0)
    assert world.produce(batch(), batch(producer=other)) == [E.INVALID_PRODUCER_ID_MAPPING] * 2
    assert (world.verifier.asked, world.ends()) == ([], [0, 0])


def test_transactional_batch_without_a_transactional_id_is_refused() -> None:
    world = Transactions()
    assert world.produce(batch(), name=None) == [E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED]
    assert world.ends() == [0, 0]


def test_plain_batch_with_a_transactional_id_is_not_verified() -> None:
    world = Transactions()
    assert world.produce(batch(transactional=False)) == [E.NONE]
    assert world.verifier.asked == []


def test_plain_batch_in_an_open_transaction_is_refused() -> None:
    world = Transactions()
    world.produce(batch())
    assert world.produce(batch(1, transactional=False)) == [E.INVALID_TXN_STATE]


def test_verification_can_be_switched_off() -> None:
    world = Transactions(transaction_partition_verification_enable="false")
    assert world.produce(batch()) == [E.NONE]
    assert world.verifier.asked == []


def test_broker_without_transactions_refuses_them() -> None:
    world = Transactions()
    world.broker.verify_transaction = None
    assert world.produce(batch()) == [E.UNSUPPORTED_VERSION]
    assert world.produce(batch(), name=None) == [E.UNSUPPORTED_VERSION]


def test_damaged_batch_of_a_transaction_is_refused_as_such() -> None:
    world = Transactions()
    damaged = bytearray(batch())
    damaged[-1] ^= 1
    assert world.produce(bytes(damaged)) == [E.CORRUPT_MESSAGE]
    assert world.produce(batch()[:40]) == [E.INVALID_RECORD]


def test_unexpected_error_after_the_verification_ends_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    world = Transactions(held=True)
    client = world.begin_produce({0: batch()})

    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError("a fault")

    monkeypatch.setattr(world.broker, "run", fail)
    world.verifier.answer()
    world.network.run()
    assert client.connection is not None
    assert client.connection.closed
