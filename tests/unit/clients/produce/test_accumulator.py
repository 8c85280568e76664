"""``clients/produce/accumulator``: batches are closed, sent, requeued and deallocated."""

from __future__ import annotations

import threading

from minikafka.base.ids import TopicPartition
from minikafka.clients.produce.accumulator import AppendResult, RecordAccumulator
from minikafka.clients.produce.batch import message_bytes
from minikafka.clients.produce.config import BatchingConfig
from minikafka.records.format.message_set import Record, build_message_set

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
SIZE = message_bytes(None, b"0123456789")


def accumulator(**settings: int) -> RecordAccumulator:
    return RecordAccumulator(BatchingConfig(**settings), threading.Condition())  # type: ignore[arg-type]


def put(queue: RecordAccumulator, tp: TopicPartition, now_ms: int = 0, count: int = 1) -> bool:
    closed = False
    for _ in range(count):
        _, change = queue.append(tp, Record(None, b"0123456789", 0), SIZE, now_ms)
        closed = change is AppendResult.BATCH_FULL
    return closed


def sendable(queue: RecordAccumulator, now_ms: int = 0) -> list[tuple[TopicPartition, int]]:
    return [(batch.topic_partition, batch.count) for batch in queue.ready_batches(now_ms)]


def take(queue: RecordAccumulator, now_ms: int = 0):  # type: ignore[no-untyped-def]
    batch = next(queue.ready_batches(now_ms))
    queue.drain(batch)
    return batch


def test_without_linger_a_record_may_leave_at_once() -> None:
    queue = accumulator()
    assert sendable(queue) == []
    put(queue, A)
    put(queue, B, count=2)
    assert sendable(queue) == [(A, 1), (B, 2)]


def test_it_says_what_a_record_did_to_the_batches() -> None:
    queue = accumulator(batch_bytes=2 * SIZE)
    changes = [queue.append(A, Record(None, b"0123456789", 0), SIZE, 0)[1] for _ in range(3)]
    assert changes == [AppendResult.NEW_BATCH, AppendResult.BATCH_FULL, AppendResult.NEW_BATCH]
    queue = accumulator(batch_bytes=3 * SIZE)
    changes = [queue.append(A, Record(None, b"0123456789", 0), SIZE, 0)[1] for _ in range(3)]
    assert changes == [AppendResult.NEW_BATCH, AppendResult.APPENDED, AppendResult.BATCH_FULL]


def test_a_batch_lingers_until_its_time_or_until_it_is_full() -> None:
    queue = accumulator(linger_ms=100, batch_bytes=3 * SIZE)
    assert not put(queue, A, now_ms=10)
    assert sendable(queue, 109) == []
    assert queue.next_due_ms(60) == 50
    assert sendable(queue, 110) == [(A, 1)]
    assert not put(queue, A, 20)
    assert put(queue, A, 30)
    assert sendable(queue, 30) == [(A, 3)]


def test_record_that_does_not_fit_starts_a_new_batch() -> None:
    queue = accumulator(linger_ms=100, batch_bytes=3 * SIZE - 1)
    for wanted in (True, False, True):
        assert queue.would_create_batch(A, SIZE) is wanted
        put(queue, A)
    assert take(queue).count == 2
    assert sendable(queue) == []


def test_a_record_larger_than_a_batch_travels_alone() -> None:
    queue = accumulator(batch_bytes=10)
    put(queue, A, count=3)
    assert take(queue).count == 1


def test_a_batch_behind_another_makes_it_leave_at_once() -> None:
    queue = accumulator(linger_ms=100, batch_bytes=2 * SIZE)
    put(queue, A, count=3)
    assert sendable(queue) == [(A, 2)]


def test_encoded_sets_keep_their_place_among_records() -> None:
    queue = accumulator(linger_ms=100)
    put(queue, A, count=2)
    data = build_message_set([Record(None, b"x")] * 5)
    future = queue.append_encoded(A, data, 5, 0)
    put(queue, A, count=3)
    counts = []
    for _ in range(3):
        batch = next(queue.ready_batches(1_000))
        queue.drain(batch)
        queue.deallocate(batch)
        counts.append(batch.count)
    assert counts == [2, 5, 3]
    assert future.count == 5


