"""The partition on this broker, as leader or as follower.

Invariants
    log start offset <= high watermark <= log end offset.
    The high watermark never goes back while this broker leads.
    A message is readable for consumers once the high watermark has passed it.
    An ISR that is being written counts together with the one before it until ZooKeeper has answered: a
    message is committed only when both have it. So no write that turns out to have come late, or not at
    all, can leave a committed message with fewer replicas than were promised. Where the answer is another
    leader's state, or none, the write may have been taken before: its members count until this broker hears
    what ZooKeeper holds of its own epoch, or of a newer one.

The high watermark is the smallest log end offset of the in-sync replicas. This broker's own share counts as
soon as a message is as safe as configured: at once where nothing asks for a flush, after the flush where
``flush.messages`` does. So no consumer reads, and no producer is told of, a message that a power cut may
still take away against the setting.

Texts: "Writes", "Reads" and "Guarantees" of the Log section; AR, ISR, HW and LEO of the replication text.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from minikafka.base.errors import BrokerError, ErrorCode
from minikafka.base.ids import TopicPartition
from minikafka.base.values import fast_value
from minikafka.log.checkpoints.leader_epochs import UNKNOWN
from minikafka.log.log import Log
from minikafka.log.reading import LogRead
from minikafka.partition.replica import FollowerReplica, LeaderAndIsr
from minikafka.records.append.produced import LogAppendInfo, ValidatedRecords
from minikafka.records.append.replicated import FollowerRecords


@fast_value
class LogAppendResult:
    """The result of one append. ``must_flush``: call ``flush`` and report it before anybody is answered."""

    append_info: LogAppendInfo
    must_flush: bool
    leader_epoch: int
    """Under which it was written: who waits for replicas waits for this leader."""


@fast_value
class FollowerFetchUpdate:
    """The changes that a follower's fetch caused."""

    high_watermark_advanced: bool
    """The high watermark has moved."""
    proposed_isr: LeaderAndIsr | None
    """The ISR to be written, with the follower; None where nothing changes."""


_NOTHING_CHANGED = FollowerFetchUpdate(high_watermark_advanced=False, proposed_isr=None)


