"""``clients/producer``: the asynchronous producer, its queue, its callbacks and its end."""

from __future__ import annotations

import logging
import threading
from typing import Any

import pyarrow as pa
import pytest

from minikafka.base.errors import FailedToSendMessage, ProducerClosed, QueueFull
from minikafka.base.ids import TopicPartition
from minikafka.clients.producer import CallbackHandler, KeyedMessage, Producer
from minikafka.wire.api import ApiKey
from tests.support.broker_harness import BrokerHarness
from tests.support.producer_harness import (
    ADDRESS,
    RecordingCallbackHandler,
    RecordingEventHandler,
    everything,
    make_producer,
    values,
)


@pytest.fixture
def brokers() -> BrokerHarness:
    return BrokerHarness(2, {"t": 4, "u": 1})


def queueing(brokers: BrokerHarness, **given: Any) -> Producer:
    """Return an asynchronous producer with small limits, and without threads."""
    small = {"batch_num_messages": 3, "queue_buffering_max_messages": 6, "queue_buffering_max_ms": 100}
    return make_producer(brokers, producer_type="async", **{**small, **given})


def message(number: int, topic: str = "u") -> KeyedMessage:
    return KeyedMessage(topic, b"%d" % number)


def test_messages_are_sent_once_a_batch_is_full_or_the_time_is_up(brokers: BrokerHarness) -> None:
    producer = queueing(brokers)
    producer.send([message(0), message(1)])
    assert not producer.step()
    assert producer.queued == 2
    producer.send(message(2))
    assert producer.step()
    assert values(brokers, 0, "u") == [b"0", b"1", b"2"]
    producer.send(message(3))
    brokers.advance(100)
    assert producer.step()
    assert values(brokers, 0, "u")[-1] == b"3"


def test_close_sends_all_queued_messages(brokers: BrokerHarness) -> None:
    producer = queueing(brokers)
    producer.send_values("u", [b"0", b"1"])
    producer.send(message(2))
    producer.send_values("u", pa.array([b"3"]))
    producer.send([message(4), message(5)])
    producer.close()
    assert values(brokers, 0, "u") == [b"%d" % number for number in range(6)]
    with pytest.raises(ProducerClosed):
        producer.send(message(6))


def test_send_waits_for_room_without_limit_by_default(brokers: BrokerHarness) -> None:
    with queueing(brokers) as producer:
        for number in range(20):
            producer.send(message(number))
        producer.send([message(number) for number in range(20, 40)])
        producer.send_values("u", [b"%d" % number for number in range(40, 60)])
    assert values(brokers, 0, "u") == [b"%d" % number for number in range(60)]


def test_send_to_a_full_queue_without_a_wait_raises(brokers: BrokerHarness) -> None:
    producer = queueing(brokers, queue_enqueue_timeout_ms=0)
    for number in range(6):
        producer.send(message(number))
    for send, dropped in (
        (lambda: producer.send(message(9)), 1),
        (lambda: producer.send([message(9), message(9)]), 2),
        (lambda: producer.send_values("u", [b"9"] * 3), 3),
    ):
        with pytest.raises(
            QueueFull, match=f"^queue full: no room for {dropped} message.*, 6 are queued"
        ) as full:
            send()
        assert full.value.dropped == dropped
    assert producer.stats.topic("u").dropped == 6
    producer.close()
    assert values(brokers, 0, "u") == [b"%d" % number for number in range(6)]


def test_list_is_queued_as_far_as_there_is_room(brokers: BrokerHarness) -> None:
    producer = queueing(brokers, queue_enqueue_timeout_ms=0)
    with pytest.raises(QueueFull, match=r"no room for 4 messages"):
        producer.send([message(number) for number in range(10)])
    producer.close()
    assert values(brokers, 0, "u") == [b"%d" % number for number in range(6)]


@pytest.mark.parametrize("callback", [None, RecordingCallbackHandler])
def test_all_messages_without_room_count_as_dropped(brokers: BrokerHarness, callback: Any) -> None:
    given = {} if callback is None else {"callback_handler": callback}
    producer = queueing(brokers, queue_enqueue_timeout_ms=0, **given)
    with pytest.raises(QueueFull) as full:
        producer.send_values("u", [b"a"] * 20_006)
    assert full.value.dropped == producer.stats.topic("u").dropped == 20_000
    with pytest.raises(QueueFull) as full:
        producer.send([message(number) for number in range(4)])
    assert full.value.dropped == 4
    producer.close()
    assert values(brokers, 0, "u") == [b"a"] * 6


