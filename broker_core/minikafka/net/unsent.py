"""Responses that their peers have not taken yet: the memory of all of them is bounded.

A connection has one response under way, and nothing more is read from it meanwhile; but a hundred of them can
each ask for what takes megabytes, and never read. Only large responses are counted, by what they have in
memory: slices of files and lazy parts take next to none. Above half of the limit, who takes next to nothing
of a large response is cut off; what does not fit below the limit is not sent, and its connection is closed.
One response alone may be of any size.
"""

from __future__ import annotations

import threading

STALL_BYTES = 10_000
"""Of its request or its response, between two looks: who moves less stalls."""


class Unsent:
    """Counts for all processors of a server. Thread-safe."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._lock = threading.Lock()
        self._used_bytes = 0

    @property
    def scarce(self) -> bool:
        """Whether who stalls is to be cut off."""
        return self._used_bytes > self._limit_bytes // 2

    def begin(self, size: int) -> LargeResponse | None:
        """A response of ``size`` bytes is to be sent; None where there is no room for it."""
        with self._lock:
            if self._used_bytes and self._used_bytes + size > self._limit_bytes:
                return None
            self._used_bytes += size
        return LargeResponse(self, size)

    def end(self, size: int) -> None:
        """So many bytes are not held any more."""
        with self._lock:
            self._used_bytes -= size


class LargeResponse:
    """One that is counted, until ``end``. For one thread."""

    __slots__ = ("_seen_bytes", "_size", "_taken_bytes", "_unsent")

    def __init__(self, unsent: Unsent, size: int) -> None:
        self._unsent = unsent
        self._size = size
        self._taken_bytes = 0
        self._seen_bytes: int | None = None

    def took(self, count: int) -> None:
        """The peer took so many bytes more."""
        self._taken_bytes += count

    def stalls(self) -> bool:
        """Whether memory is scarce, and the peer took next to nothing since the last look."""
        seen, self._seen_bytes = self._seen_bytes, self._taken_bytes
        if not self._unsent.scarce:
            self._seen_bytes = None
        return self._seen_bytes is not None and seen is not None and self._taken_bytes - seen < STALL_BYTES

    def end(self) -> None:
        """It was sent, or never will be. A second call does nothing."""
        self._unsent.end(self._size)
        self._size = 0
