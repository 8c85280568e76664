"""The state of one followed partition in its fetcher. ``replica_fetcher`` describes the stages."""

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
    """The next step of a followed partition; see ``replica_fetcher``."""

    ASK = "ask"
    CUT = "cut"
    FETCH = "fetch"
    COMPARE = "compare"
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class Cut:
    """A truncation of the log."""

    offset: int
    restart: bool
    """True if the log is emptied and starts at ``offset``."""
    then: Stage
    """The stage after the truncation. ASK if the logs may differ below ``offset`` too; otherwise FETCH."""


@dataclass(slots=True, eq=False)
class FollowerPartition:
    """A partition that is followed under one leader epoch."""

    partition: Partition
    leader_epoch: int
    stage: Stage = Stage.ASK
    asked_epoch: int = UNKNOWN
    """The next epoch whose end is requested. The leader's epoch ``above`` starts at that offset."""
    above: int = UNKNOWN
    """The leader's epoch that follows ``asked_epoch``."""
    epoch_starts: list[tuple[int, int]] = field(default_factory=list)
    """The leader's epochs and their start offsets, newest first."""
    not_before_ms: int = 0
    is_ahead: bool = False
    """True if this log had newer epochs than ZooKeeper, or ZooKeeper did not list this replica: the whole log
    counts as committed.
    """
    cut: Cut | None = None
    """In the stage COMPARE: the truncation that waits for the leader's log end offset."""
    leader_end: int | None = None
    """The leader's log end offset, in the stages LOST and COMPARE, once it is known."""
    behind: bool = True
    """True if the leader has committed more than this log holds, as far as is known."""
    failures: int = 0
    """The number of failures in a row."""
    complaint: str = ""
    """The reason that was logged last for not fetching it."""

    @property
    def name(self) -> TopicPartition:
        return self.partition.topic_partition

    def begin(self) -> None:
        """Start with the epoch before the leader's, or with the leader's if this log knows it."""
        entries = self.partition.log.epochs.entries
        known = [entry for entry in entries if entry[0] >= self.leader_epoch]
        self.stage, self.epoch_starts = Stage.ASK, known
        self.above, self.asked_epoch = self.leader_epoch, self.leader_epoch - 1 + bool(known)

    def note_beginning(self, offset: int) -> bool:
        """Record the start offset of the epoch ``above``. Return False if nothing was written under it."""
        if self.asked_epoch == self.leader_epoch:
            return True  # this log knows it
        if self.epoch_starts and offset >= self.epoch_starts[-1][1]:
            return False
        self.epoch_starts.append((self.above, offset))
        return True

    def safe_end(self) -> int:
        """Return the truncation offset if the offset at which the logs diverge is unknown.

        It is at most the start offset of the leader's epochs of which this log has nothing.
        """
        watermark = self.partition.high_watermark
        if not self.epoch_starts:
            return watermark
        unknown = self.partition.log.epochs.latest == UNKNOWN
        return min(watermark, self.epoch_starts[0 if unknown else -1][1])


def has_entry(log: Log, offset: int, records: bytes) -> bool:
    """Return True if a log has exactly these bytes, which begin with the entry that holds ``offset``.

    Compaction may have removed messages from either log: then the messages that both logs have are compared.
    If there are none, the answer is unknown and the result is True.
    """
    try:
        own = log.read(offset, len(records)).slice
    except OffsetOutOfRange:
        return True  # they are before its start: the answer is unknown
    held = b"" if own is None else bytes(own.read())
    if held[: len(records)] == records:
        return True
    if not log.config.compacted:
        return False
    try:
        sent, kept = _contents(records), _contents(held)
    except BrokerError:
        return False
    return all(sent[shared] == kept[shared] for shared in sent.keys() & kept.keys())


def _contents(records: bytes) -> dict[int, tuple[int, bytes | None, bytes | None]]:
    """Return the fields of each message that compaction does not change, by offset."""
    return {
        message.offset: (message.timestamp_ms, message.key, message.value) for message in iterate(records)
    }
