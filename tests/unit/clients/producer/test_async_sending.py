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
from tests.support.brokers_in_memory import BrokersInMemory
from tests.support.producer_harness import (
    ADDRESS,
    RecordingCallbackHandler,
    RecordingEventHandler,
    everything,
    make_producer,
    values,
)


@pytest.fixture
def brokers() -> BrokersInMemory:
    return BrokersInMemory(2, {"t": 4, "u": 1})


def queueing(brokers: BrokersInMemory, **given: Any) -> Producer:
    """An asynchronous producer with small numbers, and without threads."""
    small = {"batch_num_messages": 3, "queue_buffering_max_messages": 6, "queue_buffering_max_ms": 100}
    return make_producer(brokers, producer_type="async", **{**small, **given})


def message(number: int, topic: str = "u") -> KeyedMessage:
    return KeyedMessage(topic, b"%d" % number)


def test_messages_wait_for_a_batch_or_for_their_time(brokers: BrokersInMemory) -> None:
    producer = queueing(brokers)
    producer.send([message(0), message(1)])
    assert not producer.step()
    assert producer.queued == 2
    producer.send(message(2))
    assert producer.step()
    assert values(brokers, 0, "u") == [b"0", b"1", b"2"]
    producer.send(message(3))
    brokers.clock.advance(100)
    assert producer.step()
    assert values(brokers, 0, "u")[-1] == b"3"


def test_nothing_that_is_queued_is_lost_at_close(brokers: BrokersInMemory) -> None:
    producer = queueing(brokers)
    producer.send_values("u", [b"0", b"1"])
    producer.send(message(2))
    producer.send_values("u", pa.array([b"3"]))
    producer.send([message(4), message(5)])
    producer.close()
    assert values(brokers, 0, "u") == [b"%d" % number for number in range(6)]
    with pytest.raises(ProducerClosed):
        producer.send(message(6))


def test_a_full_queue_is_waited_for_without_limit_by_default(brokers: BrokersInMemory) -> None:
    with queueing(brokers) as producer:
        for number in range(20):
            producer.send(message(number))
        producer.send([message(number) for number in range(20, 40)])
        producer.send_values("u", [b"%d" % number for number in range(40, 60)])
    assert values(brokers, 0, "u") == [b"%d" % number for number in range(60)]


def test_a_full_queue_drops_and_says_so_where_nobody_waits(brokers: BrokersInMemory) -> None:
    producer = queueing(brokers, queue_enqueue_timeout_ms=0)
    for number in range(6):
        producer.send(message(number))
    for refused, dropped in (
        (lambda: producer.send(message(9)), 1),
        (lambda: producer.send([message(9), message(9)]), 2),
        (lambda: producer.send_values("u", [b"9"] * 3), 3),
    ):
        with pytest.raises(
            QueueFull, match=f"^queue full: no room for {dropped} message.*, 6 are queued"
        ) as full:
            refused()
        assert full.value.dropped == dropped
    assert producer.stats.topic("u").dropped == 6
    producer.close()
    assert values(brokers, 0, "u") == [b"%d" % number for number in range(6)]


def test_messages_of_a_list_are_queued_while_there_is_room(brokers: BrokersInMemory) -> None:
    producer = queueing(brokers, queue_enqueue_timeout_ms=0)
    with pytest.raises(QueueFull, match=r"no room for 4 messages"):
        producer.send([message(number) for number in range(10)])
    producer.close()
    assert values(brokers, 0, "u") == [b"%d" % number for number in range(6)]


@pytest.mark.parametrize("callback", [None, RecordingCallbackHandler])
def test_all_messages_without_room_count_as_dropped(brokers: BrokersInMemory, callback: Any) -> None:
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


def test_a_full_queue_is_waited_for_as_long_as_is_set() -> None:
    class Stuck(RecordingEventHandler):
        def handle(self, events: Any) -> None:
            going.wait(60)
            super().handle(events)

    going = threading.Event()
    stuck = Stuck()
    settings = {"batch.num.messages": 1, "queue.buffering.max.messages": 1, "queue.enqueue.timeout.ms": 1}
    producer = Producer({**ADDRESS, "producer.type": "async", "event.handler": stuck, **settings})
    sent = 0
    while producer.stats.all_topics.dropped == 0:
        try:
            producer.send(message(sent))
            sent += 1
        except QueueFull:
            going.set()
    producer.close()
    # What was taken is sent: one that was being handled, and those in the queue.
    assert stuck.messages == [b"%d" % number for number in range(sent)]


