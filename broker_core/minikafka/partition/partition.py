"""A partition as its leader on this broker has it.

Invariants
    log start offset <= high watermark <= log end offset.
    The high watermark never goes back while this broker leads.
    A message is readable for consumers once the high watermark has passed it.

The high watermark is the smallest log end offset of the in-sync replicas. This broker's own share counts as
soon as a message is as safe as configured: at once where nothing asks for a flush, after the flush where
``flush.messages`` does. So no consumer reads, and no producer is told of, a message that a power cut may
still take away against the setting.

Texts: "Writes", "Reads" and "Guarantees" of the Log section; AR, ISR, HW and LEO of the replication text.
"""

from __future__ import annotations

from minikafka.base.errors import BrokerError, ErrorCode
from minikafka.base.ids import TopicPartition
from minikafka.base.values import fast_value
from minikafka.log.epochs import UNKNOWN
from minikafka.log.log import Log
from minikafka.log.reading import LogRead
from minikafka.partition.leadership import Leadership
from minikafka.records.produced import AssignedSet, ValidatedSet


@fast_value
class Appended:
    """What one append did. ``must_flush``: call ``flush`` and report it before anybody is answered."""

    assigned: AssignedSet
    must_flush: bool


class Partition:
    """The mutable state of one partition on one broker. Changed under the core's lock, read by all."""

    def __init__(self, topic_partition: TopicPartition, log: Log, broker_id: int) -> None:
        self.topic_partition = topic_partition
        self.log = log
        self._broker_id = broker_id
        self._leadership: Leadership | None = None
        self._high_watermark = log.end_offset

    @property
    def high_watermark(self) -> int:
        """The offset before which consumers may read."""
        return self._high_watermark

    @property
    def last_stable_offset(self) -> int:
        """The offset before which whoever reads only what was committed may read: no transaction that has
        not ended begins there. (None begins here; another release may have left one.)
        """
        begun = self.log.producers.open_from
        if begun is None:
            return self._high_watermark
        return min(self._high_watermark, max(begun, self.log.start_offset))

    @property
    def is_leader(self) -> bool:
        """Whether this broker serves the partition."""
        return self._leadership is not None and self._leadership.leader == self._broker_id

    def lead(self, leadership: Leadership) -> None:
        """Take over the controller's decision. An older leader epoch than the known one changes nothing."""
        known = self._leadership
        if known is None or leadership.leader_epoch >= known.leader_epoch:
            self._leadership = leadership

    def append(self, valid: ValidatedSet, *, all_in_sync: bool = False, now_ms: int = 0) -> Appended:
        """Give the messages the next offsets and write them. ``now_ms``: wall-clock time.

        ``all_in_sync``: the producer asked for acks=all: ``min.insync.replicas`` counts. Raises BrokerError
        NOT_LEADER_FOR_PARTITION, NOT_ENOUGH_REPLICAS, RECORD_LIST_TOO_LARGE or those of a producer's numbers
        (``log.producer_state``), and StorageError.
        """
        leadership = self.check_leader()
        in_sync = len(leadership.isr)
        if all_in_sync and in_sync < self.log.config.min_insync_replicas:
            raise BrokerError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"{self.topic_partition} has {in_sync} in-sync replicas, "
                f"min.insync.replicas is {self.log.config.min_insync_replicas}",
            )
        assigned = self.log.append(valid, now_ms=now_ms, leader_epoch=leadership.leader_epoch)
        must_flush = self.log.needs_flush()
        if not must_flush:
            # Not below: it may have been here before.
            self._high_watermark = max(self._high_watermark, assigned.last_offset + 1)
        return Appended(assigned, must_flush)

    def flushed(self, end_offset: int) -> bool:
        """Everything before ``end_offset`` is on disk. True when the high watermark moved."""
        if end_offset <= self._high_watermark:
            return False
        self._high_watermark = min(end_offset, self.log.end_offset)
        return True

    def read(
        self,
        offset: int,
        max_bytes: int,
        *,
        at_least_one: bool,
        committed_only: bool = False,
        leader_epoch: int = UNKNOWN,
    ) -> LogRead:
        """Messages from ``offset`` that consumers may see.

        Raises OffsetOutOfRange and BrokerError as ``check_leader``.
        """
        self.check_leader(leader_epoch)
        up_to = self.last_stable_offset if committed_only else self._high_watermark
        return self.log.read(offset, max_bytes, up_to=up_to, at_least_one=at_least_one)

    def check_leader(self, epoch: int = UNKNOWN) -> Leadership:
        """What this broker leads by. Raises BrokerError NOT_LEADER_FOR_PARTITION when it does not lead.

        ``epoch`` is the leader epoch that a client knows: an older one is FENCED_LEADER_EPOCH, and one that
        this broker has not heard of yet UNKNOWN_LEADER_EPOCH (KIP-320).
        """
        if epoch != UNKNOWN and self._leadership is not None and epoch != self._leadership.leader_epoch:
            known = self._leadership.leader_epoch
            raise BrokerError(
                ErrorCode.FENCED_LEADER_EPOCH if epoch < known else ErrorCode.UNKNOWN_LEADER_EPOCH,
                f"{self.topic_partition}: leader epoch {epoch} was named, {known} is known here",
            )
        if self._leadership is None or not self.is_leader:
            raise BrokerError(
                ErrorCode.NOT_LEADER_FOR_PARTITION,
                f"broker {self._broker_id} does not lead {self.topic_partition}",
            )
        return self._leadership
