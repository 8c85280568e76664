"""``clients/producer/default_event_handler``: messages on their way through the engine."""

from __future__ import annotations

import random
from collections import defaultdict, deque
from typing import Any

import pyarrow as pa
import pytest

from minikafka.base.errors import ErrorCode, FailedToSendMessage
from minikafka.base.ids import TopicPartition
from minikafka.clients.producer import KeyedMessage, Producer
from minikafka.clients.producer.default_event_handler import MAX_BATCH_BYTES, DefaultEventHandler, Dispatch
from minikafka.clients.producer.messages import columns_of, fields_of
from minikafka.clients.serializer import DefaultEncoder
from minikafka.net.memory import Fault
from minikafka.wire.api import ApiKey
from tests.support.broker_harness import BrokerHarness, produce_error
from tests.support.producer_harness import everything, make_producer, records, values
from tests.support.raising import raising


@pytest.fixture
def brokers() -> BrokerHarness:
    return BrokerHarness(2, {"t": 4, "u": 1})


class Anything:
    """An encoder that accepts any key."""

    def to_bytes(self, key: object) -> bytes:
        return repr(key).encode()


def handler_of(producer: Producer) -> DefaultEventHandler:
    assert isinstance(producer._handler, DefaultEventHandler)
    return producer._handler


def columns(*given: bytes, topic: str = "u") -> Any:
    return columns_of(topic, list(given), None, DefaultEncoder(), DefaultEncoder())


def test_keyless_messages_among_keyed_ones_move_after_a_failed_attempt(brokers: BrokerHarness) -> None:
    key = b"\x00"  # of partition 3, as its hash is 31
    with make_producer(brokers, message_send_max_retries=1) as producer:
        producer.send(KeyedMessage("t", b"first", key))
        handler_of(producer)._topics._sticky_partitions["t"] = 3
        brokers.lose_leader(TopicPartition("t", 3))
        with pytest.raises(FailedToSendMessage) as failure:
            producer.send([KeyedMessage("t", b"keyed", key), KeyedMessage("t", b"free")])
    assert list(failure.value.failed) == [KeyedMessage("t", b"keyed", key)]
    assert [values(brokers, number) for number in range(3)].count([b"free"]) == 1


def test_column_of_many_batches_fails_after_the_attempts_for_one(brokers: BrokerHarness) -> None:
    given = pa.array([b"%04d" % number + b"x" * 100_000 for number in range(60)])
    with make_producer(brokers) as producer:
        producer.send(KeyedMessage("u", b"first"))
        brokers.lose_leader(TopicPartition("u", 0))
        start_ms = brokers.clock.monotonic_ms()
        with pytest.raises(FailedToSendMessage, match=r"60 of 60 messages .* u") as failure:
            producer.send_values("u", given)
    assert len(given) * 100_000 > 6 * MAX_BATCH_BYTES
    assert brokers.clock.monotonic_ms() - start_ms < 2_000
    assert [message.message for message in failure.value.failed] == given.to_pylist()


