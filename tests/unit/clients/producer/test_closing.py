"""The end of an asynchronous producer: outages, Ctrl-C, and callbacks that close it."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
from typing import Any

import pytest

from minikafka.base.errors import FailedToSendMessage, ProducerClosed
from minikafka.clients.producer import CallbackHandler, KeyedMessage, Producer, async_producer
from tests.support.broker_harness import BrokerHarness
from tests.support.producer_harness import (
    ADDRESS,
    RecordingCallbackHandler,
    RecordingEventHandler,
    make_producer,
    values,
)
from tests.support.raising import raising

ASYNC = {**ADDRESS, "producer.type": "async", "batch.num.messages": 1}
TIMEOUT_MS = 3_000


@pytest.fixture
def brokers() -> BrokerHarness:
    return BrokerHarness(1, {"u": 1})


@pytest.fixture
def short_intervals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(async_producer, "PROGRESS_INTERVAL_S", 0.01)
    monkeypatch.setattr(async_producer, "GIVE_UP_TIMEOUT_S", 0.01)


def queueing(brokers: BrokerHarness, **given: Any) -> Producer:
    return make_producer(
        brokers, producer_type="async", batch_num_messages=3, request_timeout_ms=TIMEOUT_MS, **given
    )


def message(number: int) -> KeyedMessage:
    return KeyedMessage("u", b"%d" % number)


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("retries", [0, 3])
@pytest.mark.parametrize("callback", [None, RecordingCallbackHandler])
def test_close_waits_for_an_outage_once(
    brokers: BrokerHarness, caplog: pytest.LogCaptureFixture, known: bool, retries: int, callback: Any
) -> None:
    given = {} if callback is None else {"callback_handler": callback}
    producer = queueing(brokers, message_send_max_retries=retries, **given)
    if known:
        producer.send([message(0)] * 3)
        producer.step()
    brokers.stop(1)
    producer.send([message(number) for number in range(60)])
    start_ms = brokers.clock.monotonic_ms()
    producer.close()
    waited_ms = brokers.clock.monotonic_ms() - start_ms
    # The attempts of the first batch, and one timeout for all others.
    assert waited_ms <= (retries + 1) * (TIMEOUT_MS + 100) + TIMEOUT_MS + 100
    assert producer.stats.failed_messages == producer.stats.all_topics.failed == 60
    assert "a producer was closed: 60 messages were not sent" in caplog.text


def test_callback_handler_gets_each_batch_lost_in_an_outage(brokers: BrokerHarness) -> None:
    callbacks = RecordingCallbackHandler()
    producer = queueing(brokers, callback_handler=callbacks)
    brokers.stop(1)
    producer.send([message(number) for number in range(6)])
    producer.close()
    first, second = (call[2] for call in callbacks.calls if call[0] == "after_sending_data")
    assert "no broker could be reached: " in str(first)
    assert "not sent, as the producer is being closed: no broker could be reached: " in str(second)
    assert isinstance(second, FailedToSendMessage)
    assert list(second.failed) == [message(number) for number in (3, 4, 5)]


def test_brokers_back_during_close_get_the_remaining_messages(brokers: BrokerHarness) -> None:
    class RestartingCallbackHandler(CallbackHandler):
        def after_sending_data(self, events: Any, error: Exception | None) -> None:
            if error is not None:
                brokers.start(1)

    producer = queueing(brokers, callback_handler=RestartingCallbackHandler)
    brokers.stop(1)
    producer.send([message(number) for number in range(9)])
    producer.close()
    assert values(brokers, 0, "u") == [b"%d" % number for number in range(3, 9)]
    assert producer.stats.failed_messages == 3


def test_each_batch_before_close_has_all_its_attempts(brokers: BrokerHarness) -> None:
    producer = queueing(brokers)
    producer.send([message(9)] * 3)
    producer.step()
    brokers.stop(1)
    for count in (1, 2):
        producer.send([message(0)] * 3)
        producer.step()
        assert producer.stats.resends == 3 * count
    brokers.start(1)
    producer.send([message(1)] * 3)
    producer.close()
    assert values(brokers, 0, "u") == [b"9"] * 3 + [b"1"] * 3


def test_topic_is_looked_up_as_long_as_all_attempts_may_take(brokers: BrokerHarness) -> None:
    producer = queueing(brokers)
    brokers.stop(1)
    for _ in range(2):
        start_ms = brokers.clock.monotonic_ms()
        producer.send([message(0)] * 3)
        producer.step()
        assert brokers.clock.monotonic_ms() - start_ms > 3 * TIMEOUT_MS
    brokers.start(1)
    producer.send([message(1)] * 3)
    producer.close()
    assert values(brokers, 0, "u") == [b"1"] * 3


class BlockedEventHandler(RecordingEventHandler):
    """Waits at each batch until ``may_continue`` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.started, self.may_continue = threading.Event(), threading.Event()

    def handle(self, events: Any) -> None:
        self.started.set()
        self.may_continue.wait(60)
        super().handle(events)


class ProgressHandler(logging.Handler):
    """Calls a function at each message about what a closing producer waits for."""

    def __init__(self, call: Any) -> None:
        super().__init__()
        self.messages: list[str] = []
        self._call = call

    def emit(self, record: logging.LogRecord) -> None:
        if "still wait" in record.getMessage():
            self.messages.append(record.getMessage())
            self._call()


