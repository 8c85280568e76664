"""``SimpleConsumer`` with an isolation level: transactions in the log of a broker in memory."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from minikafka.base.errors import BrokerError, ConfigError, ErrorCode
from minikafka.base.ids import TopicPartition
from minikafka.clients.simple_consumer import (
    LATEST_TIME,
    FetchedMessages,
    FetchRequest,
    FetchRequestBuilder,
    IsolationLevel,
    SimpleConsumer,
)
from minikafka.partition.partition import Partition
from minikafka.wire.apis.fetch import AbortedTransaction
from tests.support.simple_consumer_harness import PORT, SimpleConsumerHarness
from tests.support.transactions import part_of_transaction

T0 = TopicPartition("t", 0)
COMMITTED = IsolationLevel.READ_COMMITTED
ALL = FetchRequest("t", 0, 0, 1 << 20)


@pytest.fixture
def harness() -> Iterator[SimpleConsumerHarness]:
    harness = SimpleConsumerHarness()
    yield harness
    harness.consumer.close()


@pytest.fixture
def committed(harness: SimpleConsumerHarness) -> Iterator[SimpleConsumer]:
    network = harness.simulation.network
    with SimpleConsumer("machine-0", PORT, connector=network, isolation=COMMITTED) as consumer:
        yield consumer


@pytest.fixture
def log(harness: SimpleConsumerHarness) -> Partition:
    """Offsets 0 aborted, 1 its marker, 2 committed, 3 its marker, 4 in no transaction."""
    partition = harness.simulation.machine.broker.partition(T0)
    partition.append(part_of_transaction(7, 1))
    partition.append_end_marker(7, 0, 0, commit=False)
    partition.append(part_of_transaction(7, 1, sequence=1))
    partition.append_end_marker(7, 0, 0, commit=True)
    harness.simulation.produce("t", b"plain")
    return partition


def test_messages_of_aborted_transactions_are_left_out(committed: SimpleConsumer, log: Partition) -> None:
    found = committed.fetch(ALL)
    assert [message.offset for message in found] == [2, 4]
    assert [message.offset for message in found] == [2, 4], "it can be repeated"
    assert (found.last_stable_offset, found.next_offset) == (5, 5)
    assert [message.offset for message in committed.iterator(ALL)] == [2, 4]


def test_an_open_transaction_ends_what_is_read(committed: SimpleConsumer, log: Partition) -> None:
    log.append(part_of_transaction(8, 2))
    found = committed.fetch(ALL)
    assert [message.offset for message in found] == [2, 4]
    assert (found.last_stable_offset, found.high_watermark) == (5, 7)
    assert committed.earliest_or_latest_offset(T0, LATEST_TIME) == 5
    messages = committed.iterator(ALL)
    assert [message.offset for message in messages] == [2, 4]
    log.append_end_marker(8, 0, 0, commit=True)
    assert [message.offset for message in messages] == [5, 6]
    assert committed.earliest_or_latest_offset(T0, LATEST_TIME) == 8


def test_without_a_level_every_message_is_read(harness: SimpleConsumerHarness, log: Partition) -> None:
    log.append(part_of_transaction(8, 2))
    found = harness.consumer.fetch(ALL)
    assert [message.offset for message in found] == [0, 2, 4, 5, 6]
    assert found.last_stable_offset == -1
    assert harness.consumer.earliest_or_latest_offset(T0, LATEST_TIME) == 7


def test_a_version_without_isolation_is_refused(committed: SimpleConsumer, log: Partition) -> None:
    request = FetchRequestBuilder().add_fetch("t", 0, 0, 1_000).request_version(3).build()
    with pytest.raises(BrokerError, match="Fetch 3 has no isolation level: read_committed needs version 4"):
        committed.fetch(request)


def test_damage_behind_an_aborted_transaction_is_an_error(
    harness: SimpleConsumerHarness, log: Partition
) -> None:
    data = bytearray(harness.consumer.fetch(ALL).response.records or b"")
    data[-1] ^= 1
    found = FetchedMessages(ALL, ErrorCode.NONE, bytes(data), 5, 5, (AbortedTransaction(7, 0),))
    messages = iter(found)
    assert next(messages).offset == 2
    with pytest.raises(BrokerError) as raised:
        list(messages)
    assert raised.value.code is ErrorCode.CORRUPT_MESSAGE


def test_a_classic_listener_has_no_isolation_level() -> None:
    with pytest.raises(ConfigError, match="classic listeners have no isolation level"):
        SimpleConsumer("machine-0", 9_094, classic=True, isolation=COMMITTED)


def test_another_value_than_a_level_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="expected an IsolationLevel, got 'read_committed'"):
        SimpleConsumer("machine-0", PORT, isolation="read_committed")  # type: ignore[arg-type]