def test_permanent_error_fails_one_batch_and_others_are_sent(brokers: BrokerHarness) -> None:
    given = [b"%04d" % number + b"x" * 100_000 for number in range(20)]
    brokers.script(ApiKey.PRODUCE, produce_error(ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    with make_producer(brokers) as producer, pytest.raises(FailedToSendMessage) as failure:
        producer.send_values("u", pa.array(given))
    failed = [message.message for message in failure.value.failed]
    assert failed == given[: len(failed)]
    assert 0 < len(failed) < len(given)
    assert values(brokers, 0, "u") == given[len(failed) :]


@pytest.mark.parametrize("errors", [3, 4])
def test_corrupt_message_error_has_all_the_attempts(brokers: BrokerHarness, errors: int) -> None:
    for _ in range(errors):
        brokers.script(ApiKey.PRODUCE, produce_error(ErrorCode.CORRUPT_MESSAGE))
    with make_producer(brokers, message_send_max_retries=3) as producer:
        if errors == 4:
            with pytest.raises(FailedToSendMessage, match="CORRUPT_MESSAGE"):
                producer.send(KeyedMessage("u", b"1"))
        else:
            producer.send(KeyedMessage("u", b"1"))
    assert len(brokers.asked(ApiKey.PRODUCE)) == 4


def test_messages_are_begun_while_others_are_under_way(brokers: BrokerHarness) -> None:
    with make_producer(brokers) as producer:
        handler = handler_of(producer)
        first = handler.begin(columns(b"1"))
        handler.poll()
        before = len(brokers.asked(ApiKey.PRODUCE))
        second = handler.begin(columns(b"2"))
        handler.poll()
        assert before == 1
        for dispatch in (first, second):
            handler.finish(dispatch)
    assert values(brokers, 0, "u") == [b"1", b"2"]


def test_failed_messages_are_reported_with_those_they_were_begun_with(brokers: BrokerHarness) -> None:
    with make_producer(brokers, message_send_max_retries=0) as producer:
        handler = handler_of(producer)
        producer.send(KeyedMessage("u", b"0"))
        brokers.script(ApiKey.PRODUCE, produce_error(ErrorCode.NOT_ENOUGH_REPLICAS))
        first, second = handler.begin(columns(b"1")), handler.begin(columns(b"2"))
        with pytest.raises(FailedToSendMessage) as failure:
            handler.finish(first)
        handler.finish(second)
    assert [message.message for message in failure.value.failed] == [b"1"]
    assert values(brokers, 0, "u") == [b"0", b"2"]


def test_interrupted_send_leaves_nothing_to_be_sent_later(
    brokers: BrokerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    with make_producer(brokers) as producer:
        brokers.script(ApiKey.PRODUCE, produce_error(ErrorCode.NOT_ENOUGH_REPLICAS))
        with monkeypatch.context() as patch:
            patch.setattr(producer._cluster.waiter, "wait", raising(KeyboardInterrupt))
            with pytest.raises(KeyboardInterrupt):
                producer.send(KeyedMessage("u", b"1"))
        producer.send(KeyedMessage("u", b"2"))
    assert values(brokers, 0, "u") == [b"2"]


def test_producer_finds_leaders_after_an_interrupted_lookup(
    brokers: BrokerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    with make_producer(brokers) as producer:
        producer.send(KeyedMessage("u", b"1"))
        brokers.script(ApiKey.PRODUCE, produce_error(ErrorCode.NOT_LEADER_FOR_PARTITION))
        with monkeypatch.context() as patch:
            patch.setattr(producer._cluster, "metadata", raising(KeyboardInterrupt))
            with pytest.raises(KeyboardInterrupt):
                producer.send(KeyedMessage("u", b"2"))
        producer.send(KeyedMessage("u", b"3"))
    assert values(brokers, 0, "u") == [b"1", b"3"]


def test_failed_messages_are_in_the_order_of_the_call(brokers: BrokerHarness) -> None:
    given = [b"%04d" % number for number in range(9_000)]
    keys: list[Any] = [b"k"] * 8_500 + [{}] * 500  # without a hash: these fail at once
    with make_producer(brokers, message_send_max_retries=0, key_serializer_class=Anything()) as producer:
        producer.send(KeyedMessage("u", b"first"))
        brokers.lose_leader(TopicPartition("u", 0))
        with pytest.raises(FailedToSendMessage) as failure:
            producer.send_values("u", given, keys)
    assert [message.message for message in failure.value.failed] == given


def test_given_up_messages_fail_at_once(brokers: BrokerHarness) -> None:
    with make_producer(brokers) as producer:
        handler = handler_of(producer)
        begun = handler.begin(columns(b"1"))
        handler.give_up()
        for dispatch in (begun, handler.begin(columns(b"2"))):
            with pytest.raises(FailedToSendMessage, match="not sent, as the producer was closed without"):
                handler.finish(dispatch)
    assert values(brokers, 0, "u") == []


def test_messages_begun_before_an_outage_wait_for_it_once_at_close(brokers: BrokerHarness) -> None:
    with make_producer(brokers, request_timeout_ms=3_000) as producer:
        handler = handler_of(producer)
        producer.send(KeyedMessage("u", b"0"))
        begun = [handler.begin(columns(b"%d" % number)) for number in range(5)]
        for broker_id in (1, 2):
            brokers.stop(broker_id)
        handler.begin_close()
        for place, dispatch in enumerate(begun):
            if place == 1:
                start_ms = brokers.clock.monotonic_ms()
            with pytest.raises(FailedToSendMessage, match="no broker could be reached"):
                handler.finish(dispatch)
        assert brokers.clock.monotonic_ms() - start_ms <= 3_100
    assert producer.stats.topic("u").failed == 5


@pytest.mark.parametrize("seed", range(4))
def test_messages_under_way_together_keep_their_order_through_faults(seed: int) -> None:
    source = random.Random(seed)
    brokers = BrokerHarness(3, {"t": 4, "u": 1})
    keys = [b"%d" % source.randrange(20) for _ in range(600)]
    keyed = [KeyedMessage("t", b"%05d" % number, key) for number, key in enumerate(keys)]
    free = [KeyedMessage("u", b"%05d" % number) for number in range(600)]
    with make_producer(brokers, message_send_max_retries=30, request_timeout_ms=1_000) as producer:
        handler = handler_of(producer)
        begun: deque[Dispatch] = deque()
        for at in range(0, 600, 20):
            if source.random() < 0.5:
                brokers.fault(source.randrange(1, 4), Fault.CUT_REQUEST)
            if source.random() < 0.3:
                tp = source.choice([TopicPartition("u", 0), TopicPartition("t", source.randrange(4))])
                brokers.move_leader(tp, source.randrange(1, 4))
            begun.append(handler.begin_fields(fields_of(keyed[at : at + 20] + free[at : at + 20])))
            handler.poll()
            while len(begun) >= source.randrange(2, 5):
                handler.finish(begun.popleft())
        while begun:
            handler.finish(begun.popleft())
    assert values(brokers, 0, "u") == [message.message for message in free]
    found: dict[bytes | None, list[bytes | None]] = defaultdict(list)
    for number in range(4):
        for record in records(brokers, number):
            found[record.key].append(record.value)
    assert found == {
        key: [message.message for message in keyed if message.key == key] for key in sorted(set(keys))
    }


@pytest.mark.parametrize("seed", range(4))
def test_each_message_is_either_written_or_reported_as_failed(seed: int) -> None:
    source = random.Random(seed)
    brokers = BrokerHarness(2, {"t": 4, "u": 1})
    given = [
        KeyedMessage(source.choice("tu"), b"%05d" % number, source.choice((None, b"%d" % (number % 9))))
        for number in range(400)
    ]
    failed: list[KeyedMessage] = []
    with make_producer(brokers, message_send_max_retries=0, request_timeout_ms=1_000) as producer:
        handler = handler_of(producer)
        begun: deque[Dispatch] = deque()

        def finish() -> None:
            try:
                handler.finish(begun.popleft())
            except FailedToSendMessage as error:
                failed.extend(error.failed)

        for at in range(0, 400, 10):
            if source.random() < 0.6:
                brokers.fault(source.randrange(1, 3), Fault.CUT_REQUEST)
            begun.append(handler.begin_fields(fields_of(given[at : at + 10])))
            handler.poll()
            if len(begun) == 3:
                finish()
        while begun:
            finish()
    written = everything(brokers, "t") + everything(brokers, "u")
    assert 0 < len(failed) < len(given)
    assert sorted([*written, *(message.message for message in failed)]) == [m.message for m in given]
    assert producer.stats.failed_messages == producer.stats.all_topics.failed == len(failed)
