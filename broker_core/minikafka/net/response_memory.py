"""The limit on memory of responses that peers have not read yet.

A connection has one response in flight, and nothing more is read from it meanwhile; but a hundred connections
can each request megabytes and never read. Only large responses are counted, by their bytes in memory: file
slices and lazy parts take almost none, and data shared by several responses is counted once.

Above half of the limit a connection is closed when it reads less than ``STALL_BYTES`` of a large response
between two checks, or would need more than ``MAX_CHECKS`` for all of it. A response that exceeds the limit is
not sent, and its connection is closed: waiting would not free its memory, which is allocated already. The
largest piece is not counted there: a single response may have any size, and delays no other one.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence

from minikafka.net.request_limiter import FREE_BYTES

STALL_BYTES = 10_000
"""A connection that transfers less of its request or response between two checks is stalled."""
MAX_CHECKS = 60
"""The maximum duration of a response, in checks, while memory is scarce."""
_MIN_CHECKS = 5
"""Checks before the rate is judged: kernels buffer much at once."""


class ResponseMemory:
    """Counts the memory of large responses for all processors of a server. Thread-safe."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._lock = threading.Lock()
        self._used_bytes = 0
        self._sizes: Counter[int] = Counter()
        """Size -> number of pieces, where a piece is a response's own memory, or shared memory."""
        self._holders: Counter[int] = Counter()
        """``id`` of a shared piece -> number of responses that hold it."""

    @property
    def is_scarce(self) -> bool:
        """True when stalled connections must be closed."""
        return self._used_bytes > self._limit_bytes // 2

    def begin(self, size: int, shared: Sequence[bytes] = ()) -> LargeResponse | None:
        """Count a response of ``size`` bytes; return None when there is no room.

        ``shared``: its pieces, without duplicates, that other responses may share.
        """
        own_bytes = size - sum(map(len, shared))
        with self._lock:
            more = [own_bytes, *(len(piece) for piece in shared if not self._holders[id(piece)])]
            used_bytes = self._used_bytes + sum(more)
            if (
                sum(more) > FREE_BYTES
                and used_bytes > self._limit_bytes
                and used_bytes - max([*more, *self._sizes]) > self._limit_bytes
            ):
                return None
            self._used_bytes = used_bytes
            self._sizes.update(more)
            self._holders.update(map(id, shared))
        return LargeResponse(self, size, own_bytes, shared)

    def end(self, own_bytes: int, shared: Sequence[bytes]) -> None:
        """Stop counting a response."""
        with self._lock:
            released = [own_bytes]
            for piece in shared:
                if self._holders[id(piece)] == 1:
                    released.append(len(piece))
                _decrement(self._holders, id(piece))
            for size in released:
                _decrement(self._sizes, size)
            self._used_bytes -= sum(released)


def _decrement(counts: Counter[int], key: int) -> None:
    if counts[key] == 1:
        del counts[key]
    else:
        counts[key] -= 1


class LargeResponse:
    """A counted response, until ``end``. Not thread-safe."""

    __slots__ = (
        "_checks",
        "_first_bytes",
        "_memory",
        "_own_bytes",
        "_seen_bytes",
        "_sent_bytes",
        "_shared",
        "_size",
    )

    def __init__(self, memory: ResponseMemory, size: int, own_bytes: int, shared: Sequence[bytes]) -> None:
        self._memory: ResponseMemory | None = memory
        self._size = size
        self._own_bytes = own_bytes
        self._shared = shared  # keeps the pieces alive, so that their ids stay unique
        self._sent_bytes = 0
        # Since memory is scarce: checks, and bytes sent at the first and at the last of them.
        self._checks = 0
        self._first_bytes = self._seen_bytes = 0

    def sent(self, count: int) -> None:
        """Add ``count`` bytes that the peer has read."""
        self._sent_bytes += count

    def is_stalled(self) -> bool:
        """Return whether memory is scarce and the peer reads almost nothing, or too slowly."""
        if self._memory is None or not self._memory.is_scarce:
            self._checks = 0
            return False
        if not self._checks:
            self._first_bytes = self._seen_bytes = self._sent_bytes
        more_bytes, self._seen_bytes = self._sent_bytes - self._seen_bytes, self._sent_bytes
        checks, self._checks = self._checks, self._checks + 1
        if not checks:
            return False
        slow = (self._sent_bytes - self._first_bytes) * MAX_CHECKS < self._size * checks
        return more_bytes < STALL_BYTES or (checks >= _MIN_CHECKS and slow)

    def end(self) -> None:
        """Stop counting the response, sent or not. A second call does nothing."""
        memory, self._memory = self._memory, None
        if memory is not None:
            memory.end(self._own_bytes, self._shared)
            self._shared = ()
