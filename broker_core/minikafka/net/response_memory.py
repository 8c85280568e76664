"""Responses that their peers have not taken yet: the memory of all of them is bounded.

A connection has one response under way, and nothing more is read from it meanwhile; but a hundred of them can
each ask for what takes megabytes, and never read. Only large responses are counted, by what they have in
memory: slices of files and lazy parts take next to none, and what several responses share is counted once.

Above half of the limit, who takes less than ``STALL_BYTES`` of a large response between two looks is cut off,
and who would need more than ``MAX_CHECKS`` for all of it. What does not fit below the limit is not sent, and
its connection is closed: waiting would not free it, as it is made already. The largest piece is left out
there: one alone may be of any size, and keeps nobody else out.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence

from minikafka.net.request_limiter import FREE_BYTES

STALL_BYTES = 10_000
"""Of its request or its response, between two looks: who moves less stalls."""
MAX_CHECKS = 60
"""How many looks a response may last while memory is scarce."""
_MIN_CHECKS = 5
"""After so many it can be told how fast somebody takes it: kernels take and give much at once."""


class ResponseMemory:
    """Counts for all processors of a server. Thread-safe."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._lock = threading.Lock()
        self._used_bytes = 0
        self._sizes: Counter[int] = Counter()
        """How many pieces there are of each size: what a response has for itself, and what is shared."""
        self._holders: Counter[int] = Counter()
        """How many responses have a piece that may be shared, by its ``id``."""

    @property
    def is_scarce(self) -> bool:
        """Whether who stalls is to be cut off."""
        return self._used_bytes > self._limit_bytes // 2

    def begin(self, size: int, shared: Sequence[bytes] = ()) -> LargeResponse | None:
        """A response of ``size`` bytes is to be sent; None where there is no room for it. ``shared``: pieces
        of it, each once, that other responses may have too.
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
        """A response is not held any more."""
        with self._lock:
            gone = [own_bytes]
            for piece in shared:
                if self._holders[id(piece)] == 1:
                    gone.append(len(piece))
                _take(self._holders, id(piece))
            for size in gone:
                _take(self._sizes, size)
            self._used_bytes -= sum(gone)


def _take(counts: Counter[int], key: int) -> None:
    if counts[key] == 1:
        del counts[key]
    else:
        counts[key] -= 1


class LargeResponse:
    """One that is counted, until ``end``. For one thread."""

    __slots__ = (
        "_first_bytes",
        "_looks",
        "_own_bytes",
        "_seen_bytes",
        "_shared",
        "_size",
        "_taken",
        "_unsent",
    )

    def __init__(self, unsent: ResponseMemory, size: int, own_bytes: int, shared: Sequence[bytes]) -> None:
        self._unsent: ResponseMemory | None = unsent
        self._size = size
        self._own_bytes = own_bytes
        self._shared = shared  # a piece that is let go would give its id to another
        self._taken = 0
        # Since memory is scarce: looks, and how much had been taken at the first and at the last of them.
        self._looks = 0
        self._first_bytes = self._seen_bytes = 0

    def sent(self, count: int) -> None:
        """The peer took so many bytes more."""
        self._taken += count

    def is_stalled(self) -> bool:
        """Whether memory is scarce, and the peer took next to nothing since the last look or takes too
        long.
        """
        if self._unsent is None or not self._unsent.is_scarce:
            self._looks = 0
            return False
        if not self._looks:
            self._first_bytes = self._seen_bytes = self._taken
        more_bytes, self._seen_bytes = self._taken - self._seen_bytes, self._taken
        looks, self._looks = self._looks, self._looks + 1
        if not looks:
            return False
        slow = (self._taken - self._first_bytes) * MAX_CHECKS < self._size * looks
        return more_bytes < STALL_BYTES or (looks >= _MIN_CHECKS and slow)

    def end(self) -> None:
        """It was sent, or never will be. A second call does nothing."""
        unsent, self._unsent = self._unsent, None
        if unsent is not None:
            unsent.end(self._own_bytes, self._shared)
            self._shared = ()