def test_an_event_handler_gets_batches_of_the_size_that_is_set(brokers: BrokersInMemory) -> None:
    kept = RecordingEventHandler()
    producer = queueing(brokers, event_handler=kept)
    producer.send([message(number) for number in range(5)])
    producer.step()
    producer.send_values("u", [b"5", b"6", b"7"])
    producer.step()
    producer.close()
    assert [[event.message for event in batch] for batch in kept.batches] == [
        [b"0", b"1", b"2"],
        [b"3", b"4", b"5"],
        [b"6", b"7"],
    ]
    assert kept.closed


def test_failed_batch_is_logged_and_the_next_is_sent(
    brokers: BrokersInMemory, caplog: pytest.LogCaptureFixture
) -> None:
    brokers.leaders[TopicPartition("u", 0)] = -1
    producer = queueing(brokers)
    producer.send([message(0), message(1), KeyedMessage("t", b"good")])
    with caplog.at_level(logging.ERROR):
        producer.step()
    assert "2 of 3 messages were not sent, with up to 3 retries: u: 2 (LEADER_NOT_AVAILABLE" in caplog.text
    assert everything(brokers) == [b"good"]
    brokers.leaders[TopicPartition("u", 0)] = 1
    producer.send(message(2))
    producer.close()
    assert values(brokers, 0, "u") == [b"2"]
    assert (producer.stats.failed_sends, producer.stats.failed_messages) == (1, 2)


def test_unencodable_message_is_logged_and_others_are_sent(
    brokers: BrokersInMemory, caplog: pytest.LogCaptureFixture
) -> None:
    told = RecordingCallbackHandler()
    producer = queueing(brokers, callback_handler=told)
    producer.send([message(0), KeyedMessage("u", "text"), message(2)])
    producer.close()
    assert values(brokers, 0, "u") == [b"0", b"2"]
    assert "a message for topic u cannot be serialized" in caplog.text
    error = next(call[2] for call in told.calls if call[0] == "after_sending_data")
    assert isinstance(error, FailedToSendMessage)
    assert [event.message for event in error.failed] == ["text"]
    assert producer.stats.serialization_errors == 1


