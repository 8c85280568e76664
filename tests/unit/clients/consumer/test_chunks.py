"""The bounded queue between fetchers and a stream."""

from __future__ import annotations

import threading
import time

import pytest

from minikafka.clients.consumer.chunks import SHUTDOWN, ChunkQueue, Command, FetchedDataChunk
from tests.support.consumer_streams import stream_harness


def chunk(offset: int = 0) -> FetchedDataChunk:
    with stream_harness() as harness:
        return FetchedDataChunk(memoryview(b""), harness.partition(), offset, offset + 1)


def take(queue: ChunkQueue) -> FetchedDataChunk | Command | None:
    with queue.lock:
        return queue.take_locked(time.monotonic())


def clear(queue: ChunkQueue) -> None:
    with queue.lock:
        queue.clear_locked()


def test_chunks_are_taken_in_their_order() -> None:
    queue = ChunkQueue(2)
    first, second = chunk(0), chunk(1)
    assert queue.offer(first)
    assert queue.offer(second)
    assert len(queue) == 2
    assert (take(queue), take(queue)) == (first, second)
    assert take(queue) is None


def test_chunk_in_use_counts_until_the_next_request() -> None:
    queue = ChunkQueue(1)
    assert queue.offer(chunk())
    assert not queue.has_room
    take(queue)
    assert not queue.has_room
    assert not queue.offer(chunk())
    assert take(queue) is None
    assert queue.has_room


def test_shutdown_command_stays_in_the_queue() -> None:
    queue = ChunkQueue(1)
    queue.offer(chunk())
    queue.close()
    assert queue.is_closed
    assert [take(queue) for _ in range(3)] == [SHUTDOWN] * 3
    assert not queue.offer(chunk())
    clear(queue)
    assert take(queue) is SHUTDOWN


def test_shutdown_command_wakes_waiting_threads() -> None:
    queue = ChunkQueue(1)
    found: list[object] = []

    def wait() -> None:
        with queue.lock:
            found.append(queue.take_locked(None))

    waiting = [threading.Thread(target=wait) for _ in range(2)]
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
    take(queue)
    assert calls == []
    take(queue)
    assert calls == [True]
    queue.offer(chunk())
    clear(queue)
    assert calls == [True, True]
    queue.on_room(None)
    clear(queue)
    assert calls == [True, True]


def test_queue_without_room_for_a_chunk_is_refused() -> None:
    with pytest.raises(ValueError, match="1 or more, got 0"):
        ChunkQueue(0)
