"""Replica fetchers: they copy partitions from the leaders on other brokers.

There is a ``ReplicaFetcher`` for each leading broker (``num.replica.fetchers`` of them, each with its share
of the partitions), with one connection and one request in flight. A partition passes through these stages:

    ASK       request the end offsets of the leader's epochs (OffsetForLeaderEpoch; KIP-101, KIP-279), from
              the epoch before its own down to one that this log knows too. So this log learns the start
              offsets of all of them, also for messages without an epoch (formats 0 and 1). If none is found,
              or the leader has no such API (0.10.1), the high watermark is used instead
    CUT       the control path's worker truncates the log where it diverges from the leader's
    FETCH     fetch from the log's end; the records are appended unchanged
    COMPARE   a truncation would remove committed messages: the leader was elected although it was not in
              sync, for example because ZooKeeper was restored from an older copy. ListOffsets returns the end
              of its log, and a fetch its last entry. If its log is a prefix of this one, this broker takes
              leadership over (``_take_over``). Otherwise this log is truncated, or set aside if it is ahead
              of ZooKeeper
    LOST      the leader does not have the offset of the log's end: ListOffsets returns the start and the end
              of its log, and this log is truncated, or emptied and started at the leader's start

Responses are applied under the fetcher's own lock, so that nothing is appended to a partition once ``remove``
has returned, and within a step of the core, which rejects data from a broker that does not lead any more. So
it shares no fetch session with the clients: its position is a log's end, which epochs truncate.

Text: followers of the replication text; ``ReplicaFetcherThread`` of 0.10.1.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Protocol

from minikafka.base.clock import NEVER_MS
from minikafka.base.errors import (
    BrokerError,
    CoordinationError,
    CoordinationLost,
    ErrorCode,
    SessionExpired,
    StorageError,
)
from minikafka.base.ids import BrokerAddress, TopicPartition
from minikafka.log.checkpoints.leader_epochs import UNKNOWN
from minikafka.net.interfaces import Connector
from minikafka.partition.partition import Partition
from minikafka.partition.replica import LeaderAndIsr
from minikafka.records.append.replicated import FollowerRecords, replicated
from minikafka.server.core.broker import Broker
from minikafka.server.inter_broker_connection import InterBrokerConnection, Peer
from minikafka.server.metrics.broker_metrics import REPLICATION_BYTES_IN
from minikafka.server.replication import replica_requests as requests
from minikafka.server.replication.follower_partition import Cut, FollowerPartition, Stage, has_entry
from minikafka.wire.api import partitions_of
from minikafka.wire.apis.fetch import FETCH, FetchPartitionResponse, FetchResponse
from minikafka.wire.apis.list_offsets import EARLIEST, LATEST, LIST_OFFSETS
from minikafka.wire.apis.offset_for_leader_epoch import (
    OFFSET_FOR_LEADER_EPOCH,
    EpochPartition,
    EpochPartitionResponse,
    epochs_request,
)
from minikafka.wire.fetch_session_handler import FetchSessionHandler
from minikafka.wire.frame_parts import buffer_of, total_size

_log = logging.getLogger(__name__)


_FIRST_PAUSE_MS = 10
"""The pause after an error. It doubles with each further error, up to ``replica.fetch.backoff.ms``."""


class LogOwner(Protocol):
    """Opens the logs that a fetcher appends to. Called on the worker."""

    def start_over(self, topic_partition: TopicPartition, leader: BrokerAddress) -> None:
        """Set the log on this broker aside, and copy the leader's log from its start."""

    def agreed(self, topic_partition: TopicPartition) -> None:
        """Record that the log on this broker is a prefix of the leader's."""


