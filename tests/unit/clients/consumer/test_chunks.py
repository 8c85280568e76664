"""The bounded queue between fetchers and a stream."""

from __future__ import annotations

import threading

import pytest

from minikafka.clients.consumer.chunks import SHUTDOWN, ChunkQueue, FetchedDataChunk
from tests.support.consumer_streams import one_stream


def chunk(offset: int = 0) -> FetchedDataChunk:
    with one_stream() as one:
        return FetchedDataChunk(memoryview(b""), one.partition(), offset, offset + 1)


def test_chunks_come_out_in_their_order() -> None:
    queue = ChunkQueue(2)
    first, second = chunk(0), chunk(1)
    assert queue.offer(first)
    assert queue.offer(second)
    assert len(queue) == 2
    assert (queue.take(), queue.take()) == (first, second)
    assert queue.take(0) is None


def test_a_chunk_has_its_place_until_the_next_one_is_asked_for() -> None:
    queue = ChunkQueue(1)
    assert queue.offer(chunk())
    assert not queue.has_room
    queue.take()
    assert not queue.has_room
    assert not queue.offer(chunk())
    assert queue.take(0) is None
    assert queue.has_room


def test_put_waits_for_room() -> None:
    queue = ChunkQueue(1)
    second = chunk(1)
    queue.offer(chunk(0))
    putting = threading.Thread(target=queue.put, args=[second])
    putting.start()
    queue.take()
    assert queue.take() is second
    putting.join()


def test_put_ends_when_it_is_stopped() -> None:
    queue, stop = ChunkQueue(1), threading.Event()
    assert queue.put(chunk(), stop)
    stop.set()
    assert not queue.put(chunk(), stop)


def test_the_shutdown_command_stays_in_the_queue() -> None:
    queue = ChunkQueue(1)
    queue.offer(chunk())
    queue.close()
    assert queue.is_closed
    assert [queue.take() for _ in range(3)] == [SHUTDOWN] * 3
    assert not queue.offer(chunk())
    assert not queue.put(chunk())
    queue.clear()
    assert queue.take() is SHUTDOWN


def test_the_shutdown_command_wakes_who_waits() -> None:
    queue = ChunkQueue(1)
    found: list[object] = []
    waiting = [threading.Thread(target=lambda: found.append(queue.take())) for _ in range(2)]
    for one in waiting:
        one.start()
    queue.close()
    for one in waiting:
        one.join()
    assert found == [SHUTDOWN, SHUTDOWN]


def test_room_is_told_of_when_there_is_some_again() -> None:
    queue, told = ChunkQueue(1), []
    queue.on_room(lambda: told.append(queue.has_room))
    queue.offer(chunk())
    queue.take()
    assert told == []
    queue.take(0)
    assert told == [True]
    queue.offer(chunk())
    queue.clear()
    assert told == [True, True]
    queue.on_room(None)
    queue.clear()
    assert told == [True, True]


def test_a_queue_without_room_for_one_chunk_is_refused() -> None:
    with pytest.raises(ValueError, match="1 or more, got 0"):
        ChunkQueue(0)
