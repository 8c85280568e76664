"""A thread that runs ahead of an iterator's consumer, so that fetching and processing overlap.

    producer thread: next(iterator) ─▶ at most ``depth`` items wait ─▶ consumer

Order is kept. An exception of the iterator reaches the consumer after the items before it. When the consumer
stops early (closes the generator, breaks out of its loop, or drops it) the thread stops after its current
item.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Iterator
from typing import Generic, TypeVar

T = TypeVar("T")

JOIN_TIMEOUT_S = 35.0
"""Longest wait for the thread at the end: more than the default request time-out, which bounds a request that
it may have in flight."""


class _BoundedBuffer(Generic[T]):
    """The buffer between the two threads. The producer calls ``put`` and ``end``, the consumer the others."""

    def __init__(self, depth: int) -> None:
        self._depth = depth
        self._items: deque[T] = deque()
        self._changed = threading.Condition()
        self._ended = False
        self._cancelled = False
        self._error: BaseException | None = None

    def put(self, item: T) -> bool:
        """Add ``item`` once there is room. Return False if the consumer has cancelled."""
        with self._changed:
            self._changed.wait_for(lambda: self._cancelled or len(self._items) < self._depth)
            if self._cancelled:
                return False
            self._items.append(item)
            self._changed.notify_all()
            return True

    def end(self, error: BaseException | None) -> None:
        """Mark the end of the items; ``error`` is the iterator's exception, if any."""
        with self._changed:
            self._ended = True
            self._error = error
            self._changed.notify_all()

    def get(self) -> tuple[T] | None:
        """Return the next item in a tuple, or None at the end. Raises the iterator's exception."""
        with self._changed:
            self._changed.wait_for(lambda: self._items or self._ended)
            if self._items:
                item = self._items.popleft()
                self._changed.notify_all()
                return (item,)
            if self._error is not None:
                raise self._error
            return None

    def cancel(self) -> None:
        """Drop all items: the consumer stops."""
        with self._changed:
            self._cancelled = True
            self._items.clear()
            self._changed.notify_all()


def prefetched(iterator: Iterator[T], depth: int) -> Iterator[T]:
    """Yield the items of ``iterator``, which a background thread makes up to ``depth`` items ahead.

    The thread starts with the first ``next``. It closes an iterator with a ``close`` method at any end. If
    the consumer stops early, an iterator's ``stop`` method is called, to end a wait.
    """
    if depth < 1:
        raise ValueError(f"depth must be at least 1, not {depth}")
    return _prefetch(iterator, depth)


def _prefetch(iterator: Iterator[T], depth: int) -> Iterator[T]:
    buffer: _BoundedBuffer[T] = _BoundedBuffer(depth)
    thread = threading.Thread(target=_fill, args=(iterator, buffer), name="minikafka-prefetch", daemon=True)
    thread.start()
    try:
        while (box := buffer.get()) is not None:
            yield box[0]
    finally:
        buffer.cancel()
        if thread.is_alive():
            stop = getattr(iterator, "stop", None)
            if stop is not None:
                stop()
            thread.join(JOIN_TIMEOUT_S)


def _fill(iterator: Iterator[T], buffer: _BoundedBuffer[T]) -> None:
    error: BaseException | None = None
    try:
        for item in iterator:
            if not buffer.put(item):
                break
    except BaseException as caught:  # noqa: BLE001  # handed over whole: the consumer's thread raises it
        error = caught
    finally:
        with contextlib.suppress(Exception):
            close = getattr(iterator, "close", None)
            if close is not None:
                close()
        buffer.end(error)
