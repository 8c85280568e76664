"""Until when a consumer may be sure that what it owns in ZooKeeper is still its own.

Owners are ephemeral: ZooKeeper removes them once it has not heard of the session for the session's time-out,
and then others may own the partitions. A process that is paused, or cut off, learns of it late. So its
iterators hand out nothing unless ZooKeeper has answered in this session to something that was asked less than
nine tenths of that time ago: the server has heard of it then at the earliest.
"""

from __future__ import annotations

import threading

from minikafka.base.clock import Clock


class Lease:
    """One consumer's. Not valid before the first ``hold`` or ``renew``. Thread-safe."""

    def __init__(self, clock: Clock, session_timeout_ms: int) -> None:
        self._clock = clock
        self._session_timeout_ms = session_timeout_ms
        self._length_ms = session_timeout_ms * 9 // 10
        self._lock = threading.Lock()
        self._session_id = 0
        self._end_ms = -1
        self.interval_ms = max(1, session_timeout_ms // 3)
        """How often it is to be renewed."""

    @property
    def valid(self) -> bool:
        """Whether nobody else can own what was owned when it was last renewed."""
        return self._clock.monotonic_ms() < self._end_ms

    def hold(self, session_id: int, asked_at_ms: int, granted_ms: int | None = None) -> None:
        """From now on it is about what is owned in this session, and nothing of an earlier one is left.

        ``granted_ms`` is how long ZooKeeper lets it last, where that is less than what was asked for.
        """
        with self._lock:
            self._session_id = session_id
            self._length_ms = min(granted_ms or self._session_timeout_ms, self._session_timeout_ms) * 9 // 10
            self._end_ms = asked_at_ms + self._length_ms

    def renew(self, session_id: int = 0, asked_at_ms: int | None = None) -> bool:
        """ZooKeeper has answered, in this session, what was asked at ``asked_at_ms`` (now).

        Returns whether it is about this session: an answer in a later one says that all of the earlier is
        gone, and renews nothing.
        """
        with self._lock:
            if session_id != self._session_id:
                return False
            asked_at_ms = self._clock.monotonic_ms() if asked_at_ms is None else asked_at_ms
            self._end_ms = max(self._end_ms, asked_at_ms + self._length_ms)
            return True

    def revoke(self) -> None:
        """The session is said to be gone: not valid until ZooKeeper answers in the one that it is about.

        Where the news comes late, that is a newer one already.
        """
        with self._lock:
            self._end_ms = -1
