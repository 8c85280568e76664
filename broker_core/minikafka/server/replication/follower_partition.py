"""A partition that is followed: how far its follower has come. ``replica_fetcher`` has the stages."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from minikafka.base.errors import BrokerError, OffsetOutOfRange
from minikafka.base.ids import TopicPartition
from minikafka.log.checkpoints.leader_epochs import UNKNOWN
from minikafka.log.log import Log
from minikafka.partition.partition import Partition
from minikafka.records.format.message_set import iterate


class Stage(Enum):
    """What a partition waits for; see ``replica_fetcher``."""

    ASK = "ask"
    CUT = "cut"
    FETCH = "fetch"
    COMPARE = "compare"
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class Cut:
    """How a log is to be cut."""

    offset: int
    anew: bool
    """Whether the log begins anew there."""
    then: Stage
    """ASK: the leader's log differs from this one below ``offset``, too; it is to say where. Else FETCH."""


@dataclass(slots=True, eq=False)
class FollowerPartition:
    """One partition that is followed under one leader epoch."""

    partition: Partition
    leader_epoch: int
    stage: Stage = Stage.ASK
    asked_epoch: int = UNKNOWN
    """The next one to be asked for: an epoch that the leader has begins where it ends."""
    above: int = UNKNOWN
    """That epoch."""
    told: list[tuple[int, int]] = field(default_factory=list)
    """Where epochs begin on the leader, falling."""
    not_before_ms: int = 0
    is_ahead: bool = False
    """Whether this log has newer epochs than ZooKeeper had, or was no replica by ZooKeeper: all of it counts
    as committed.
    """
    cut: Cut | None = None
    """In the stage COMPARE: what waits for the leader's end."""
    leader_end: int | None = None
    """Where the leader's log ends, in the stages LOST and COMPARE, once that was told."""
    behind: bool = True
    """Whether the leader has committed more than is here, for all that was told."""
    failures: int = 0
    """In a row."""
    complaint: str = ""
    """What was said last of why it is not copied."""

    @property
    def name(self) -> TopicPartition:
        return self.partition.topic_partition

    def begin(self) -> None:
        """Ask first of all for the epoch before the leader's; for the leader's where that is known here."""
        entries = self.partition.log.epochs.entries
        known = [entry for entry in entries if entry[0] >= self.leader_epoch]
        self.stage, self.told = Stage.ASK, known
        self.above, self.asked_epoch = self.leader_epoch, self.leader_epoch - 1 + bool(known)

    def note_beginning(self, offset: int) -> bool:
        """Where the epoch ``above`` begins; False where it is none: nothing was written under it."""
        if self.asked_epoch == self.leader_epoch:
            return True  # that is known here
        if self.told and offset >= self.told[-1][1]:
            return False
        self.told.append((self.above, offset))
        return True

    def safe_end(self) -> int:
        """Where to cut when nobody knows where the logs part: not behind the beginnings of the leader's
        epochs that this log has nothing of.
        """
        watermark = self.partition.high_watermark
        if not self.told:
            return watermark
        unknown = self.partition.log.epochs.latest == UNKNOWN
        return min(watermark, self.told[0 if unknown else -1][1])


def has_entry(log: Log, offset: int, records: bytes) -> bool:
    """Whether a log has these very bytes, which begin with the entry that holds ``offset``. Compaction may
    have taken messages out of either log: then the messages that both have are compared, and where there are
    none nobody can tell.
    """
    try:
        own = log.read(offset, len(records)).slice
    except OffsetOutOfRange:
        return True  # they lie before its start: nobody can tell
    held = b"" if own is None else bytes(own.read())
    if held[: len(records)] == records:
        return True
    if not log.config.compacted:
        return False
    try:
        told, kept = _contents(records), _contents(held)
    except BrokerError:
        return False
    return all(told[one] == kept[one] for one in told.keys() & kept.keys())


def _contents(records: bytes) -> dict[int, tuple[int, bytes | None, bytes | None]]:
    """What compaction leaves as it is of each message, by its offset."""
    return {one.offset: (one.timestamp_ms, one.key, one.value) for one in iterate(records)}