class Partition:
    """The mutable state of one partition on one broker. Changed under the core's lock, read by all."""

    def __init__(
        self, topic_partition: TopicPartition, log: Log, broker_id: int, *, high_watermark: int = 0
    ) -> None:
        """``high_watermark`` is the one that was written down last."""
        self.topic_partition = topic_partition
        self.log = log
        self._broker_id = broker_id
        self._leadership: LeaderAndIsr | None = None
        self._high_watermark = self._clamp(high_watermark)
        self._durable_end_offset = log.end_offset
        """End of the prefix that is durable under ``flush.messages``."""
        self._followers: dict[int, FollowerReplica] = {}
        self._leader_epoch_start_offset = 0
        """Where the log ended when this broker began to lead."""
        self._first_led_epoch = 0
        """The epoch in which it did: it has led all from there on."""
        self._proposed_isr: LeaderAndIsr | None = None
        """An ISR that ZooKeeper was asked to take, and has not answered."""
        self._unconfirmed_isr: frozenset[int] = frozenset()
        """Replicas in ISR updates whose outcome is unknown."""

    def _clamp(self, offset: int) -> int:
        return min(max(offset, self.log.start_offset), self.log.end_offset)

    # --- what it is -----------------------------------------------------------------------------------------

    @property
    def high_watermark(self) -> int:
        """The offset before which consumers may read."""
        return self._high_watermark

    @property
    def is_high_watermark_behind(self) -> bool:
        """Whether consumers may have been told a higher offset: the high watermark of a new leader is below
        what the log had when this broker began to lead, until the followers have fetched.
        """
        return self._high_watermark < self._leader_epoch_start_offset

    @property
    def last_stable_offset(self) -> int:
        """The offset before which whoever reads only what was committed may read: no transaction that has
        not ended begins there. (None begins here; another release may have left one.)
        """
        begun = self.log.producers.first_undecided_offset
        if begun is None:
            return self._high_watermark
        return min(self._high_watermark, max(begun, self.log.start_offset))

    @property
    def leadership(self) -> LeaderAndIsr | None:
        """What the controller said last, with the ISR as this broker has it now."""
        return self._leadership

    @property
    def is_leader(self) -> bool:
        """Return whether this broker leads the partition."""
        return self._leadership is not None and self._leadership.leader == self._broker_id

    # --- who leads ------------------------------------------------------------------------------------------

    def apply_leadership(self, leadership: LeaderAndIsr, now_ms: int = 0) -> bool:
        """Take over the controller's decision: lead, or follow. False, and nothing changes, where as new a
        leader epoch is known. ``now_ms``: monotonic.
        """
        known = self._leadership
        if known is not None and leadership.leader_epoch <= known.leader_epoch:
            return False
        # Who passes over an epoch may not have heard of another leader, from whom its followers copied.
        led = known is not None and self.is_leader and leadership.leader_epoch == known.leader_epoch + 1
        self._leadership = leadership
        self._proposed_isr, self._unconfirmed_isr = None, frozenset()
        if not self.is_leader:
            self._followers = {}
            return True
        if not led:
            self._first_led_epoch = leadership.leader_epoch
            self._leader_epoch_start_offset = self._durable_end_offset = self.log.end_offset
            if self.log.needs_flush():
                self._durable_end_offset = self.log.recovery_point
        old = self._followers
        self._followers = {}
        for replica in leadership.replicas:
            if replica != self._broker_id:
                # Who is in sync has the usual time to say so; who is not has to show it.
                fresh = FollowerReplica(now_ms if replica in leadership.isr else -(1 << 62))
                self._followers[replica] = old.get(replica, fresh) if led else fresh
        self._advance_high_watermark()
        return True

    def drop_replica(self) -> None:
        """This broker has no replica any more: it neither leads nor follows, and who waits here is told."""
        self._leadership = self._proposed_isr = None
        self._followers = {}

    def check_leader(self, epoch: int = UNKNOWN) -> LeaderAndIsr:
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

    # --- as its leader --------------------------------------------------------------------------------------

    def append(
        self, valid: ValidatedRecords, *, all_in_sync: bool = False, now_ms: int = 0
    ) -> LogAppendResult:
        """Give the messages the next offsets and write them. ``now_ms``: wall-clock time.

        ``all_in_sync``: the producer asked for acks=all: ``min.insync.replicas`` counts. Raises BrokerError
        NOT_LEADER_FOR_PARTITION, NOT_ENOUGH_REPLICAS, RECORD_LIST_TOO_LARGE or those of a producer's numbers
        (``log.producers.producer_state``), and StorageError.
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
            self._durable_end_offset = self.log.end_offset
            self._advance_high_watermark()
        return LogAppendResult(assigned, must_flush, leadership.leader_epoch)

    def complete_flush(self, end_offset: int) -> bool:
        """Everything before ``end_offset`` is on disk. True when the high watermark moved."""
        self._durable_end_offset = max(self._durable_end_offset, min(end_offset, self.log.end_offset))
        return self.is_leader and self._advance_high_watermark()

    def is_committed(self, offset: int, leader_epoch: int) -> bool:
        """Whether the message at ``offset``, written under ``leader_epoch``, is on every in-sync replica.

        Raises BrokerError NOT_LEADER_FOR_PARTITION when another leads since, or may have, as nobody knows
        then; and NOT_ENOUGH_REPLICAS_AFTER_APPEND when these are fewer than ``min.insync.replicas`` by now.
        """
        leadership = self.check_leader()
        if leader_epoch < self._first_led_epoch:
            raise BrokerError(
                ErrorCode.NOT_LEADER_FOR_PARTITION,
                f"{self.topic_partition}: this broker leads since epoch {self._first_led_epoch}, the message "
                f"was written in epoch {leader_epoch}",
            )
        if self._high_watermark <= offset:
            return False
        if len(leadership.isr) < self.log.config.min_insync_replicas:
            raise BrokerError(
                ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
                f"{self.topic_partition} has {len(leadership.isr)} in-sync replicas, "
                f"min.insync.replicas is {self.log.config.min_insync_replicas}",
            )
        return True

    def update_follower_fetch_state(self, replica: int, offset: int, now_ms: int) -> FollowerFetchUpdate:
        """Follower ``replica`` has everything below ``offset``. ``now_ms``: monotonic.

        Raises BrokerError as ``check_leader``, and UNKNOWN_TOPIC_OR_PARTITION where it has no replica.
        """
        leadership = self.check_leader()
        progress = self._followers.get(replica)
        if progress is None:
            raise BrokerError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"broker {replica} has no replica of {self.topic_partition}: {leadership.replicas}",
            )
        if offset > self.log.end_offset:
            progress.reset()
            return _NOTHING_CHANGED
        before = progress.end_offset
        progress.update_fetch_state(offset, self.log.end_offset, now_ms)
        if replica not in leadership.isr:
            # It counts already while it is about to be written that it is in sync.
            return FollowerFetchUpdate(
                high_watermark_advanced=self._advance_high_watermark(),
                proposed_isr=self._expand_isr(replica, leadership),
            )
        if offset == before:
            return _NOTHING_CHANGED
        return FollowerFetchUpdate(high_watermark_advanced=self._advance_high_watermark(), proposed_isr=None)

    def _expand_isr(self, replica: int, leadership: LeaderAndIsr) -> LeaderAndIsr | None:
        """The ISR with ``replica`` in it, where it has all that is committed, and all from before this
        leader's time, which may be more.
        """
        least = max(self._high_watermark, self._leader_epoch_start_offset)
        if self._proposed_isr is not None or self._followers[replica].end_offset < least:
            return None
        in_sync = {*leadership.isr, replica}
        return self._propose_isr(leadership, tuple(one for one in leadership.replicas if one in in_sync))

    def shrink_isr(self, now_ms: int, lag_max_ms: int) -> LeaderAndIsr | None:
        """The ISR to be written, without those that lag (``replica.lag.time.max.ms``); None where all are in
        sync, or this broker does not lead. ``now_ms``: monotonic.
        """
        leadership = self._leadership
        if leadership is None or not self.is_leader or self._proposed_isr is not None:
            return None
        in_sync = tuple(
            one
            for one in leadership.isr
            if one == self._broker_id
            or (one in self._followers and not self._followers[one].is_lagging(now_ms, lag_max_ms))
        )
        if in_sync == leadership.isr and not self._unconfirmed_isr:
            return None
        return self._propose_isr(
            leadership, in_sync
        )  # the same again, where only ZooKeeper knows what it holds

    def _propose_isr(self, leadership: LeaderAndIsr, in_sync: tuple[int, ...]) -> LeaderAndIsr:
        self._proposed_isr = replace(leadership, isr=in_sync, version=leadership.version + 1)
        return self._proposed_isr

    def complete_isr_update(self, proposed: LeaderAndIsr, stored: LeaderAndIsr | None) -> bool:
        """Take the outcome of writing ``proposed``: ZooKeeper holds ``stored``, or None if that is unknown.

        Return whether the high watermark advanced. A stored state of the same leader and epoch is adopted: it
        is this broker's own, whose response was lost, or an operator's. Any other state comes with a request
        of the controller; until then this broker keeps the ISR that it had, and counts the members of
        ``proposed`` besides, as the controller may have started from it.
        """
        leadership = self._leadership
        if self._proposed_isr is not proposed or leadership is None:
            return False
        self._proposed_isr = None
        if (
            stored is not None
            and (stored.leader, stored.leader_epoch) == (leadership.leader, leadership.leader_epoch)
            and self._broker_id in stored.isr
        ):
            self._leadership = replace(leadership, isr=stored.isr, version=stored.version)
            self._unconfirmed_isr = frozenset()
        else:
            self._unconfirmed_isr |= {*proposed.isr}
        return self.is_leader and self._advance_high_watermark()

    def _advance_high_watermark(self) -> bool:
        """Raise the high watermark to what every replica that counts as in sync has."""
        assert self._leadership is not None
        end = self._durable_end_offset
        counted: Collection[int] = self._leadership.isr
        if self._proposed_isr is not None or self._unconfirmed_isr:
            counted = {
                *counted,
                *self._unconfirmed_isr,
                *(self._proposed_isr.isr if self._proposed_isr is not None else ()),
            }
        for replica in counted:
            progress = self._followers.get(replica)
            if progress is not None and progress.end_offset < end:
                end = progress.end_offset
        if end <= self._high_watermark:
            return False
        self._high_watermark = end
        return True

    # --- as a follower --------------------------------------------------------------------------------------

    def append_as_follower(
        self,
        copied: FollowerRecords,
        leader_epoch: int,
        *,
        epochs: Sequence[tuple[int, int]] = (),
        now_ms: int = 0,
    ) -> bool:
        """Write what the leader of ``leader_epoch`` gave, with the offsets that it has there.

        ``epochs``: see ``Log.append_as_follower``. Return whether a flush must come before the
        acknowledgement to the leader. Raises StorageError, and BrokerError as ``check_follower``.
        """
        self.check_follower(leader_epoch)
        log = self.log
        if copied.first_offset < log.end_offset == log.start_offset:
            # The leader's log starts within a batch (DeleteRecords): this one has to begin with the batch.
            log.truncate_fully_and_start_at(copied.first_offset)
            self.complete_truncation()
        log.append_as_follower(copied, epochs=epochs, now_ms=now_ms)
        return log.needs_flush()

    def check_follower(self, leader_epoch: int) -> LeaderAndIsr:
        """What this broker follows by. NOT_LEADER_FOR_PARTITION when it has another leader by now."""
        leadership = self._leadership
        if leadership is None or self.is_leader or leadership.leader_epoch != leader_epoch:
            raise BrokerError(
                ErrorCode.NOT_LEADER_FOR_PARTITION,
                f"{self.topic_partition} does not follow the leader of epoch {leader_epoch} any more",
            )
        return leadership

    def update_high_watermark(self, offset: int) -> None:
        """The leader's high watermark is ``offset``; here it is at most what is here."""
        if not self.is_leader:
            self._high_watermark = self._clamp(offset)

    def complete_truncation(self) -> None:
        """The log was cut, or begun anew."""
        self._high_watermark = self._clamp(self._high_watermark)
        self._durable_end_offset = min(self._durable_end_offset, self.log.end_offset)

    # --- reading --------------------------------------------------------------------------------------------

    def read(
        self,
        offset: int,
        max_bytes: int,
        *,
        at_least_one: bool,
        cut_first: bool = True,
        committed_only: bool = False,
        leader_epoch: int = UNKNOWN,
        for_replica: bool = False,
    ) -> LogRead:
        """Messages from ``offset`` that consumers may see; ``for_replica``: all that there are.

        Raises OffsetOutOfRange and BrokerError as ``check_leader``.
        """
        self.check_leader(leader_epoch)
        up_to = self.last_stable_offset if committed_only else self._high_watermark
        return self.log.read(
            offset,
            max_bytes,
            up_to=None if for_replica else up_to,
            at_least_one=at_least_one,
            cut_first=cut_first,
        )
