"""``clients/producer/event_queue``: the order and the number of messages that leave, and the limit."""

from __future__ import annotations

import random
import sys
import threading
from typing import Any

import pyarrow as pa
import pytest

from minikafka.base.clock import ManualClock, SystemClock
from minikafka.base.errors import ProducerClosed
from minikafka.clients.network.retry import Deadline
from minikafka.clients.producer import KeyedMessage
from minikafka.clients.producer.event_queue import EventQueue, QueueBatch, messages_of
from minikafka.clients.producer.messages import MessageColumns


def message(number: int) -> KeyedMessage:
    return KeyedMessage("t", b"%d" % number)


def fields(*numbers: int) -> list[Any]:
    return [field for number in numbers for field in message(number)]


def columns(*numbers: int) -> MessageColumns:
    return MessageColumns("t", pa.array([b"%d" % number for number in numbers], pa.binary()))


def numbers(taken: QueueBatch | None) -> list[int] | None:
    return None if taken is None else [int(event.message) for event in messages_of(taken.pieces)]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def queue(clock: ManualClock) -> EventQueue:
    return EventQueue(clock, max_messages=10, batch_messages=3, queue_ms=100)


def test_messages_leave_once_a_batch_is_queued(queue: EventQueue) -> None:
    for number in range(2):
        assert queue.offer(message(number))
    assert queue.take(3, wait=False) is None
    queue.offer(message(2))
    taken = queue.take(3, wait=False)
    assert taken is not None
    assert numbers(taken) == [0, 1, 2]
    assert not taken.expired
    assert len(queue) == 0


def test_messages_leave_when_their_time_is_up(queue: EventQueue, clock: ManualClock) -> None:
    queue.offer(message(0))
    clock.advance(60)
    queue.offer(message(1))
    clock.advance(39)
    assert queue.take(3, wait=False) is None
    clock.advance(1)
    taken = queue.take(3, wait=False)
    assert taken is not None
    assert numbers(taken) == [0, 1]
    assert taken.expired
    clock.advance(1_000)
    assert queue.take(3, wait=False) is None


def test_take_returns_no_more_than_requested(queue: EventQueue, clock: ManualClock) -> None:
    assert queue.offer_piece(fields(*range(8))) == 8
    assert numbers(queue.take(3, wait=False)) == [0, 1, 2]
    assert numbers(queue.take(3, wait=False)) == [3, 4, 5]
    assert queue.take(3, wait=False) is None
    clock.advance(100)
    assert numbers(queue.take(3, wait=False)) == [6, 7]


def test_columns_and_messages_leave_in_their_order(queue: EventQueue) -> None:
    queue.offer(message(0))
    assert queue.offer_piece(columns(1, 2, 3, 4)) == 4
    queue.offer(message(5))
    assert queue.offer_piece(columns(6, 7)) == 2
    assert len(queue) == 8
    assert numbers(queue.take(3, wait=False)) == [0, 1, 2]
    queue.offer(message(8))
    assert numbers(queue.take(100, wait=False)) == [3, 4, 5, 6, 7, 8]
    assert len(queue) == 0


def test_offer_queues_as_many_as_there_is_room_for(queue: EventQueue) -> None:
    assert queue.offer_piece(fields(*range(8))) == 8
    assert queue.offer_piece(columns(8, 9, 10)) == 2
    assert not queue.offer(message(11))
    assert queue.offer_piece(fields(12)) == 0
    assert queue.offer_piece(columns(13)) == 0
    assert numbers(queue.take(100, wait=False)) == list(range(10))


def test_closed_queue_accepts_nothing_and_empties(queue: EventQueue) -> None:
    queue.offer(message(0))
    queue.close()
    for call in (
        lambda: queue.offer(message(1)),
        lambda: queue.offer_piece(fields(1)),
        lambda: queue.offer_piece(columns(1)),
        lambda: queue.wait_for_room(None),
    ):
        with pytest.raises(ProducerClosed):
            call()
    taken = queue.take(3)
    assert taken is not None
    assert not taken.expired
    assert numbers(taken) == [0]
    assert queue.take(3) is None


def test_wait_for_room_ends_with_room_or_at_the_deadline(queue: EventQueue) -> None:
    queue.offer_piece(fields(*range(10)))
    assert not queue.wait_for_room(Deadline(ManualClock(), 0))
    waiting = threading.Thread(target=lambda: queue.wait_for_room(None))
    waiting.start()
    queue.take(3)
    waiting.join(30)
    assert not waiting.is_alive()


def test_take_is_woken_by_a_batch_and_by_close() -> None:
    queue = EventQueue(SystemClock(), max_messages=10, batch_messages=2, queue_ms=1_000_000)
    taken: list[list[int] | None] = []

    def take() -> None:
        while (found := queue.take(10)) is not None:
            taken.append(numbers(found))

    taker = threading.Thread(target=take)
    taker.start()
    queue.offer_piece(fields(0, 1))
    queue.close()
    taker.join(30)
    assert not taker.is_alive()
    assert taken == [[0, 1]]


def test_random_calls_keep_the_order_and_the_limit() -> None:
    for seed in range(200):
        source = random.Random(seed)
        clock = ManualClock()
        queue = EventQueue(clock, max_messages=12, batch_messages=source.randrange(1, 12), queue_ms=10)
        offered = left = 0
        for _ in range(100):
            action, size = source.randrange(5), source.randrange(1, 6)
            next_numbers = range(offered, offered + size)
            if action == 0:
                offered += queue.offer(message(offered))
            elif action == 1:
                offered += queue.offer_piece(fields(*next_numbers))
            elif action == 2:
                offered += queue.offer_piece(columns(*next_numbers))
            else:
                clock.advance(source.choice((0, 10)))
                limit = source.randrange(1, 15)
                found = numbers(queue.take(limit, wait=False)) or []
                assert found == list(range(left, left + len(found))), seed
                assert len(found) <= limit
                left += len(found)
            assert len(queue) == offered - left <= 12, seed
        queue.close()
        while (taken := queue.take(3)) is not None:
            found = numbers(taken) or []
            assert found == list(range(left, left + len(found))), seed
            left += len(found)
        assert left == offered


def test_offers_of_many_threads_leave_once_and_in_order_until_close() -> None:
    queue = EventQueue(SystemClock(), max_messages=50, batch_messages=7, queue_ms=1)
    accepted: list[list[int]] = [[] for _ in range(4)]

    def offer(mine: list[int], first: int) -> None:
        for number in range(first, first + 1_000_000):
            try:
                while not queue.offer(message(number)):
                    queue.wait_for_room(None)
            except ProducerClosed:
                return
            mine.append(number)

    threads = [threading.Thread(target=offer, args=(mine, at << 20)) for at, mine in enumerate(accepted)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        taken: list[int] = []
        while (found := queue.take(20)) is not None:
            taken += numbers(found) or []
            if len(taken) > 3_000:
                queue.close()
        for thread in threads:
            thread.join(30)
    finally:
        sys.setswitchinterval(interval)
    for at, mine in enumerate(accepted):
        assert [number for number in taken if number >> 20 == at] == mine
    assert len(queue) == 0


def test_message_that_comes_after_the_last_take_is_refused(queue: EventQueue) -> None:
    class Closing(list[Any]):
        def __iadd__(self, event: Any) -> Any:  # between the check for room and the addition
            queue.close()
            assert queue.take(3) is None
            return super().__iadd__(event)

    queue._fields = Closing()
    with pytest.raises(ProducerClosed):
        queue.offer(message(0))
    assert len(queue) == 0