def test_one_batch_of_a_partition_is_under_way_at_a_time() -> None:
    queue = accumulator(batch_bytes=SIZE)
    put(queue, A, count=3)
    put(queue, B)
    first = take(queue)
    assert sendable(queue) == [(B, 1)]
    queue.deallocate(first)
    assert sorted(sendable(queue)) == [(A, 1), (B, 1)]


def test_a_batch_under_way_takes_no_more_records() -> None:
    queue = accumulator()
    put(queue, A)
    first = take(queue)
    put(queue, A)
    assert (first.count, first.closed) == (1, True)


def test_a_batch_given_back_is_the_first_again_after_its_pause() -> None:
    queue = accumulator(batch_bytes=SIZE)
    put(queue, A, count=2)
    batch = take(queue)
    batch.group.failures, batch.group.not_before_ms = 1, 500
    queue.reenqueue(batch)
    assert sendable(queue, 499) == []
    assert queue.next_due_ms(400) == 100
    assert next(queue.ready_batches(500)) is batch


def test_parts_of_a_divided_batch_take_its_place() -> None:
    queue = accumulator()
    put(queue, A, count=4)
    batch = take(queue)
    put(queue, A, count=7)
    halves = batch.split()
    queue.reenqueue(batch, *halves)
    for wanted in (2, 2, 7):
        part = take(queue)
        assert part.count == wanted
        queue.deallocate(part)
    assert queue.used_bytes == 0


def test_memory_is_counted_until_a_batch_is_finished() -> None:
    queue = accumulator(buffer_bytes=3 * SIZE)
    put(queue, A, count=2)
    assert queue.has_room(SIZE)
    assert not queue.has_room(SIZE + 1)
    batch = take(queue)
    assert queue.used_bytes == 2 * SIZE
    queue.deallocate(batch)
    assert queue.used_bytes == 0
    assert queue.has_room(10 * SIZE)  # alone, whatever its size


def test_flushing_ends_lingering() -> None:
    queue = accumulator(linger_ms=1_000)
    put(queue, A)
    assert sendable(queue) == []
    with queue.flush():
        with queue.flush():
            pass
        assert sendable(queue) == [(A, 1)]
    assert sendable(queue) == []


def test_batches_expire_in_order_and_not_while_under_way() -> None:
    queue = accumulator(request_timeout_ms=1_000, delivery_timeout_ms=1_000, batch_bytes=SIZE)
    put(queue, A, now_ms=0)
    put(queue, A, now_ms=10)
    put(queue, A, now_ms=500)
    first = take(queue)
    assert queue.expired_batches(5_000) == []
    queue.reenqueue(first)
    gone = queue.expired_batches(1_010)
    assert [batch.created_ms for batch in gone] == [0, 10]
    for batch in gone:
        queue.deallocate(batch)
    assert queue.used_bytes == SIZE
    assert queue.next_due_ms(1_010) == 490


def test_expired_batches_that_were_all_are_finished_without_a_trace() -> None:
    queue = accumulator(request_timeout_ms=10, delivery_timeout_ms=10, batch_bytes=SIZE)
    put(queue, A, count=3)
    for batch in queue.expired_batches(10):
        queue.deallocate(batch)
    assert queue.used_bytes == 0
    assert queue.incomplete_batches() == []
    assert queue.next_due_ms(10) is None


def test_everything_unfinished_is_listed() -> None:
    queue = accumulator(batch_bytes=SIZE)
    put(queue, A, count=2)
    put(queue, B)
    take(queue)
    assert len(queue.incomplete_batches()) == 3


def test_a_busy_partition_does_not_come_first_each_time() -> None:
    queue = accumulator(batch_bytes=SIZE)
    put(queue, A, count=3)
    put(queue, B, count=3)
    order = []
    for _ in range(6):
        batch = take(queue)
        order.append(batch.topic_partition)
        queue.deallocate(batch)
    assert order == [A, B, A, B, A, B]
