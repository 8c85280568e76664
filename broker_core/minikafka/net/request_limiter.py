"""Limits on requests in progress: the back-pressure of all connections of a server.

Two things are limited. **Requests** that a handler has neither answered nor parked: a request that waits for
others (a long poll, the other members of a group) is parked, since it would otherwise hold back the request
that it waits for. **Bytes** of requests larger than ``FREE_BYTES``, from their arrival until they are
answered, or parked with their memory released.

At either limit processors stop reading connections; the peers' own buffers fill, and they wait. Held
connections are read in order. Requests of more than ``LARGE_BYTES`` have two thirds of the bytes, the others
one third, so that neither kind waits for the other. Of the requests that are being received, the oldest
always gets the bytes that it needs: otherwise all could wait for one another forever.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable

from minikafka.wire.framing import FIRST_ALLOCATION

FREE_BYTES = FIRST_ALLOCATION
"""Requests up to this size are not counted in bytes: the number of connections limits them."""
LARGE_BYTES = 1 << 20
"""Most producers' requests are no larger."""
_FIRST_BYTES = 4 * FREE_BYTES
"""The bytes reserved as soon as the length is known."""
_GROWTH = 4


class _SizeClass:
    """The small or the large requests."""

    __slots__ = ("limit_bytes", "receiving", "used_bytes")

    def __init__(self, limit_bytes: int | None) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0
        self.receiving: dict[Hashable, None] = {}
        """Holders of incomplete requests, the oldest first."""

    def has_room(self, holder: Hashable) -> bool:
        if self.limit_bytes is None or self.used_bytes < self.limit_bytes:
            return True
        return next(iter(self.receiving), None) is holder


class RequestLimiter:
    """Counts requests and bytes for all processors of a server. Thread-safe.

    ``max_requests``: Kafka's ``queued.max.requests``. ``max_bytes``: its ``queued.max.request.bytes``, None
    for no limit. One request may exceed it, so that any allowed size can be read. A holder of bytes is a
    connection. ``waiter`` is called once, by any thread, when there may be room again.
    """

    def __init__(self, max_requests: int, max_bytes: int | None = None) -> None:
        self._max_requests = max_requests
        third = None if max_bytes is None else max(1, max_bytes // 3)
        self._small = _SizeClass(third)
        self._large = _SizeClass(None if max_bytes is None or third is None else max_bytes - third)
        self._lock = threading.Lock()
        self._requests = 0
        self._held: dict[Hashable, tuple[_SizeClass, int]] = {}
        self._waiters: set[Callable[[], None]] = set()

    @property
    def is_scarce(self) -> bool:
        """True when a processor waits for room."""
        return bool(self._waiters)

    def has_room(self, waiter: Callable[[], None]) -> bool:
        """Return whether another request may be read; otherwise register ``waiter``."""
        if self._requests < self._max_requests:
            return True
        with self._lock:
            if self._requests < self._max_requests:
                return True
            self._waiters.add(waiter)
            return False

    def reserve(self, holder: Hashable, size: int, waiter: Callable[[], None]) -> int:
        """Reserve memory for a request of ``size`` bytes. Return the total that may be received by now; 0: no
        more.
        """
        with self._lock:
            size_class, reserved = self._held.get(holder) or (
                self._large if size > LARGE_BYTES else self._small,
                0,
            )
            if not size_class.has_room(holder):
                self._waiters.add(waiter)
                return 0
            allowed = min(size, max(_FIRST_BYTES, _GROWTH * reserved))
            size_class.used_bytes += allowed - reserved
            size_class.receiving[holder] = None
            self._held[holder] = size_class, allowed
            return allowed

    def complete(self, holder: Hashable) -> None:
        """Mark a request with reserved bytes as completely received."""
        with self._lock:
            self._held[holder][0].receiving.pop(holder, None)

    def begin(self) -> None:
        """Count a request in progress."""
        with self._lock:
            self._requests += 1

    def end(self, *, requests: int = 0, holder: Hashable = None) -> None:
        """Stop counting ``requests`` requests, and release the bytes of ``holder``."""
        with self._lock:
            self._requests -= requests
            size_class, reserved = self._held.pop(holder, (self._small, 0))
            size_class.used_bytes -= reserved
            size_class.receiving.pop(holder, None)
            waiters, self._waiters = self._waiters, set()
        for waiter in waiters:
            waiter()