@pytest.fixture
def log(request: pytest.FixtureRequest) -> Any:
    found = []

    def add(call: Any) -> ProgressHandler:
        found.append(ProgressHandler(call))
        logging.getLogger("minikafka.clients.producer").addHandler(found[0])
        return found[0]

    yield add
    for handler in found:
        logging.getLogger("minikafka.clients.producer").removeHandler(handler)


@pytest.mark.usefixtures("short_intervals")
def test_close_logs_the_number_of_waiting_messages(log: Any) -> None:
    blocked = BlockedEventHandler()
    producer = Producer({**ASYNC, "event.handler": blocked})
    producer.send([message(0), message(1), message(2)])
    assert blocked.started.wait(60)
    messages = log(blocked.may_continue.set).messages
    producer.close()
    assert messages[0] == ("minikafka: closing a producer: 3 messages still wait for the event handler")
    assert blocked.messages == [b"0", b"1", b"2"]


@pytest.mark.usefixtures("short_intervals")
def test_ctrl_c_abandons_and_counts_the_remaining_messages(
    log: Any, caplog: pytest.LogCaptureFixture
) -> None:
    blocked = BlockedEventHandler()
    producer = Producer({**ASYNC, "event.handler": blocked})
    producer.send([message(0), message(1)])
    assert blocked.started.wait(60)
    log(raising(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        producer.close()
    assert "a producer was closed: 2 messages were not sent" in caplog.text
    with pytest.raises(ProducerClosed):
        producer.send(message(2))
    blocked.may_continue.set()


def test_messages_lost_by_an_exit_in_a_callback_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    class ExitingCallbackHandler(CallbackHandler):
        def before_sending_data(self, events: Any) -> Any:
            sys.exit(3)

    producer = Producer(
        {
            **ASYNC,
            "event.handler": RecordingEventHandler(),
            "callback.handler": ExitingCallbackHandler,
            "queue.buffering.max.messages": 2,
        }
    )
    with pytest.raises(ProducerClosed):
        producer.send(message(0) for _ in range(10))  # a caller that waits for room gets it too
    producer.close()
    assert "unexpected error in the send thread, the producer is closed: " in caplog.text
    assert 1 <= producer.stats.failed_messages <= 10


def test_close_in_a_callback_handler_sends_queued_messages_first() -> None:
    class ClosingCallbackHandler(RecordingCallbackHandler):
        def after_sending_data(self, events: Any, error: Exception | None) -> None:
            super().after_sending_data(events, error)
            if blocked.messages == [b"0"]:
                producer.close()

        def close(self) -> None:
            super().close()
            done.set()

    blocked, closing, done = BlockedEventHandler(), ClosingCallbackHandler(), threading.Event()
    producer = Producer({**ASYNC, "event.handler": blocked, "callback.handler": closing})
    producer.send([message(0), message(1), message(2)])
    blocked.may_continue.set()
    assert done.wait(60)
    assert blocked.messages == [b"0", b"1", b"2"]
    assert [call[0] for call in closing.calls][-2:] == ["last_batch_before_close", "close"]


@pytest.mark.parametrize(
    ("stage", "given"),
    [
        ("after_dequeuing_existing_data", message(0)),
        ("after_dequeuing_existing_data", None),
        ("before_sending_data", None),
        ("before_sending_data", [b"0"]),
        ("before_sending_data", "text"),
    ],
)
def test_callback_without_messages_is_logged_and_its_batch_fails(
    brokers: BrokerHarness, caplog: pytest.LogCaptureFixture, stage: str, given: Any
) -> None:
    handler = CallbackHandler()
    setattr(handler, stage, lambda _: given)
    producer = queueing(brokers, callback_handler=handler)
    producer.send([message(number) for number in range(3)])
    producer.close()
    assert producer.stats.failed_messages == 3
    assert "KeyedMessages" in caplog.text
    assert values(brokers, 0, "u") == []


PROGRAM = """
import logging, os, signal, sys, threading
from minikafka.clients.producer import CallbackHandler, KeyedMessage, Producer

class InterruptingHandler(logging.Handler):
    def emit(self, record):
        if "still wait" in record.getMessage():
            os.kill(os.getpid(), signal.SIGINT)

class Printing(CallbackHandler):
    def close(self):
        print("closed")

logging.basicConfig(format="%(message)s")
signal.signal(signal.SIGINT, signal.default_int_handler)
from minikafka.clients.producer import async_producer
async_producer.PROGRESS_INTERVAL_S, async_producer.GIVE_UP_TIMEOUT_S = 0.2, 50
logging.getLogger("minikafka.clients.producer").addHandler(InterruptingHandler())
settings = {"metadata.broker.list": "127.0.0.1:1", "producer.type": "async", "callback.handler": Printing}
producer = Producer(settings)
for number in range(500):
    producer.send(KeyedMessage("t", b"x"))
"""
CLOSES = "\ntry:\n    producer.close()\nexcept KeyboardInterrupt:\n    sys.exit(130)\n"


@pytest.mark.process
@pytest.mark.parametrize(("ending", "status"), [("", 0), (CLOSES, 130)], ids=["exit", "close"])
def test_ctrl_c_ends_a_waiting_program_without_traceback(ending: str, status: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM + ending], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == status, done.stderr
    assert "Traceback" not in done.stderr
    assert "a producer was closed: 500 messages were not sent" in done.stderr
    assert done.stdout == "closed\n"
