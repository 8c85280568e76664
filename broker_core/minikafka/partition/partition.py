"""A partition on this broker, as leader or as follower.

Invariants
    log start offset <= high watermark <= log end offset.
    The high watermark never decreases while this broker leads.
    A message is readable for consumers once the high watermark has passed it.
    An ISR that is being written counts together with the previous one until ZooKeeper has responded: a
    message is committed only when the replicas of both have it. So a write that takes effect late, or not at
    all, cannot leave a committed message on fewer replicas than were promised. If the response is another
    leader's state, or there is none, the write may have taken effect before: its members count until this
    broker learns the state in ZooKeeper for its own epoch or a newer one.

The high watermark is the smallest log end offset of the in-sync replicas. This broker's own log counts up to
the messages that are as durable as configured: all messages when no flush is required, otherwise those that
were flushed as ``flush.messages`` demands. So no message that a power cut may still lose, against the
setting, is read by a consumer or acknowledged to a producer.

Texts: "Writes", "Reads" and "Guarantees" of the Log section; AR, ISR, HW and LEO of the replication text.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from minikafka.base.errors import BrokerError, ErrorCode, OffsetOutOfRange
from minikafka.base.ids import TopicPartition
from minikafka.base.values import fast_value
from minikafka.log.checkpoints.leader_epochs import UNKNOWN
from minikafka.log.log import Log
from minikafka.log.producers.producer_state import Guard, VerificationGuard
from minikafka.log.reading import LogRead
from minikafka.partition.replica import FollowerReplica, LeaderAndIsr
from minikafka.records.append.produced import LogAppendInfo, ValidatedRecords
from minikafka.records.append.replicated import FollowerRecords


@fast_value
class LogAppendResult:
    """The result of an append. ``must_flush``: flush the log and report it before sending a response."""

    append_info: LogAppendInfo
    must_flush: bool
    leader_epoch: int
    """The leader epoch of the append: a delayed response waits for replicas of this leader."""


@fast_value
class FollowerFetchUpdate:
    """The changes that a follower's fetch caused."""

    high_watermark_advanced: bool
    """True if the high watermark has advanced."""
    proposed_isr: LeaderAndIsr | None
    """The ISR to be written, with the follower; None if nothing changes."""


_NOTHING_CHANGED = FollowerFetchUpdate(high_watermark_advanced=False, proposed_isr=None)