class ReplicaFetcher(InterBrokerConnection):
    """Copies partitions from one leading broker. One thread calls ``step``; any thread the other methods."""

    def __init__(self, broker: Broker, source: BrokerAddress, connector: Connector, owner: LogOwner) -> None:
        name = f"broker-{broker.broker_id}-fetcher-{source.broker_id}"
        self._owner = owner
        self._config = broker.config.replication
        super().__init__(Peer(source, connector, name), broker.clock, self._config.socket_timeout_ms)
        self._broker = broker
        self._applying = threading.Lock()
        """Held while a response is applied, and while the followed partitions change."""
        self._followed: dict[TopicPartition, FollowerPartition] = {}
        self._handler: Callable[[Any], None] = lambda response: None
        self._session = FetchSessionHandler()
        self._throttled_until_ms = 0
        """Throttled partitions are not fetched until then: the replication rate is above its limit."""

    def __len__(self) -> int:
        return len(self._followed)

    def add(self, partition: Partition, leader_epoch: int, *, is_ahead: bool = False) -> None:
        """Start to follow a partition. ``is_ahead``: see ``FollowerPartition``."""
        with self._applying:
            follower = FollowerPartition(partition, leader_epoch, is_ahead=is_ahead)
            self._followed[partition.topic_partition] = follower
            follower.begin()
            self._session.follow_anew(follower.name)
        self.wake()

    def remove(self, topic_partition: TopicPartition) -> None:
        """Stop following a partition: once this has returned nothing more is written to it."""
        with self._applying:
            self._followed.pop(topic_partition, None)

    def _is_followed(self, follower: FollowerPartition) -> bool:
        """Return False once the partition was removed, or added again for another leader epoch."""
        return self._followed.get(follower.name) is follower

    # --- requests -------------------------------------------------------------------------------------------

    def ask(self) -> bool:
        if not self._followed:
            return False
        if not self.peer.negotiated:
            self.peer.negotiate()
            self._session.begin_anew()
            self._handler = lambda response: None
            return True
        with self._applying:
            return self._ask_for(self.clock.monotonic_ms())

    def take(self, response: Any) -> None:
        self._handler(response)

    def failed(self, reason: str) -> int:
        return self._config.fetch_backoff_ms

    def next_ms(self) -> int:
        now_ms = self.clock.monotonic_ms()
        later = [follower.not_before_ms for follower in list(self._followed.values())]
        if not later:
            return NEVER_MS
        return min((at for at in (self._throttled_until_ms, *later) if at > now_ms), default=0)

    def _ask_for(self, now_ms: int) -> bool:
        for name in tuple(self._broker.unwritable):
            if name in self._followed:
                self._followed[name].not_before_ms = now_ms + self._config.fetch_backoff_ms
        ready = [follower for follower in self._followed.values() if now_ms >= follower.not_before_ms]
        asking = [follower for follower in ready if follower.stage is Stage.ASK]
        if asking:
            return self._ask_epochs(asking)
        compared = [follower for follower in ready if follower.stage is Stage.COMPARE]
        if compared:
            self._compare(compared[0])
            return True
        lost = [follower for follower in ready if follower.stage is Stage.LOST]
        if lost:
            follower = lost[0]
            time = LATEST if follower.leader_end is None else EARLIEST
            asked_at = requests.offset_at(self._broker.broker_id, follower.name, time)
            self._send(LIST_OFFSETS, 1, asked_at, lambda response: self._on_offset(follower, response))
            return True
        fetching = [
            follower for follower in ready if follower.stage is Stage.FETCH and self._is_safe(follower)
        ]
        if self._broker.replication_quotas.follower.active:
            fetching = self._unthrottled(fetching, now_ms)
        if not fetching:
            return False
        version = requests.fetch_version(self.peer)
        asked = {follower.name: follower for follower in fetching}
        wanted = [(follower.name, follower.leader_epoch, follower.partition.log) for follower in fetching]
        parts = requests.fetch_parts(wanted, self._config)
        request = requests.fetch_in_session(self._session, self._broker.broker_id, parts, self._config)
        self._send(FETCH, version, request, lambda response: self._on_fetch_response(asked, response))
        return True

    def _unthrottled(self, fetching: list[FollowerPartition], now_ms: int) -> list[FollowerPartition]:
        """Return the partitions that need not wait for the replication quota."""
        quota = self._broker.replication_quotas.follower
        pause_ms = quota.pause_ms(now_ms)
        if not pause_ms:
            return fetching
        self._throttled_until_ms = now_ms + pause_ms
        return [follower for follower in fetching if not (follower.behind and quota.covers(follower.name))]

    def _send(self, api: Any, version: int, request: Any, handler: Callable[[Any], None]) -> None:
        self._handler = handler
        self.peer.send(api, version, request)

    # --- truncation -----------------------------------------------------------------------------------------

    def _ask_epochs(self, asking: list[FollowerPartition]) -> bool:
        version = self.peer.version(OFFSET_FOR_LEADER_EPOCH)
        asked: dict[TopicPartition, FollowerPartition] = {}
        for follower in asking:
            if version == 0:
                follower.epoch_starts = []
                self._cut_later(follower, follower.safe_end())
            elif follower.asked_epoch == UNKNOWN:
                follower.note_beginning(0)  # epoch 0 starts at offset 0
                self._cut_later(follower, follower.safe_end())
            else:
                asked[follower.name] = follower
        if asked:
            request = epochs_request(
                {
                    tp: EpochPartition(tp.partition, follower.leader_epoch, follower.asked_epoch)
                    for tp, follower in asked.items()
                },
                self._broker.broker_id,
            )
            self._send(
                OFFSET_FOR_LEADER_EPOCH,
                version,
                request,
                lambda response: self._on_epoch_ends(asked, response),
            )
        return True

    def _on_epoch_ends(self, asked: Mapping[TopicPartition, FollowerPartition], response: Any) -> None:
        with self._applying:
            for tp, part in partitions_of(response.topics):
                follower = asked.get(tp)
                if follower is not None and self._is_followed(follower):
                    self._on_epoch_end(follower, part)

    def _on_epoch_end(self, follower: FollowerPartition, found: EpochPartitionResponse) -> None:
        """Process the response: the leader's largest epoch up to the requested one, and its end offset."""
        if found.error_code != ErrorCode.NONE:
            self._put_off(follower, ErrorCode.of(found.error_code).name)
            return
        log = follower.partition.log
        known, epoch = log.epochs.latest, found.leader_epoch
        if found.end_offset == UNKNOWN or not follower.note_beginning(found.end_offset):
            self._cut_later(follower, follower.safe_end())
            return
        follower.above, follower.asked_epoch = epoch, epoch - 1
        if epoch > known:
            return  # this log may have nothing of it: the next request has an older epoch
        own_epoch, own_end = log.end_offset_for_epoch(epoch)
        if own_end == UNKNOWN:
            self._cut_later(follower, follower.safe_end())
            return
        if own_epoch == epoch:
            follower.epoch_starts += [
                entry
                for entry in log.epochs.entries
                if entry[0] == epoch and entry not in follower.epoch_starts
            ]
        # If the leader never had this log's newest epoch, the newest epoch that both have decides.
        self._cut_later(follower, min(found.end_offset, own_end), then_ask=own_epoch != epoch)

    def _cut_later(
        self, follower: FollowerPartition, offset: int, *, restart: bool = False, then_ask: bool = False
    ) -> None:
        follower.stage = Stage.CUT
        cut = Cut(offset, restart, Stage.ASK if then_ask else Stage.FETCH)
        self._broker.worker.submit(lambda: self._cut_now(follower, cut))

    def _cut_now(self, follower: FollowerPartition, cut: Cut, *, compared: bool = False) -> None:
        """Truncate the log, on the worker like every truncation."""
        if not self._is_followed(follower):
            return
        log = follower.partition.log
        if not compared and self._must_compare(follower, cut):
            with self._applying:
                follower.stage, follower.cut, follower.leader_end = Stage.COMPARE, cut, None
            self.wake()
            return
        try:
            if cut.restart or cut.offset < log.end_offset:
                _log.info(
                    "truncating %s from offset %d to %d to follow %s",
                    follower.name,
                    log.end_offset,
                    cut.offset,
                    self.peer.address,
                )
                self._broker.logs.truncate(follower.name, cut.offset, restart=cut.restart)
                self._broker.run(follower.partition.complete_truncation)
        except StorageError as error:
            with self._applying:
                follower.begin()
                self._put_off(follower, str(error))
            return
        if cut.then is Stage.FETCH:
            follower.is_ahead = False
            self._owner.agreed(follower.name)
        with self._applying:
            follower.stage = cut.then
        self.wake()

    # --- leaders that were not in sync ----------------------------------------------------------------------

    def _must_compare(self, follower: FollowerPartition, cut: Cut) -> bool:
        """Return True if the logs must be compared before a truncation.

        That is the case if it would remove committed messages although unclean election is off, or if the
        leader may have other messages under the epochs of this log.
        """
        log = follower.partition.log
        committed = log.end_offset if follower.is_ahead else follower.partition.high_watermark
        if log.config.unclean_election or self._broker.config.beside_0_10:
            return False
        doubtful = follower.is_ahead and cut.then is Stage.FETCH and log.end_offset > log.start_offset
        return doubtful or cut.offset < min(committed, log.end_offset)

    def _compare(self, follower: FollowerPartition) -> None:
        """Request the end of the leader's log, and then the last entry of the range that both logs have."""
        leader_end = follower.leader_end
        if leader_end is None:
            asked_at = requests.offset_at(self._broker.broker_id, follower.name, LATEST)
            self._send(LIST_OFFSETS, 1, asked_at, lambda response: self._on_leader_end(follower, response))
            return
        last = _common_end(follower, leader_end) - 1
        request = requests.one_entry(follower.name, follower.leader_epoch, last)
        version = requests.fetch_version(self.peer)
        self._send(FETCH, version, request, lambda response: self._on_last_entry(follower, last, response))

    def _is_compared(self, follower: FollowerPartition) -> bool:
        return self._is_followed(follower) and follower.stage is Stage.COMPARE and follower.cut is not None

    def _on_leader_end(self, follower: FollowerPartition, response: Any) -> None:
        with self._applying:
            if not self._is_compared(follower) or follower.cut is None:
                return
            try:
                follower.leader_end = requests.offset_in(response)
            except BrokerError as error:
                self._put_off(follower, str(error))
                return
            may_be_part = follower.cut.then is Stage.FETCH and (
                follower.is_ahead or follower.leader_end <= follower.cut.offset
            )
            if (
                not may_be_part
                or _common_end(follower, follower.leader_end) <= follower.partition.log.start_offset
            ):
                self._decide(follower, is_same=True)

    def _on_last_entry(self, follower: FollowerPartition, last: int, response: FetchResponse) -> None:
        """Compare the last entry of the range that both logs should have: an epoch may have started twice."""
        with self._applying:
            if not self._is_compared(follower):
                return
            log, part = follower.partition.log, requests.entry_in(response)
            code, records = part.error_code, bytes(buffer_of(part.records)) if part.records else b""
            # Compaction may have removed all messages that the leader has committed.
            compacted = log.config.compacted and part.high_watermark > last
            answered = code == ErrorCode.NONE and (records or compacted)
            if code != ErrorCode.OFFSET_OUT_OF_RANGE and not answered:
                reason = "the leader returned no records for its last offset"
                self._put_off(follower, reason if code == ErrorCode.NONE else ErrorCode.of(code).name)
                follower.leader_end = None  # the leader may write meanwhile: its end is requested again
                return
            # If the leader has deleted the entry, nothing can differ.
            self._decide(follower, is_same=not records or has_entry(log, last, records))

    def _decide(self, follower: FollowerPartition, *, is_same: bool) -> None:
        """Choose what to do after the comparison, under the lock. ``is_same``: the common range is equal."""
        cut, leader_end, log = follower.cut, follower.leader_end, follower.partition.log
        assert cut is not None
        assert leader_end is not None
        follower.stage, follower.cut, follower.leader_end = Stage.CUT, None, None
        if is_same and cut.offset >= log.end_offset:
            self._broker.worker.submit(lambda: self._cut_now(follower, cut, compared=True))
            return
        if is_same and leader_end <= cut.offset and cut.then is Stage.FETCH:
            self._broker.worker.submit(lambda: self._take_over(follower, leader_end))
            return
        _log.error(
            "%s: committed messages %d to %d are not on its leader, broker %d, whose log has other messages "
            "and ends at offset %d: %s. The leader was elected although it was not in sync; check whether "
            "ZooKeeper was restored from an older copy",
            follower.name,
            cut.offset if is_same else log.start_offset,
            log.end_offset - 1,
            self.peer.address.broker_id,
            leader_end,
            "setting the log on this broker aside"
            if follower.is_ahead
            else "truncating them from the log on this broker",
        )
        self._broker.worker.submit(lambda: self._give_way(follower, cut))

    def _give_way(self, follower: FollowerPartition, cut: Cut) -> None:
        """Truncate the log or set it aside, since the leader has other messages. On the worker."""
        if not follower.is_ahead:
            self._cut_now(follower, cut, compared=True)
            return
        if self._is_followed(follower):
            self._owner.start_over(follower.name, self.peer.address)

    def _take_over(self, follower: FollowerPartition, leader_end: int) -> None:
        """Make this broker the leader: the leader's log is a prefix of this log. On the worker.

        The controller is notified of it as of a changed ISR, and informs all brokers.
        """
        known = follower.partition.leadership
        if not self._is_followed(follower) or known is None:
            return
        reason = "the leader's log ends before committed messages"
        try:
            self._write_lead(follower, known, leader_end)
        except (CoordinationLost, SessionExpired):
            raise
        except CoordinationError as error:
            reason = str(error)
        with self._applying:
            follower.begin()
            self._put_off(follower, reason)

    def _write_lead(self, follower: FollowerPartition, known: LeaderAndIsr, leader_end: int) -> None:
        states, own = self._broker.zk_client.states, self._broker.broker_id
        current = states.read({follower.name: known.replicas}).get(follower.name)
        if current is not None and (current.leader, current.leader_epoch) == (
            known.leader,
            follower.leader_epoch,
        ):
            wanted = replace(
                current,
                leader=own,
                leader_epoch=current.leader_epoch + 1,
                isr=(own,),
                version=current.version + 1,
            )
            if states.write({follower.name: wanted}).get(follower.name) == wanted:
                _log.warning(
                    "%s: broker %d takes over leadership from broker %d, whose log ends at offset %d, while "
                    "messages up to %d are committed on this broker: the old leader was elected although it "
                    "was not in sync; check whether ZooKeeper was restored from an older copy",
                    follower.name,
                    own,
                    known.leader,
                    leader_end,
                    follower.partition.log.end_offset - 1,
                )
            states.report_isr_changes([follower.name])

    def _on_offset(self, follower: FollowerPartition, response: Any) -> None:
        """Apply the end of the leader's log, and then its start if this log does not extend beyond it."""
        with self._applying:
            if not self._is_followed(follower):
                return
            log, leader_end = follower.partition.log, follower.leader_end
            try:
                offset = requests.offset_in(response)
            except BrokerError as error:
                self._put_off(follower, str(error))
                return
            if leader_end is not None:
                follower.leader_end = None
                if offset > log.end_offset:
                    self._cut_later(follower, offset, restart=True)
                else:
                    follower.stage = Stage.FETCH  # the leader's log has grown past this log's end meanwhile
            elif offset >= log.end_offset:
                follower.leader_end = offset
            else:
                _log.warning(
                    "the log of %s ends at offset %d on this broker and at %d on its leader, %s: truncating "
                    "the messages after that (the leader was elected although it was not in sync)",
                    follower.name,
                    log.end_offset,
                    offset,
                    self.peer.address,
                )
                self._cut_later(follower, offset, restart=offset < log.start_offset)

    # --- fetch responses ------------------------------------------------------------------------------------

    def _on_fetch_response(self, asked: Mapping[TopicPartition, FollowerPartition], response: Any) -> None:
        if not self._session.answered(response):
            return
        with self._applying:
            received: list[tuple[FollowerPartition, FetchPartitionResponse, FollowerRecords | None]] = []
            for tp, part in partitions_of(response.topics):
                follower = asked.get(tp)
                if follower is not None and self._is_followed(follower) and _is_reportable(follower, part):
                    copied = self._copied(follower, part)
                    put_off = follower.not_before_ms > self.clock.monotonic_ms()
                    if part.error_code == ErrorCode.NONE and follower.stage is Stage.FETCH and not put_off:
                        received.append((follower, part, copied))
            to_flush = self._broker.run(lambda: self._append(received))
            if self._broker.replication_quotas.follower.active:
                self._note_copied(
                    [copied for follower, _, copied in received if self._is_throttled(follower)]
                )
            for follower in to_flush:
                self._flush(follower)

    def _is_throttled(self, follower: FollowerPartition) -> bool:
        return self._broker.replication_quotas.follower.covers(follower.name)

    def _note_copied(self, copied: list[FollowerRecords | None]) -> None:
        count = sum(len(records.data) for records in copied if records is not None)
        if count:
            self._broker.replication_quotas.follower.record(count, self.clock.monotonic_ms())

    def _copied(self, follower: FollowerPartition, part: FetchPartitionResponse) -> FollowerRecords | None:
        """Return the records to append, None for none; put the partition off after an error."""
        code = part.error_code
        if code == ErrorCode.OFFSET_OUT_OF_RANGE:
            follower.stage = Stage.LOST
        elif code != ErrorCode.NONE:
            self._put_off(follower, ErrorCode.of(code).name)
        else:
            try:
                records = buffer_of(part.records)
                return replicated(records, follower.partition.log.end_offset) if len(records) else None
            except BrokerError as error:
                self._put_off(follower, f"the leader sent corrupt records: {error.detail}")
        return None

    def _append(
        self, received: list[tuple[FollowerPartition, FetchPartitionResponse, FollowerRecords | None]]
    ) -> list[FollowerPartition]:
        """Append the received records; return the partitions to be flushed. Called within a step."""
        to_flush = []
        for follower, part, copied in received:
            try:
                if copied is not None:
                    now_ms, epochs = self._broker.clock.now_ms(), follower.epoch_starts[::-1]
                    if follower.partition.append_as_follower(
                        copied, follower.leader_epoch, epochs=epochs, now_ms=now_ms
                    ):
                        to_flush.append(follower)
                    row = self._broker.metrics.topics.row(follower.name.topic)
                    row[REPLICATION_BYTES_IN] += len(copied.data)
                    # Partitions with data go last in the next request: the response size is limited.
                    self._followed[follower.name] = self._followed.pop(follower.name)
                follower.partition.check_follower(follower.leader_epoch)
                if follower.partition.update_high_watermark(part.high_watermark):
                    self._broker.touch(follower.name)  # consumers may read from this broker
                follower.behind = part.high_watermark > follower.partition.log.end_offset
                self._follow_start(follower, part.log_start_offset)
                follower.failures, follower.complaint = 0, ""
            except (BrokerError, StorageError) as error:
                self._put_off(follower, str(error))
        return to_flush

    def _follow_start(self, follower: FollowerPartition, start_offset: int) -> None:
        """Advance the log start offset to the leader's after a DeleteRecords request."""
        log = follower.partition.log
        wanted = min(start_offset, follower.partition.high_watermark)
        if log.start_offset < wanted:
            self._broker.worker.submit(lambda: self._start_now(follower, wanted))

    def _start_now(self, follower: FollowerPartition, offset: int) -> None:
        """Advance the log start offset, on the worker. The log may have been deleted or truncated since."""
        if self._is_followed(follower) and offset <= follower.partition.log.end_offset:
            self._broker.logs.increment_start_offset(follower.name, offset)

    def _is_safe(self, follower: FollowerPartition) -> bool:
        """Return True if the log is flushed up to its end, which the fetch offset reports as replicated."""
        if follower.partition.log.needs_flush():
            self._flush(follower)
        return not follower.partition.log.needs_flush()

    def _flush(self, follower: FollowerPartition) -> None:
        try:
            end_offset = follower.partition.log.flush()
        except StorageError as error:
            self._put_off(follower, str(error))
            return
        self._broker.run(lambda: follower.partition.complete_flush(end_offset))

    def _put_off(self, follower: FollowerPartition, reason: str) -> None:
        # A short pause at first: the leader may learn a moment after its followers that it leads.
        pause_ms = min(self._config.fetch_backoff_ms, _FIRST_PAUSE_MS << min(follower.failures, 10))
        follower.not_before_ms = self.clock.monotonic_ms() + pause_ms
        follower.failures += 1
        if follower.complaint != reason and pause_ms == self._config.fetch_backoff_ms:
            follower.complaint = reason
            _log.warning("failed to fetch %s from %s, retrying: %s", follower.name, self.peer.address, reason)


def _is_reportable(follower: FollowerPartition, part: FetchPartitionResponse) -> bool:
    """Return True if a partition of a response has anything new. Few partitions do."""
    partition = follower.partition
    return (
        part.error_code != ErrorCode.NONE
        or total_size([part.records or b""]) > 0
        or part.high_watermark != partition.high_watermark
        or part.log_start_offset > partition.log.start_offset
        or follower.failures > 0
        or follower.behind
    )


def _common_end(follower: FollowerPartition, leader_end: int) -> int:
    """Return the end of the range in which the logs should be equal."""
    assert follower.cut is not None
    return min(leader_end, follower.cut.offset, follower.partition.log.end_offset)
