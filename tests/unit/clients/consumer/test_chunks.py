"""The bounded queue between fetchers and a stream."""

from __future__ import annotations

import threading

import pytest

from minikafka.clients.consumer.chunks import SHUTDOWN, ChunkQueue, FetchedDataChunk
from tests.support.consumer_streams import stream_harness


def chunk(offset: int = 0) -> FetchedDataChunk:
    with stream_harness() as harness:
        return FetchedDataChunk(memoryview(b""), harness.partition(), offset, offset + 1)


def test_chunks_are_taken_in_their_order() -> None:
    queue = ChunkQueue(2)
    first, second = chunk(0), chunk(1)
    assert queue.offer(first)
    assert queue.offer(second)
    assert len(queue) == 2
    assert (queue.take(), queue.take()) == (first, second)
    assert queue.take(0) is None


def test_chunk_in_use_counts_until_the_next_request() -> None:
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


def test_shutdown_command_stays_in_the_queue() -> None:
    queue = ChunkQueue(1)
    queue.offer(chunk())
    queue.close()
    assert queue.is_closed
    assert [queue.take() for _ in range(3)] == [SHUTDOWN] * 3
    assert not queue.offer(chunk())
    assert not queue.put(chunk())
    queue.clear()
    assert queue.take() is SHUTDOWN


def test_shutdown_command_wakes_waiting_threads() -> None:
    queue = ChunkQueue(1)
    found: list[object] = []
    waiting = [threading.Thread(target=lambda: found.append(queue.take())) for _ in range(2)]
    for thread in waiting:
        thread.start()
    queue.close()
    for thread in waiting:
        thread.join()
    assert found == [SHUTDOWN, SHUTDOWN]


def test_callback_is_called_when_there_is_room_again() -> None:
    queue, calls = ChunkQueue(1), []
    queue.on_room(lambda: calls.append(queue.has_room))
    queue.offer(chunk())
    queue.take()
    assert calls == []
    queue.take(0)
    assert calls == [True]
    queue.offer(chunk())
    queue.clear()
    assert calls == [True, True]
    queue.on_room(None)
    queue.clear()
    assert calls == [True, True]


def test_queue_without_room_for_a_chunk_is_refused() -> None:
    with pytest.raises(ValueError, match="1 or more, got 0"):
        ChunkQueue(0)