def test_send_waits_for_room_up_to_its_timeout() -> None:
    class BlockedEventHandler(RecordingEventHandler):
        def handle(self, events: Any) -> None:
            may_continue.wait(60)
            super().handle(events)

    may_continue = threading.Event()
    blocked = BlockedEventHandler()
    settings = {"batch.num.messages": 1, "queue.buffering.max.messages": 1, "queue.enqueue.timeout.ms": 1}
    producer = Producer({**ADDRESS, "producer.type": "async", "event.handler": blocked, **settings})
    sent = 0
    while producer.stats.all_topics.dropped == 0:
        try:
            producer.send(message(sent))
            sent += 1
        except QueueFull:
            may_continue.set()
    producer.close()
    # All accepted messages are sent: the one in the handler, and those in the queue.
    assert blocked.messages == [b"%d" % number for number in range(sent)]


def test_event_handler_gets_batches_of_the_configured_size(brokers: BrokerHarness) -> None:
    handler = RecordingEventHandler()
    producer = queueing(brokers, event_handler=handler)
    producer.send([message(number) for number in range(5)])
    producer.step()
    producer.send_values("u", [b"5", b"6", b"7"])
    producer.step()
    producer.close()
    assert [[event.message for event in batch] for batch in handler.batches] == [
        [b"0", b"1", b"2"],
        [b"3", b"4", b"5"],
        [b"6", b"7"],
    ]
    assert handler.closed


def test_failed_batch_is_logged_and_the_next_is_sent(
    brokers: BrokerHarness, caplog: pytest.LogCaptureFixture
) -> None:
    brokers.lose_leader(TopicPartition("u", 0))
    producer = queueing(brokers)
    producer.send([message(0), message(1), KeyedMessage("t", b"good")])
    with caplog.at_level(logging.ERROR):
        producer.step()
    assert "2 of 3 messages were not sent, with up to 3 retries: u: 2 (LEADER_NOT_AVAILABLE" in caplog.text
    assert everything(brokers) == [b"good"]
    brokers.move_leader(TopicPartition("u", 0), 1)
    producer.send(message(2))
    producer.close()
    assert values(brokers, 0, "u") == [b"2"]
    assert (producer.stats.failed_sends, producer.stats.failed_messages) == (1, 2)


def test_unencodable_message_is_logged_and_others_are_sent(
    brokers: BrokerHarness, caplog: pytest.LogCaptureFixture
) -> None:
    callbacks = RecordingCallbackHandler()
    producer = queueing(brokers, callback_handler=callbacks)
    producer.send([message(0), KeyedMessage("u", "text"), message(2)])
    producer.close()
    assert values(brokers, 0, "u") == [b"0", b"2"]
    assert "a message for topic u cannot be serialized" in caplog.text
    error = next(call[2] for call in callbacks.calls if call[0] == "after_sending_data")
    assert isinstance(error, FailedToSendMessage)
    assert [event.message for event in error.failed] == ["text"]
    assert producer.stats.serialization_errors == 1


def test_callback_handler_is_called_at_every_stage(brokers: BrokerHarness) -> None:
    callbacks = RecordingCallbackHandler()
    producer = queueing(
        brokers, callback_handler=callbacks, event_handler=RecordingEventHandler(), batch_num_messages=2
    )
    producer.send(message(0))
    producer.send_values("u", [b"1"])
    producer.step()
    producer.send(message(2))
    brokers.advance(100)
    producer.step()
    producer.close()
    assert callbacks.calls == [
        ("init", "async"),
        ("before_enqueue", b"0"),
        ("after_enqueue", b"0", True),
        ("before_enqueue", b"1"),
        ("after_enqueue", b"1", True),
        ("after_dequeuing_existing_data", b"0"),
        ("after_dequeuing_existing_data", b"1"),
        ("before_sending_data", [b"0", b"1"]),
        ("after_sending_data", [b"0", b"1"], None),
        ("before_enqueue", b"2"),
        ("after_enqueue", b"2", True),
        ("after_dequeuing_existing_data", b"2"),
        ("after_dequeuing_existing_data", None),
        ("before_sending_data", [b"2"]),
        ("after_sending_data", [b"2"], None),
        ("last_batch_before_close",),
        ("close",),
    ]


