"""How much work a server takes on before it reads no more: the back-pressure of all its connections.

Two things are counted. **Requests** that a handler has neither answered nor parked: one that waits for
something that others must bring (a long poll, a group's other members) is parked, as it would otherwise keep
out the very request that it waits for. **Bytes** of requests larger than ``FREE_BYTES``, as they arrive,
until they are answered, or parked with their memory free again.

At either limit processors leave their connections unread; the peers' own buffers fill, and they wait. Who
was held first is read first. Requests of more than ``LARGE_BYTES`` have two thirds of the bytes, the others
one third, so that neither kind waits for the other. Of those that are being received, the one that began
first always gets what it needs: if all waited for one another, nobody would go on.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable

from minikafka.wire.framing import FIRST_ALLOCATION

FREE_BYTES = FIRST_ALLOCATION
"""Requests up to this size are not counted in bytes: the number of connections bounds them."""
LARGE_BYTES = 1 << 20
"""Most producers' requests are no larger."""
_FIRST_BYTES = 4 * FREE_BYTES
"""What is counted as soon as a length is known."""
_GROWTH = 4


class _SizeClass:
    """Requests of about one size."""

    __slots__ = ("limit_bytes", "receiving", "used_bytes")

    def __init__(self, limit_bytes: int | None) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0
        self.receiving: dict[Hashable, None] = {}
        """Whose requests are not complete, the one that began first before the others."""

    def has_room(self, holder: Hashable) -> bool:
        if self.limit_bytes is None or self.used_bytes < self.limit_bytes:
            return True
        return next(iter(self.receiving), None) is holder


class RequestLimiter:
    """Counts for all processors of a server. Thread-safe.

    ``max_requests``: Kafka's ``queued.max.requests``. ``max_bytes``: its ``queued.max.request.bytes``, None
    for no limit. One request may exceed it, so that one of any allowed size can be read. A holder of bytes is
    a connection. ``waiter`` is called once, by any thread, when it is worth asking again.
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

    def reserve(self, holder: Hashable, size: int, waiter: Callable[[], None]) -> int:
        """How many bytes of a request of ``size`` bytes may be received in all by now; they are counted. 0:
        no more than before.
        """
        with self._lock:
            lane, reserved = self._held.get(holder) or (
                self._large if size > LARGE_BYTES else self._small,
                0,
            )
            if not lane.has_room(holder):
                self._waiters.add(waiter)
                return 0
            allowed = min(size, max(_FIRST_BYTES, _GROWTH * reserved))
            lane.used_bytes += allowed - reserved
            lane.receiving[holder] = None
            self._held[holder] = lane, allowed
            return allowed

    def complete(self, holder: Hashable) -> None:
        """All of a request that bytes were reserved for is there."""
        with self._lock:
            self._held[holder][0].receiving.pop(holder, None)

    def begin(self) -> None:
        """A request is being dealt with."""
        with self._lock:
            self._requests += 1

    def end(self, *, requests: int = 0, holder: Hashable = None) -> None:
        """So many requests less, and no bytes of ``holder``."""
        with self._lock:
            self._requests -= requests
            lane, reserved = self._held.pop(holder, (self._small, 0))
            lane.used_bytes -= reserved
            lane.receiving.pop(holder, None)
            waiters, self._waiters = self._waiters, set()
        for waiter in waiters:
            waiter()
