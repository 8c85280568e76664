"""How much work a server takes on before it reads no more: the back-pressure of all its connections.

Two things are counted. **Requests** that a handler has neither answered nor parked: one that waits for
something that others must bring (a long poll, a group's other members) is parked, as it would otherwise keep
out the very request that it waits for. **Bytes** of requests larger than ``FREE_BYTES``, from
the moment that their length is known until they are answered or parked.

At either limit processors leave their connections unread; the peers' own buffers fill, and they wait. Who
was held first is read first. Whose bytes are counted already is read to the end of the request.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from minikafka.wire.framing import FIRST_ALLOCATION

FREE_BYTES = FIRST_ALLOCATION
"""Requests up to this size are not counted in bytes: the number of connections bounds them."""


class Backlog:
    """Counts for all processors of a server. Thread-safe.

    ``max_requests``: Kafka's ``queued.max.requests``. ``max_bytes``: its ``queued.max.request.bytes``, None
    for no limit. The last request that began below the limit may exceed it, so that one of any allowed size
    can be read. ``waiter`` is called once, by any thread, when it is worth asking again.
    """

    def __init__(self, max_requests: int, max_bytes: int | None = None) -> None:
        self._max_requests = max_requests
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._requests = 0
        self._bytes = 0
        self._waiters: set[Callable[[], None]] = set()

    @property
    def scarce(self) -> bool:
        """Whether somebody waits."""
        return bool(self._waiters)

    def has_room(self, waiter: Callable[[], None]) -> bool:
        """Whether another request may be read."""
        if self._requests < self._max_requests:
            return True
        with self._lock:
            if self._requests < self._max_requests:
                return True
            self._waiters.add(waiter)
            return False

    def reserve(self, size: int, waiter: Callable[[], None]) -> bool:
        """Whether a request of ``size`` bytes may be received; then they are counted."""
        with self._lock:
            if self._max_bytes is not None and self._bytes >= self._max_bytes:
                self._waiters.add(waiter)
                return False
            self._bytes += size
            return True

    def begin(self) -> None:
        """A request is being dealt with."""
        with self._lock:
            self._requests += 1

    def end(self, *, requests: int = 0, size: int = 0) -> None:
        """So many requests and bytes less."""
        with self._lock:
            self._requests -= requests
            self._bytes -= size
            waiters, self._waiters = self._waiters, set()
        for waiter in waiters:
            waiter()
