"""``clients/fetch/prefetch``: a thread that runs ahead, hands exceptions over, and ends with its consumer."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator

import pytest

from minikafka.clients.fetch.prefetch import prefetched

PATIENCE_S = 20.0


def prefetch_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "minikafka-prefetch"]


class CountingIterator:
    """Counts up for ever, with an event for each item that was made."""

    def __init__(self, limit: int = 10**9) -> None:
        self.made = threading.Semaphore(0)
        self.count = 0
        self.closed = threading.Event()
        self.stopped = False
        self._limit = limit

    def __iter__(self) -> Iterator[int]:
        return self

    def __next__(self) -> int:
        if self.count >= self._limit:
            raise StopIteration
        self.count += 1
        self.made.release()
        return self.count - 1

    def stop(self) -> None:
        self.stopped = True

    def close(self) -> None:
        self.closed.set()


def test_items_come_in_order_and_end() -> None:
    assert list(prefetched(iter(range(1_000)), 3)) == list(range(1_000))
    assert prefetch_threads() == []


def test_the_thread_runs_ahead_by_the_depth_and_not_further() -> None:
    source = CountingIterator()
    items = prefetched(source, 2)
    assert next(items) == 0
    # One taken, two waiting, and one that is made and waits for room.
    for _ in range(4):
        assert source.made.acquire(timeout=PATIENCE_S)
    assert not source.made.acquire(timeout=0.05)
    items.close()  # type: ignore[attr-defined]


def test_an_exception_comes_after_the_items_before_it() -> None:
    def failing() -> Iterator[int]:
        yield 1
        yield 2
        raise KeyError("lost")

    items = prefetched(failing(), 5)
    assert [next(items), next(items)] == [1, 2]
    with pytest.raises(KeyError, match="lost"):
        next(items)
    assert prefetch_threads() == []


def test_closing_the_consumer_ends_the_thread_and_the_iterator() -> None:
    source = CountingIterator()
    for item in prefetched(source, 2):
        if item == 5:
            break
    gc.collect()
    assert source.closed.wait(PATIENCE_S)
    assert source.stopped
    assert prefetch_threads() == []


def test_the_iterator_is_closed_at_its_own_end_too() -> None:
    source = CountingIterator(limit=3)
    assert list(prefetched(source, 8)) == [0, 1, 2]
    assert source.closed.is_set()


def test_nothing_starts_before_the_first_item_is_wanted() -> None:
    source = CountingIterator()
    prefetched(source, 2)
    assert source.count == 0
    assert prefetch_threads() == []


@pytest.mark.parametrize("depth", [0, -1])
def test_a_depth_below_one_is_refused(depth: int) -> None:
    with pytest.raises(ValueError, match="depth must be at least 1"):
        prefetched(iter([]), depth)
