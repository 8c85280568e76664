"""The replicas of a partition: leader and ISR, and the progress of each follower.

The controller sends ``LeaderAndIsr`` to the brokers; ``FollowerReplica`` belongs to the leader.

A follower fetches from the offset after the last message that it has, so each fetch acknowledges everything
below its offset. A follower is caught up at the time of a fetch from the leader's log end offset, and at the
time of its previous fetch when it fetches from what was the log end offset then. The second rule keeps a
follower in the ISR that is always one fetch behind a leader under continuous writes.

Text: in-sync and failed replicas of the replication text; ``LeaderAndIsr`` and ``Replica`` of Kafka, with the
second rule of the releases from 0.10.2 on.
"""

from __future__ import annotations

from dataclasses import dataclass

UNKNOWN_END = -1


@dataclass(frozen=True, slots=True)
class LeaderAndIsr:
    """The state of one partition as the controller decided it: leader, leader epoch, ISR, replicas.

    ``version`` is that of the partition's state znode once it holds this value: 0 for the first.
    """

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    replicas: tuple[int, ...]
    controller_epoch: int
    version: int = 0


class FollowerReplica:
    """The progress of one follower, as its fetches report it to the leader. Times are monotonic ms."""

    __slots__ = ("_fetched_ms", "_leader_end", "caught_up_ms", "end_offset", "start_offset")

    def __init__(self, caught_up_ms: int) -> None:
        """``caught_up_ms``: the time at which the follower counts as caught up, until its first fetch."""
        self.end_offset = UNKNOWN_END
        """Its log end offset; -1 before its first fetch."""
        self.start_offset = UNKNOWN_END
        """Its log start offset; -1 if it is not known."""
        self.caught_up_ms = caught_up_ms
        self._fetched_ms = caught_up_ms
        self._leader_end = 0
        """The leader's log end offset at the previous fetch."""

    def update_fetch_state(self, offset: int, leader_end: int, now_ms: int) -> None:
        """Record a fetch from ``offset`` while the leader's log ends at ``leader_end``."""
        if offset >= leader_end:
            self.caught_up_ms = max(self.caught_up_ms, now_ms)
        elif offset >= self._leader_end:
            self.caught_up_ms = max(self.caught_up_ms, self._fetched_ms)
        self.end_offset = offset
        self._leader_end = leader_end
        self._fetched_ms = now_ms

    def reset(self) -> None:
        """Forget the log end offset: the follower fetched beyond the leader's log, so its log diverges."""
        self.end_offset = UNKNOWN_END

    def is_lagging(self, now_ms: int, lag_max_ms: int) -> bool:
        """Return whether the follower has not been caught up for more than ``lag_max_ms``."""
        return now_ms - self.caught_up_ms > lag_max_ms