def test_callbacks_can_change_the_events(brokers: BrokerHarness) -> None:
    class ChangingCallbackHandler(CallbackHandler):
        def before_enqueue(self, event: KeyedMessage) -> KeyedMessage:
            return event._replace(message=event.message + b"+")

        def after_dequeuing_existing_data(self, event: KeyedMessage | None) -> Any:
            return [] if event is None or event.message == b"1+" else [event, event]

        def before_sending_data(self, events: Any) -> Any:
            return [*events, message(7)]

        def last_batch_before_close(self) -> Any:
            return [message(8)]

    producer = queueing(brokers, callback_handler=ChangingCallbackHandler)
    producer.send([message(0), message(1), message(2)])
    producer.close()
    assert values(brokers, 0, "u") == [b"0+", b"0+", b"2+", b"2+", b"7", b"8"]


def test_callback_handler_is_called_for_dropped_messages(brokers: BrokerHarness) -> None:
    callbacks = RecordingCallbackHandler()
    producer = queueing(
        brokers,
        callback_handler=callbacks,
        queue_enqueue_timeout_ms=0,
        queue_buffering_max_messages=1,
        batch_num_messages=1,
    )
    producer.send(message(0))
    with pytest.raises(QueueFull):
        producer.send(message(1))
    assert callbacks.calls[-1] == ("after_enqueue", b"1", False)
    producer.close()


@pytest.mark.parametrize(
    "stage",
    ["after_dequeuing_existing_data", "before_sending_data", "after_sending_data", "last_batch_before_close"],
)
def test_failed_callback_loses_only_its_batch(
    brokers: BrokerHarness, caplog: pytest.LogCaptureFixture, stage: str
) -> None:
    class Failing(CallbackHandler):
        pass

    failing = Failing()

    def fail(*_: Any) -> Any:
        setattr(failing, stage, getattr(CallbackHandler(), stage))
        raise OSError("broken")

    setattr(failing, stage, fail)
    producer = queueing(brokers, callback_handler=failing)
    producer.send([message(0), message(1), message(2)])
    producer.step()
    producer.send(message(3))
    producer.close()
    lost = stage in {"after_dequeuing_existing_data", "before_sending_data"}
    assert values(brokers, 0, "u") == ([b"3"] if lost else [b"0", b"1", b"2", b"3"])
    assert producer.stats.failed_messages == (3 if lost else 0)
    assert "the callback handler failed" in caplog.text


def test_non_messages_are_refused_and_not_queued(brokers: BrokerHarness) -> None:
    class InvalidCallbackHandler(CallbackHandler):
        def before_enqueue(self, event: KeyedMessage) -> Any:
            return None if event.message == b"0" else tuple(event)

    with queueing(brokers) as producer:
        for wrong in [("t", b"a"), [("u", b"a", None, None)], "ab", [message(0), None]]:
            with pytest.raises(TypeError, match="expected a KeyedMessage or a list"):
                producer.send(wrong)  # type: ignore[arg-type]
        assert producer.queued == 0
        producer.send(message(number) for number in range(2))
    assert values(brokers, 0, "u") == [b"0", b"1"]
    with queueing(brokers, callback_handler=InvalidCallbackHandler) as producer:
        for number in range(2):
            with pytest.raises(TypeError, match="before_enqueue returned"):
                producer.send(message(number))
        assert producer.queued == 0


def test_failed_event_handler_is_counted_and_passed_to_the_callback(brokers: BrokerHarness) -> None:
    callbacks, handler = RecordingCallbackHandler(), RecordingEventHandler()
    handler.error = OSError("broken")
    producer = queueing(brokers, callback_handler=callbacks, event_handler=handler)
    producer.send([message(0), message(1), message(2)])
    producer.close()
    assert ("after_sending_data", [b"0", b"1", b"2"], handler.error) in callbacks.calls
    assert producer.stats.failed_messages == 3


@pytest.mark.parametrize("topic", [b"u", 5, ["u"], None])
def test_topic_that_is_not_text_fails_alone(
    brokers: BrokerHarness, caplog: pytest.LogCaptureFixture, topic: Any
) -> None:
    producer = queueing(brokers)
    producer.send([message(0), KeyedMessage(topic, b"1"), message(2)])
    with pytest.raises(TypeError, match="expected a topic name as text, got"):
        producer.send_values(topic, [b"3"])
    producer.close()
    assert values(brokers, 0, "u") == [b"0", b"2"]
    assert f"expected a topic name as text, got {topic!r}" in caplog.text
    assert producer.stats.failed_messages == 1


