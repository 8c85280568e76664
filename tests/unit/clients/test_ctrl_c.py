"""Ctrl-C while a client waits: the lock of its threads stays with the thread that holds it."""

from __future__ import annotations

import linecache
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from minikafka.base.clock import SystemClock
from minikafka.base.ids import TopicPartition
from minikafka.clients.consumer.chunks import ChunkQueue
from minikafka.clients.produce import BatchingProducer, SendFuture
from minikafka.clients.produce.send_future import ProduceRequestResult
from minikafka.clients.producer.event_queue import EventQueue
from minikafka.clients.producer.messages import KeyedMessage
from tests.support.broker_harness import BrokerHarness

Wait = tuple[threading.Condition, Callable[[], object]]


@pytest.fixture(autouse=True)
def ctrl_c() -> Iterator[None]:
    """Python's own handler, which the workers of a parallel run are without."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def producer() -> Wait:
    waiting = BatchingProducer(BrokerHarness(1, {"t": 1}).client())
    never = ProduceRequestResult(waiting._settled)
    return waiting._settled, lambda: waiting.wait([SendFuture(TopicPartition("t", 0), never, 0)])


def event_queue() -> Wait:
    full = EventQueue(SystemClock(), max_messages=1, batch_messages=1, queue_ms=0)
    full.offer(KeyedMessage("t", b"value"))
    return full._room, lambda: full.wait_for_room(None)


def stream() -> Wait:
    empty = ChunkQueue(1)

    def wait() -> None:
        with empty.lock:
            empty.wait_locked(None)

    return empty._changed, wait


def takes_the_lock_again(thread: int) -> bool:
    """Return True if a thread has been notified, and cannot go on without the lock."""
    frame = sys._current_frames()[thread]
    line = linecache.getline(frame.f_code.co_filename, frame.f_lineno)
    return frame.f_code.co_name == "_acquire_restore" or "_acquire_restore" in line


@pytest.mark.parametrize("waits", [producer, event_queue, stream])
def test_ctrl_c_in_a_wait_releases_no_lock_of_another_thread(waits: Callable[[], Wait]) -> None:
    condition, wait = waits()
    main, problems = threading.get_ident(), []

    def interrupt() -> None:
        try:
            while True:
                with condition:
                    if condition._waiters:  # type: ignore[attr-defined]
                        condition.notify_all()
                        while not takes_the_lock_again(main):
                            time.sleep(0)
                        os.kill(os.getpid(), signal.SIGINT)
                        for _ in range(1_000):
                            time.sleep(0)
                        return
                time.sleep(0)
        except RuntimeError as error:
            problems.append(error)

    other = threading.Thread(target=interrupt)
    other.start()
    with pytest.raises(KeyboardInterrupt):
        wait()
    other.join()
    assert problems == []
    with condition:
        condition.notify_all()
