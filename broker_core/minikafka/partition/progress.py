"""How far a follower of a partition is, as its leader knows it from the follower's fetches.

A follower asks for the offset behind the last message that it has, so the offset that it asks for says what
it has: each fetch acknowledges everything below. It is caught up at the time of a fetch that asks for the
leader's end; and at the time of the fetch before, when it asks for what was the end then. By the second rule
a follower stays in sync that is always one fetch behind a leader that is written to without a pause.

Text: in-sync and failed replicas of the replication text; ``Replica`` of Kafka, with the second rule of the
releases from 0.10.2 on.
"""

from __future__ import annotations

UNKNOWN_END = -1


class Progress:
    """One follower. Times are monotonic ms."""

    __slots__ = ("_fetched_ms", "_leader_end", "caught_up_ms", "end_offset")

    def __init__(self, caught_up_ms: int) -> None:
        """``caught_up_ms``: when it is taken to have had everything last, nothing being known yet."""
        self.end_offset = UNKNOWN_END
        """Behind the last message that it has; -1 as long as it has not asked."""
        self.caught_up_ms = caught_up_ms
        self._fetched_ms = caught_up_ms
        self._leader_end = 0
        """Where the leader's log ended at the fetch before."""

    def fetched(self, offset: int, leader_end: int, now_ms: int) -> None:
        """It asks for ``offset`` while the leader's log ends at ``leader_end``."""
        if offset >= leader_end:
            self.caught_up_ms = max(self.caught_up_ms, now_ms)
        elif offset >= self._leader_end:
            self.caught_up_ms = max(self.caught_up_ms, self._fetched_ms)
        self.end_offset = offset
        self._leader_end = leader_end
        self._fetched_ms = now_ms

    def lost(self) -> None:
        """It asks for what its leader does not have: its log is another one, and nothing of it counts."""
        self.end_offset = UNKNOWN_END

    def lags(self, now_ms: int, most_ms: int) -> bool:
        """Whether it has not been caught up for more than ``most_ms``: it is slow, or stands still."""
        return now_ms - self.caught_up_ms > most_ms