def test_send_on_the_send_thread_does_not_wait_for_room() -> None:
    class SendingCallbackHandler(RecordingCallbackHandler):
        def after_sending_data(self, events: Any, error: Exception | None) -> None:
            try:
                producer.send([message(7), message(8)])
            except QueueFull:
                full.set()

    full = threading.Event()
    small = {"batch.num.messages": 1, "queue.buffering.max.messages": 1}
    given = {"event.handler": RecordingEventHandler(), "callback.handler": SendingCallbackHandler}
    producer = Producer({**ADDRESS, "producer.type": "async", **small, **given})
    producer.send(message(0))
    assert full.wait(20)
    producer.close()


def test_messages_of_several_topics_in_one_batch_keep_their_order(brokers: BrokerHarness) -> None:
    producer = queueing(brokers)
    producer.send([message(0), message(1, "t"), message(2), message(3, "t"), message(4)])
    producer.close()
    assert values(brokers, 0, "u") == [b"0", b"2", b"4"]
    assert everything(brokers) == [b"1", b"3"]
    assert (producer.stats.topic("u").messages, producer.stats.topic("t").messages) == (3, 2)


def test_close_during_sends_of_many_threads_loses_nothing() -> None:
    handler = RecordingEventHandler()
    settings = {"batch.num.messages": 7, "queue.buffering.max.messages": 20, "queue.time": 1}
    producer = Producer({**ADDRESS, "producer.type": "async", "event.handler": handler, **settings})
    accepted: list[list[int]] = [[] for _ in range(4)]
    started = threading.Event()

    def send(mine: list[int], first: int) -> None:
        for number in range(first, first + 100_000):
            try:
                producer.send(KeyedMessage("u", number))
            except ProducerClosed:
                return
            mine.append(number)
            if len(mine) == 50:
                started.set()

    threads = [
        threading.Thread(target=send, args=(mine, 100_000 * place)) for place, mine in enumerate(accepted)
    ]
    for thread in threads:
        thread.start()
    assert started.wait(60)
    producer.close()
    for thread in threads:
        thread.join(60)
    assert sorted(handler.messages) == sorted(number for mine in accepted for number in mine)
    for place, mine in enumerate(accepted):
        assert [number for number in handler.messages if number // 100_000 == place] == mine
    assert max(map(len, handler.batches)) <= 7
    assert handler.closed


def test_event_handler_may_close_its_producer() -> None:
    class ClosingHandler(RecordingEventHandler):
        def handle(self, events: Any) -> None:
            super().handle(events)
            producer.close()
            done.set()

    done = threading.Event()
    closing = ClosingHandler()
    settings = {"producer.type": "async", "event.handler": closing, "batch.num.messages": 1}
    producer = Producer({**ADDRESS, **settings})
    producer.send(message(0))
    assert done.wait(60)
    assert closing.messages == [b"0"]


def test_messages_queued_at_a_close_in_a_callback_are_sent() -> None:
    class ClosingHandler(RecordingCallbackHandler):
        def before_sending_data(self, events: Any) -> Any:
            queued.wait(60)
            producer.close()
            return super().before_sending_data(events)

        def close(self) -> None:
            super().close()
            done.set()

    queued, done = threading.Event(), threading.Event()
    closing, handler = ClosingHandler(), RecordingEventHandler()
    settings = {"producer.type": "async", "event.handler": handler, "batch.num.messages": 1}
    producer = Producer({**ADDRESS, **settings, "callback.handler": closing})
    producer.send([message(number) for number in range(3)])
    queued.set()
    assert done.wait(60)
    producer.close()
    assert handler.messages == [b"0", b"1", b"2"]
    assert closing.calls[-2:] == [("last_batch_before_close",), ("close",)]


def test_neighbouring_columns_are_sent_in_one_request(brokers: BrokerHarness) -> None:
    producer = queueing(brokers, batch_num_messages=6)
    producer.send_values("u", [b"0"])
    producer.step()
    producer.close()
    before = len(brokers.asked(ApiKey.PRODUCE))
    producer = queueing(brokers, batch_num_messages=6)
    producer.send_values("u", [b"1"])
    producer.send_values("u", pa.array([b"2"]))
    producer.send_values("u", [b"3"], [b"k"])
    producer.send_values("u", [b"4"])
    producer.send_values("t", [b"5"])
    producer.close()
    assert values(brokers, 0, "u") == [b"0", b"1", b"2", b"3", b"4"]
    assert everything(brokers) == [b"5"]
    assert len(brokers.asked(ApiKey.PRODUCE)) - before == 4