def test_a_callback_handler_is_told_of_every_stage(brokers: BrokersInMemory) -> None:
    told = RecordingCallbackHandler()
    producer = queueing(
        brokers, callback_handler=told, event_handler=RecordingEventHandler(), batch_num_messages=2
    )
    producer.send(message(0))
    producer.send_values("u", [b"1"])
    producer.step()
    producer.send(message(2))
    brokers.clock.advance(100)
    producer.step()
    producer.close()
    assert told.calls == [
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


def test_callbacks_change_what_is_sent(brokers: BrokersInMemory) -> None:
    class Changes(CallbackHandler):
        def before_enqueue(self, event: KeyedMessage) -> KeyedMessage:
            return event._replace(message=event.message + b"+")

        def after_dequeuing_existing_data(self, event: KeyedMessage | None) -> Any:
            return [] if event is None or event.message == b"1+" else [event, event]

        def before_sending_data(self, events: Any) -> Any:
            return [*events, message(7)]

        def last_batch_before_close(self) -> Any:
            return [message(8)]

    producer = queueing(brokers, callback_handler=Changes)
    producer.send([message(0), message(1), message(2)])
    producer.close()
    assert values(brokers, 0, "u") == [b"0+", b"0+", b"2+", b"2+", b"7", b"8"]


def test_a_callback_handler_learns_of_dropped_messages(brokers: BrokersInMemory) -> None:
    told = RecordingCallbackHandler()
    producer = queueing(
        brokers,
        callback_handler=told,
        queue_enqueue_timeout_ms=0,
        queue_buffering_max_messages=1,
        batch_num_messages=1,
    )
    producer.send(message(0))
    with pytest.raises(QueueFull):
        producer.send(message(1))
    assert told.calls[-1] == ("after_enqueue", b"1", False)
    producer.close()


@pytest.mark.parametrize(
    "stage",
    ["after_dequeuing_existing_data", "before_sending_data", "after_sending_data", "last_batch_before_close"],
)
def test_a_callback_that_fails_ends_nothing_but_its_batch(
    brokers: BrokersInMemory, caplog: pytest.LogCaptureFixture, stage: str
) -> None:
    class Fails(CallbackHandler):
        pass

    failing = Fails()

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


def test_non_messages_are_refused_and_not_queued(brokers: BrokersInMemory) -> None:
    class Forgets(CallbackHandler):
        def before_enqueue(self, event: KeyedMessage) -> Any:
            return None if event.message == b"0" else tuple(event)

    with queueing(brokers) as producer:
        for wrong in [("t", b"a"), [("u", b"a", None, None)], "ab", [message(0), None]]:
            with pytest.raises(TypeError, match="expected a KeyedMessage or a list"):
                producer.send(wrong)  # type: ignore[arg-type]
        assert producer.queued == 0
        producer.send(message(number) for number in range(2))
    assert values(brokers, 0, "u") == [b"0", b"1"]
    with queueing(brokers, callback_handler=Forgets) as producer:
        for number in range(2):
            with pytest.raises(TypeError, match="before_enqueue returned"):
                producer.send(message(number))
        assert producer.queued == 0


def test_failed_event_handler_is_counted_and_passed_to_the_callback(
    brokers: BrokersInMemory,
) -> None:
    told, kept = RecordingCallbackHandler(), RecordingEventHandler()
    kept.error = OSError("broken")
    producer = queueing(brokers, callback_handler=told, event_handler=kept)
    producer.send([message(0), message(1), message(2)])
    producer.close()
    assert ("after_sending_data", [b"0", b"1", b"2"], kept.error) in told.calls
    assert producer.stats.failed_messages == 3


@pytest.mark.parametrize("topic", [b"u", 5, ["u"], None])
def test_a_topic_that_is_no_text_fails_alone_and_is_shown(
    brokers: BrokersInMemory, caplog: pytest.LogCaptureFixture, topic: Any
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
    class SendsAgain(RecordingCallbackHandler):
        def after_sending_data(self, events: Any, error: Exception | None) -> None:
            try:
                producer.send([message(7), message(8)])
            except QueueFull:
                full.set()

    full = threading.Event()
    small = {"batch.num.messages": 1, "queue.buffering.max.messages": 1}
    given = {"event.handler": RecordingEventHandler(), "callback.handler": SendsAgain}
    producer = Producer({**ADDRESS, "producer.type": "async", **small, **given})
    producer.send(message(0))
    assert full.wait(20)
    producer.close()


def test_messages_of_several_topics_in_one_batch_keep_their_order(brokers: BrokersInMemory) -> None:
    producer = queueing(brokers)
    producer.send([message(0), message(1, "t"), message(2), message(3, "t"), message(4)])
    producer.close()
    assert values(brokers, 0, "u") == [b"0", b"2", b"4"]
    assert everything(brokers) == [b"1", b"3"]
    assert (producer.stats.topic("u").messages, producer.stats.topic("t").messages) == (3, 2)


def test_close_during_sends_of_many_threads_loses_nothing() -> None:
    kept = RecordingEventHandler()
    settings = {"batch.num.messages": 7, "queue.buffering.max.messages": 20, "queue.time": 1}
    producer = Producer({**ADDRESS, "producer.type": "async", "event.handler": kept, **settings})
    taken: list[list[int]] = [[] for _ in range(4)]
    some = threading.Event()

    def send(mine: list[int], first: int) -> None:
        for number in range(first, first + 100_000):
            try:
                producer.send(KeyedMessage("u", number))
            except ProducerClosed:
                return
            mine.append(number)
            if len(mine) == 50:
                some.set()

    threads = [
        threading.Thread(target=send, args=(mine, 100_000 * place)) for place, mine in enumerate(taken)
    ]
    for thread in threads:
        thread.start()
    assert some.wait(60)
    producer.close()
    for thread in threads:
        thread.join(60)
    assert sorted(kept.messages) == sorted(number for mine in taken for number in mine)
    for place, mine in enumerate(taken):
        assert [number for number in kept.messages if number // 100_000 == place] == mine
    assert max(map(len, kept.batches)) <= 7
    assert kept.closed


def test_a_producer_may_be_closed_by_its_own_handler() -> None:
    class Closes(RecordingEventHandler):
        def handle(self, events: Any) -> None:
            super().handle(events)
            producer.close()
            done.set()

    done = threading.Event()
    closes = Closes()
    settings = {"producer.type": "async", "event.handler": closes, "batch.num.messages": 1}
    producer = Producer({**ADDRESS, **settings})
    producer.send(message(0))
    assert done.wait(60)
    assert closes.messages == [b"0"]


def test_messages_queued_at_a_close_in_a_callback_are_sent() -> None:
    class Closes(RecordingCallbackHandler):
        def before_sending_data(self, events: Any) -> Any:
            queued.wait(60)
            producer.close()
            return super().before_sending_data(events)

        def close(self) -> None:
            super().close()
            done.set()

    queued, done = threading.Event(), threading.Event()
    closes, kept = Closes(), RecordingEventHandler()
    settings = {"producer.type": "async", "event.handler": kept, "batch.num.messages": 1}
    producer = Producer({**ADDRESS, **settings, "callback.handler": closes})
    producer.send([message(number) for number in range(3)])
    queued.set()
    assert done.wait(60)
    producer.close()
    assert kept.messages == [b"0", b"1", b"2"]
    assert closes.calls[-2:] == [("last_batch_before_close",), ("close",)]


def test_columns_that_wait_together_are_sent_together(brokers: BrokersInMemory) -> None:
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
