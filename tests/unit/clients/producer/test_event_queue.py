"""``clients/producer/event_queue``: when messages leave, how many, and what becomes of those without room."""

from __future__ import annotations

import random
import threading

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


def columns(*numbers: int) -> MessageColumns:
    return MessageColumns("t", pa.array([b"%d" % number for number in numbers], pa.binary()))


def numbers(taken: QueueBatch | None) -> list[int] | None:
    return None if taken is None else [int(one.message) for one in messages_of(taken.pieces)]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def queue(clock: ManualClock) -> EventQueue:
    return EventQueue(clock, max_messages=10, batch_messages=3, queue_ms=100)


def test_messages_leave_when_there_is_a_batch_of_them(queue: EventQueue) -> None:
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


def test_no_more_leave_than_are_wanted_and_the_others_wait_anew(
    queue: EventQueue, clock: ManualClock
) -> None:
    assert queue.offer_all([message(number) for number in range(8)]) == 8
    assert numbers(queue.take(3, wait=False)) == [0, 1, 2]
    assert numbers(queue.take(3, wait=False)) == [3, 4, 5]
    assert queue.take(3, wait=False) is None
    clock.advance(100)
    assert numbers(queue.take(3, wait=False)) == [6, 7]


def test_columns_and_messages_leave_in_the_order_in_which_they_came(queue: EventQueue) -> None:
    queue.offer(message(0))
    assert queue.offer_columns(columns(1, 2, 3, 4)) == 4
    queue.offer(message(5))
    assert queue.offer_columns(columns(6, 7)) == 2
    assert len(queue) == 8
    assert numbers(queue.take(3, wait=False)) == [0, 1, 2]
    queue.offer(message(8))
    assert numbers(queue.take(100, wait=False)) == [3, 4, 5, 6, 7, 8]
    assert len(queue) == 0


def test_only_as_many_are_taken_as_there_is_room_for(queue: EventQueue) -> None:
    assert queue.offer_all([message(number) for number in range(8)]) == 8
    assert queue.offer_columns(columns(8, 9, 10)) == 2
    assert not queue.offer(message(11))
    assert queue.offer_all([message(12)]) == 0
    assert queue.offer_columns(columns(13)) == 0
    assert numbers(queue.take(100, wait=False)) == list(range(10))


def test_after_close_nothing_is_taken_and_all_that_waits_leaves(queue: EventQueue) -> None:
    queue.offer(message(0))
    queue.close()
    for refused in (
        lambda: queue.offer(message(1)),
        lambda: queue.offer_all([message(1)]),
        lambda: queue.offer_columns(columns(1)),
        lambda: queue.wait_for_room(None),
    ):
        with pytest.raises(ProducerClosed):
            refused()
    taken = queue.take(3)
    assert taken is not None
    assert not taken.expired
    assert numbers(taken) == [0]
    assert queue.take(3) is None


def test_whoever_waits_for_room_gets_it_or_is_told_in_time(queue: EventQueue) -> None:
    queue.offer_all([message(number) for number in range(10)])
    assert not queue.wait_for_room(Deadline(ManualClock(), 0))
    waiting = threading.Thread(target=lambda: queue.wait_for_room(None))
    waiting.start()
    queue.take(3)
    waiting.join(30)
    assert not waiting.is_alive()


def test_whoever_waits_for_messages_is_woken_by_a_batch_and_by_close() -> None:
    queue = EventQueue(SystemClock(), max_messages=10, batch_messages=2, queue_ms=1_000_000)
    taken: list[list[int] | None] = []

    def take() -> None:
        while (found := queue.take(10)) is not None:
            taken.append(numbers(found))

    taker = threading.Thread(target=take)
    taker.start()
    queue.offer_all([message(0), message(1)])
    queue.close()
    taker.join(30)
    assert not taker.is_alive()
    assert taken == [[0, 1]]


def test_whatever_comes_and_goes_the_order_and_the_bound_are_kept() -> None:
    for seed in range(200):
        source = random.Random(seed)
        clock = ManualClock()
        queue = EventQueue(clock, max_messages=12, batch_messages=source.randrange(1, 12), queue_ms=10)
        came = left = 0
        for _ in range(100):
            what, size = source.randrange(5), source.randrange(1, 6)
            coming = range(came, came + size)
            if what == 0:
                came += queue.offer(message(came))
            elif what == 1:
                came += queue.offer_all([message(number) for number in coming])
            elif what == 2:
                came += queue.offer_columns(columns(*coming))
            else:
                clock.advance(source.choice((0, 10)))
                most = source.randrange(1, 15)
                found = numbers(queue.take(most, wait=False)) or []
                assert found == list(range(left, left + len(found))), seed
                assert len(found) <= most
                left += len(found)
            assert len(queue) == came - left <= 12, seed
        queue.close()
        while (taken := queue.take(3)) is not None:
            found = numbers(taken) or []
            assert found == list(range(left, left + len(found))), seed
            left += len(found)
        assert left == came
