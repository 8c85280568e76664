"""``TransactionalProducer``: settings, order of calls, and clusters without transactions."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from minikafka import TransactionalProducer
from minikafka.base.errors import BrokerError, ConfigError, ErrorCode, NetworkError, TransactionAbortable
from minikafka.base.ids import TopicPartition
from minikafka.clients.group.consumer import Committed
from minikafka.clients.produce import TransactionalConfig
from minikafka.clients.produce.batch import BatchSource
from minikafka.records.format.message_set import Record, build_message_set
from minikafka.records.format.stored_batch import SENT_HEADER_BYTES
from minikafka.wire.api import ApiKey
from tests.support.broker_harness import BrokerHarness

A = TopicPartition("t", 0)
COPY = BatchSource(A, 0, bytes(SENT_HEADER_BYTES), 100, bytearray)


@pytest.fixture
def brokers() -> BrokerHarness:
    brokers = BrokerHarness(1, {"t": 1})
    brokers.unknown = {ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.ADD_OFFSETS_TO_TXN, ApiKey.END_TXN}
    return brokers


def producer_of(brokers: BrokerHarness) -> TransactionalProducer:
    return TransactionalProducer(brokers.client(), transactional_id="x", threads=False)


def test_a_broker_without_transactions_is_refused_by_name(brokers: BrokerHarness) -> None:
    producer = producer_of(brokers)
    missing = "it lacks AddPartitionsToTxn, AddOffsetsToTxn, EndTxn"
    with pytest.raises(BrokerError, match=f"broker 1 at memory:9001 has no transactions: {missing}") as error:
        producer.init_transactions()
    assert error.value.code is ErrorCode.UNSUPPORTED_VERSION
    assert not brokers.asked(ApiKey.FIND_COORDINATOR)
    with pytest.raises(BrokerError, match="has no transactions"):
        producer.begin()
    producer.close()


def test_records_before_a_transaction_are_refused(brokers: BrokerHarness) -> None:
    with producer_of(brokers) as producer:
        with pytest.raises(ValueError, match=r"cannot send records: init_transactions was not called"):
            producer.send("t", b"v", partition=0)
        with pytest.raises(ValueError, match=r"call init_transactions\(\) first"):
            producer.send_offsets({A: Committed(1)}, "g")


def test_a_set_of_an_older_format_is_refused(brokers: BrokerHarness) -> None:
    with producer_of(brokers) as producer:
        with pytest.raises(BrokerError, match="a message set of format 1") as error:
            producer.send_encoded(A, build_message_set([Record(None, b"v")], magic=1), 1)
        assert error.value.code is ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT


def test_calls_of_a_closed_producer_are_refused(brokers: BrokerHarness) -> None:
    producer = producer_of(brokers)
    producer.close()
    producer.close()
    with pytest.raises(NetworkError, match="the producer is closed"):
        producer.init_transactions()


@pytest.mark.parametrize("key", [True, False])
def test_text_is_refused_with_the_topics_name(brokers: BrokerHarness, key: bool) -> None:
    name, content = ("key", {"value": b"v", "key": "x"}) if key else ("value", {"value": "x"})
    expected = f"bytes or None as {name} for topic 't', got str: encode it first"
    with producer_of(brokers) as producer, pytest.raises(TypeError, match=expected):
        producer.send("t", **content)  # type: ignore[arg-type]


@pytest.fixture
def open_producer() -> Iterator[TransactionalProducer]:
    """A producer in a transaction."""
    brokers = BrokerHarness(1, {"t": 1})
    with producer_of(brokers) as producer:
        producer.init_transactions()
        producer.begin()
        producer.send("t", b"fine", partition=0)
        yield producer


@pytest.mark.parametrize(
    ("refused", "code"),
    [
        (lambda producer: producer.send("t", bytes(2_000_000)), ErrorCode.MESSAGE_TOO_LARGE),
        (lambda producer: producer.send("t", b"v", partition=7), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (lambda producer: producer.send("no", b"v"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (
            lambda producer: producer.send_encoded(A, build_message_set([Record(None, b"v")], magic=1), 1),
            ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        ),
        (
            lambda producer: producer.send_copies([(TopicPartition("t", 7), COPY, 1)]),
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ),
    ],
)
def test_refused_record_leaves_a_transaction_to_abort(
    open_producer: TransactionalProducer, refused: Callable[[TransactionalProducer], object], code: ErrorCode
) -> None:
    with pytest.raises(BrokerError) as first:
        refused(open_producer)
    assert first.value.code is code
    for call in (open_producer.commit, lambda: open_producer.send("t", b"v", partition=0)):
        with pytest.raises(TransactionAbortable, match="cannot be committed; abort it") as later:
            call()
        assert later.value.__cause__ is first.value
    open_producer.abort()
    with open_producer.transaction():
        assert open_producer.send("t", b"v", partition=0)


def test_refused_text_leaves_the_transaction_open(open_producer: TransactionalProducer) -> None:
    with pytest.raises(TypeError):
        open_producer.send("t", "x")  # type: ignore[arg-type]
    open_producer.commit()


def test_refused_record_before_a_transaction_changes_nothing(open_producer: TransactionalProducer) -> None:
    open_producer.commit()
    with pytest.raises(BrokerError):
        open_producer.send("t", bytes(2_000_000))
    with open_producer.transaction():
        assert open_producer.send("t", b"v", partition=0)


def test_second_initialization_is_refused(open_producer: TransactionalProducer) -> None:
    for _ in range(2):
        with pytest.raises(ValueError, match=r"has called init_transactions\(\) already: call it once"):
            open_producer.init_transactions()
    open_producer.commit()
    with pytest.raises(ValueError, match=r"has called init_transactions\(\) already"):
        open_producer.init_transactions()


def test_timeout_that_is_too_long_names_the_longest() -> None:
    brokers = BrokerHarness(1, {"t": 1})
    producer = TransactionalProducer(
        brokers.client(), transactional_id="x", transaction_timeout_ms=900_001, threads=False
    )
    expected = r"timeout\.ms=900001 is longer than .*: lower it, .*; transaction\.max\.timeout\.ms is 900000$"
    with producer, pytest.raises(BrokerError, match=expected) as error:
        producer.init_transactions()
    assert error.value.code is ErrorCode.INVALID_TRANSACTION_TIMEOUT


def test_a_group_must_be_a_name_or_metadata(brokers: BrokerHarness) -> None:
    with producer_of(brokers) as producer, pytest.raises(TypeError, match=r"group_metadata\(\), got 7"):
        producer.send_offsets({A: Committed(1)}, 7)  # type: ignore[arg-type]


def test_acks_are_all_and_idempotence_is_on_by_default() -> None:
    config = TransactionalConfig(transactional_id="x")
    assert (config.acks, config.idempotence, config.transaction_timeout_ms) == (-1, True, 60_000)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("enable.idempotence", "false", r"must be true with transactional\.id"),
        ("acks", "1", r"must be all"),
        ("transactional.id", "", r"a name that no other running producer has"),
        ("transaction.timeout.ms", "0", r"transaction\.timeout\.ms"),
    ],
)
def test_settings_that_transactions_rule_out_are_refused(name: str, value: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        TransactionalConfig.from_properties({"transactional.id": "x", name: value})


def test_a_producer_without_an_id_is_refused(brokers: BrokerHarness) -> None:
    with pytest.raises(ConfigError, match=r"transactional\.id"):
        TransactionalProducer(brokers.client(), {"linger.ms": 5})


def test_a_setting_beside_a_whole_config_is_refused(brokers: BrokerHarness) -> None:
    config = TransactionalConfig(transactional_id="x")
    with pytest.raises(TypeError, match=r"expected transactional\.id in the TransactionalConfig"):
        TransactionalProducer(brokers.client(), config, transactional_id="y")