class Partition:
    """The mutable state of one partition on one broker. Changed under the core's lock, read by any thread."""

    def __init__(
        self, topic_partition: TopicPartition, log: Log, broker_id: int, *, high_watermark: int = 0
    ) -> None:
        """``high_watermark``: that of the last checkpoint."""
        self.topic_partition = topic_partition
        self.log = log
        self._broker_id = broker_id
        self._leadership: LeaderAndIsr | None = None
        self._set_high_watermark(self._clamp(high_watermark))
        self._durable_end_offset = log.end_offset
        """End of the prefix that is durable under ``flush.messages``."""
        self._followers: dict[int, FollowerReplica] = {}
        self._leader_epoch_start_offset = 0
        """The log end offset when this broker became the leader."""
        self._first_led_epoch = 0
        self._proposed_isr: LeaderAndIsr | None = None
        """An ISR whose write to ZooKeeper is pending."""
        self._unconfirmed_isr: frozenset[int] = frozenset()
        """Replicas in ISR updates whose outcome is unknown."""

    def _clamp(self, offset: int) -> int:
        return min(max(offset, self.log.start_offset), self.log.end_offset)

    # --- state ----------------------------------------------------------------------------------------------

    @property
    def high_watermark(self) -> int:
        """The offset before which consumers may read."""
        return self._high_watermark

    @property
    def first_led_epoch(self) -> int:
        """The epoch in which this broker became the leader: it has led in all epochs since."""
        return self._first_led_epoch

    @property
    def is_high_watermark_behind(self) -> bool:
        """Return whether consumers may know a higher offset from an earlier leader: a new leader's high
        watermark is below the log end offset at its election until the followers have fetched.
        """
        return self._high_watermark < self._leader_epoch_start_offset

    @property
    def last_stable_offset(self) -> int:
        """The offset before which ``read_committed`` consumers may read: every transaction that begins below
        has its marker below the high watermark.
        """
        high_watermark = self._high_watermark
        unstable = self.log.producers.first_unstable_offset(high_watermark)
        if unstable is None:
            return high_watermark
        return min(high_watermark, max(unstable, self.log.start_offset))

    def _set_high_watermark(self, offset: int) -> None:
        self._high_watermark = self.log.producers.high_watermark = offset

    @property
    def leadership(self) -> LeaderAndIsr | None:
        """The controller's last decision, with the ISR as this broker has it now."""
        return self._leadership

    @property
    def is_leader(self) -> bool:
        """Return whether this broker leads the partition."""
        return self._leadership is not None and self._leadership.leader == self._broker_id

    # --- leadership -----------------------------------------------------------------------------------------

    def apply_leadership(self, leadership: LeaderAndIsr, now_ms: int = 0) -> bool:
        """Apply the controller's decision: lead, or follow. ``now_ms``: monotonic.

        Return False, without a change, if the known leader epoch is as new.
        """
        known = self._leadership
        if known is not None and leadership.leader_epoch <= known.leader_epoch:
            return False
        # If this broker missed an epoch, its followers may have copied from another leader in it.
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
                # A follower in the ISR has the usual time to fetch; one outside must catch up first.
                fresh = FollowerReplica(now_ms if replica in leadership.isr else -(1 << 62))
                self._followers[replica] = old.get(replica, fresh) if led else fresh
        self._advance_high_watermark()
        return True

    def drop_replica(self) -> None:
        """Stop leading or following: this broker has no replica any more. Delayed requests then fail."""
        self._leadership = self._proposed_isr = None
        self._followers = {}

    def check_leader(self, epoch: int = UNKNOWN) -> LeaderAndIsr:
        """Return the state under which this broker leads.

        Raises NOT_LEADER_FOR_PARTITION when it does not lead.

        ``epoch`` is the leader epoch that a client knows: FENCED_LEADER_EPOCH for an older one,
        UNKNOWN_LEADER_EPOCH for one that this broker does not know yet (KIP-320). Raises BrokerError.
        """
        leadership = self.check_replica(epoch)
        if not self.is_leader:
            raise self._not_leader()
        return leadership

    def check_replica(self, epoch: int = UNKNOWN) -> LeaderAndIsr:
        """Return the state under which this broker leads or follows: consumers may read from it (KIP-392).

        Raises BrokerError as ``check_leader``, NOT_LEADER_FOR_PARTITION without any such state.
        """
        if epoch != UNKNOWN and self._leadership is not None and epoch != self._leadership.leader_epoch:
            known = self._leadership.leader_epoch
            raise BrokerError(
                ErrorCode.FENCED_LEADER_EPOCH if epoch < known else ErrorCode.UNKNOWN_LEADER_EPOCH,
                f"{self.topic_partition}: the request has leader epoch {epoch}, this broker has {known}",
            )
        if self._leadership is None:
            raise self._not_leader()
        return self._leadership

    def _not_leader(self) -> BrokerError:
        return BrokerError(
            ErrorCode.NOT_LEADER_FOR_PARTITION,
            f"broker {self._broker_id} is not the leader of {self.topic_partition}",
        )

    # --- as its leader --------------------------------------------------------------------------------------

    def start_transaction_verification(
        self, producer_id: int, epoch: int, sequence: int, now_ms: int
    ) -> VerificationGuard:
        """Begin the verification of a producer's transaction, whose next batch has this ``sequence``.

        OPEN_TRANSACTION if it is open, and needs no verification. Raises NOT_LEADER_FOR_PARTITION.
        """
        self.check_leader()
        return self.log.producers.start_verification(producer_id, epoch, sequence, now_ms)

    def append(
        self, valid: ValidatedRecords, *, all_in_sync: bool = False, now_ms: int = 0, guard: Guard = None
    ) -> LogAppendResult:
        """Assign the next offsets to the messages and append them. ``now_ms``: wall-clock time.

        ``all_in_sync``: the producer requested acks=all, so ``min.insync.replicas`` applies. ``guard``: that
        of ``start_transaction_verification``; None for records that need no verification. Raises BrokerError
        NOT_LEADER_FOR_PARTITION, NOT_ENOUGH_REPLICAS, RECORD_LIST_TOO_LARGE or one for sequence numbers and
        transactions (``log.producers.producer_state``), and StorageError.
        """
        leadership = self._check_may_append(all_in_sync=all_in_sync)
        assigned = self.log.append(valid, now_ms=now_ms, leader_epoch=leadership.leader_epoch, guard=guard)
        return self._appended(assigned, leadership)

    def append_end_marker(
        self, producer_id: int, producer_epoch: int, coordinator_epoch: int, *, commit: bool, now_ms: int = 0
    ) -> LogAppendResult:
        """Append the marker that ends the transaction of a producer, for its coordinator, as with acks=all.

        ``now_ms``: wall-clock time. Raises BrokerError NOT_LEADER_FOR_PARTITION, NOT_ENOUGH_REPLICAS, or one
        of ``Log.append_end_marker``, and StorageError.
        """
        leadership = self._check_may_append(all_in_sync=True)
        assigned = self.log.append_end_marker(
            producer_id,
            producer_epoch,
            coordinator_epoch,
            commit=commit,
            now_ms=now_ms,
            leader_epoch=leadership.leader_epoch,
        )
        return self._appended(assigned, leadership)

    def _check_may_append(self, *, all_in_sync: bool) -> LeaderAndIsr:
        leadership = self.check_leader()
        in_sync = len(leadership.isr)
        if all_in_sync and in_sync < self.log.config.min_insync_replicas:
            raise BrokerError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"{self.topic_partition} has {in_sync} in-sync replicas, "
                f"min.insync.replicas is {self.log.config.min_insync_replicas}",
            )
        return leadership

    def _appended(self, assigned: LogAppendInfo, leadership: LeaderAndIsr) -> LogAppendResult:
        must_flush = self.log.needs_flush()
        if not must_flush:
            self._durable_end_offset = self.log.end_offset
            self._advance_high_watermark()
        return LogAppendResult(assigned, must_flush, leadership.leader_epoch)

    def complete_flush(self, end_offset: int) -> bool:
        """Record that all messages before ``end_offset`` are flushed.

        Return whether the high watermark advanced.
        """
        self._durable_end_offset = max(self._durable_end_offset, min(end_offset, self.log.end_offset))
        return self.is_leader and self._advance_high_watermark()

    def is_committed(self, offset: int, leader_epoch: int) -> bool:
        """Return whether the message at ``offset``, of ``leader_epoch``, is on every in-sync replica.

        Raises BrokerError NOT_LEADER_FOR_PARTITION when another broker leads since, or may have led, as that
        makes it uncertain; and NOT_ENOUGH_REPLICAS_AFTER_APPEND when the in-sync replicas are fewer than
        ``min.insync.replicas`` now.
        """
        leadership = self.check_leader()
        if leader_epoch < self._first_led_epoch:
            raise BrokerError(
                ErrorCode.NOT_LEADER_FOR_PARTITION,
                f"{self.topic_partition}: this broker leads since epoch {self._first_led_epoch}, the message "
                f"was appended in epoch {leader_epoch}",
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

    def update_follower_fetch_state(
        self, replica: int, offset: int, now_ms: int, start_offset: int = UNKNOWN
    ) -> FollowerFetchUpdate:
        """Record a fetch of follower ``replica`` from ``offset``: it has all messages before that.

        ``now_ms``: monotonic. ``start_offset``: of its log.

        Raises BrokerError as ``check_leader``, and UNKNOWN_TOPIC_OR_PARTITION if it is not a replica.
        """
        leadership = self.check_leader()
        progress = self._followers.get(replica)
        if progress is None:
            raise BrokerError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"broker {replica} is not a replica of {self.topic_partition}: {leadership.replicas}",
            )
        if offset > self.log.end_offset:
            progress.reset()
            return _NOTHING_CHANGED
        before = progress.end_offset
        progress.start_offset = start_offset
        progress.update_fetch_state(offset, self.log.end_offset, now_ms)
        if replica not in leadership.isr:
            # It already counts while the ISR with it is being written.
            return FollowerFetchUpdate(
                high_watermark_advanced=self._advance_high_watermark(),
                proposed_isr=self._expand_isr(replica, leadership),
            )
        if offset == before:
            return _NOTHING_CHANGED
        return FollowerFetchUpdate(high_watermark_advanced=self._advance_high_watermark(), proposed_isr=None)

    def _expand_isr(self, replica: int, leadership: LeaderAndIsr) -> LeaderAndIsr | None:
        """Propose the ISR with ``replica`` if it has all committed messages and all messages that the log had
        when this leader was elected, which may be more.
        """
        least = max(self._high_watermark, self._leader_epoch_start_offset)
        if self._proposed_isr is not None or self._followers[replica].end_offset < least:
            return None
        in_sync = {*leadership.isr, replica}
        return self._propose_isr(
            leadership, tuple(other for other in leadership.replicas if other in in_sync)
        )

    def follower_lags(self) -> dict[int, int]:
        """Return how many messages each follower is behind this leader's log. Any thread may call this.

        A follower that has not fetched yet has none.
        """
        end, followers = self.log.end_offset, list(self._followers.items())
        return {replica: max(0, end - max(0, follower.end_offset)) for replica, follower in followers}

    def shrink_isr(self, now_ms: int, lag_max_ms: int) -> LeaderAndIsr | None:
        """Propose the ISR without lagging replicas (``replica.lag.time.max.ms``). ``now_ms``: monotonic.

        Return None if no replica lags, or this broker does not lead.
        """
        leadership = self._leadership
        if leadership is None or not self.is_leader or self._proposed_isr is not None:
            return None
        in_sync = tuple(
            replica
            for replica in leadership.isr
            if replica == self._broker_id
            or (replica in self._followers and not self._followers[replica].is_lagging(now_ms, lag_max_ms))
        )
        if in_sync == leadership.isr and not self._unconfirmed_isr:
            return None
        # The same ISR is written again while the outcome of an update is unknown.
        return self._propose_isr(leadership, in_sync)

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
        """Raise the high watermark to the smallest log end offset of the replicas that count as in sync."""
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
        self._set_high_watermark(end)
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
        """Append records from the leader of ``leader_epoch``, with their offsets.

        ``epochs``: see ``Log.append_as_follower``. Return whether a flush must come before the
        acknowledgement to the leader. Raises StorageError, and BrokerError as ``check_follower``.
        """
        self.check_follower(leader_epoch)
        log = self.log
        if copied.first_offset < log.end_offset == log.start_offset:
            # The leader's log starts within a batch (DeleteRecords): this log must begin with the batch.
            log.truncate_fully_and_start_at(copied.first_offset)
            self.complete_truncation()
        log.append_as_follower(copied, epochs=epochs, now_ms=now_ms)
        return log.needs_flush()

    def check_follower(self, leader_epoch: int) -> LeaderAndIsr:
        """Return the state under which this broker follows.

        Raises NOT_LEADER_FOR_PARTITION after a new election.
        """
        leadership = self._leadership
        if leadership is None or self.is_leader or leadership.leader_epoch != leader_epoch:
            raise BrokerError(
                ErrorCode.NOT_LEADER_FOR_PARTITION,
                f"{self.topic_partition} no longer follows the leader of epoch {leader_epoch}",
            )
        return leadership

    def update_high_watermark(self, offset: int) -> bool:
        """Set a follower's high watermark to the leader's, ``offset``, but at most to the log end offset.

        Return whether it advanced.
        """
        before = self._high_watermark
        if not self.is_leader:
            self._set_high_watermark(self._clamp(offset))
        return self._high_watermark > before

    def complete_truncation(self) -> None:
        """Adjust the offsets after the log was truncated or restarted."""
        self._set_high_watermark(self._clamp(self._high_watermark))
        self._durable_end_offset = min(self._durable_end_offset, self.log.end_offset)

    def replace_log(self, log: Log) -> None:
        """Serve ``log``, a copy in another data directory that has all messages (``log.future_logs``)."""
        self.log = log
        self._set_high_watermark(self._high_watermark)

    # --- reading --------------------------------------------------------------------------------------------

    def read(
        self,
        offset: int,
        max_bytes: int,
        *,
        at_least_one: bool,
        cut_first: bool = True,
        committed_only: bool = False,
        for_replica: bool = False,
    ) -> LogRead:
        """Read messages from ``offset`` that consumers may see; ``for_replica``: up to the log end offset.

        Raises OffsetOutOfRange. The caller has checked that this broker may serve the partition.
        """
        up_to = self.last_stable_offset if committed_only else self._high_watermark
        return self.log.read(
            offset,
            max_bytes,
            up_to=None if for_replica else up_to,
            at_least_one=at_least_one,
            cut_first=cut_first,
        )

    def diverging_epoch(self, epoch: int, offset: int) -> tuple[int, int] | None:
        """Return the end of this log's newest epoch up to ``epoch`` if a log that ends at ``offset``, with a
        message of ``epoch``, has others than this log: the epoch and its end offset.

        Raises OffsetOutOfRange if this log does not know such an epoch, or does not have the offset.
        """
        log = self.log
        known, end_offset = log.end_offset_for_epoch(epoch)
        if UNKNOWN in {known, end_offset} or offset < log.start_offset:
            raise OffsetOutOfRange(offset, log.start_offset, log.end_offset)
        return (known, end_offset) if known < epoch or end_offset < offset else None

    def preferred_read_replica(self, offset: int, brokers: Collection[int]) -> int | None:
        """Return the in-sync follower among ``brokers`` that a consumer at ``offset`` should read from; None
        for none: the furthest of those that have the offset.
        """
        found = [
            (progress.end_offset, progress.caught_up_ms, replica)
            for replica, progress in self._followers.items()
            if replica in brokers and progress.start_offset <= offset <= progress.end_offset
        ]
        in_sync = () if self._leadership is None else self._leadership.isr
        return max((row for row in found if row[2] in in_sync), default=(0, 0, None))[2]
