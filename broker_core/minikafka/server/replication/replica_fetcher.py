"""Following: what this broker copies from the leaders of partitions that it has replicas of.

There is a ``ReplicaFetcher`` for each leading broker (``num.replica.fetchers`` of them, each with its share
of the partitions), with one connection and one request under way. A partition that comes to be followed goes
through these stages:

    ASK       the leader is asked where its epochs end (OffsetForLeaderEpoch; KIP-101, KIP-279): from the one
              before its own down to one that this log knows, too. So this log learns where all of them begin,
              also of messages that do not tell their epoch (formats 0 and 1). Where none is found, or the
              leader has no such API (0.10.1), the high watermark stands for the answer
    CUT       the log is cut where it differs from the leader's, by the control path's worker
    FETCH     fetches from the log's end; what comes is appended as it is
    COMPARE   a cut would take messages that were committed: the leader was elected though it was not in sync,
              as ZooKeeper was restored from an older copy, say. ListOffsets tells where its log ends, and a
              fetch what is last in it. Where it has nothing of its own this broker takes the lead over
              (``_take_over``). Otherwise the log here is cut; one that is ahead of ZooKeeper is set aside
    LOST      the leader does not have the log's end: ListOffsets tells where it begins and ends, and the log
              is cut, or begun anew at the leader's start

Answers are applied under the fetcher's own lock, so that nothing is appended to a partition once ``remove``
has returned, and within a step of the core's, which refuses what comes from a leader that is one no longer.

Text: followers of the replication text; ``ReplicaFetcherThread`` of 0.10.1.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Protocol

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
from minikafka.server.replication import replica_requests as requests
from minikafka.server.replication.follower_partition import Cut, FollowerPartition, Stage, has_entry
from minikafka.wire.apis.fetch import FETCH, FetchPartitionResponse, FetchResponse
from minikafka.wire.apis.list_offsets import EARLIEST, LATEST, LIST_OFFSETS
from minikafka.wire.apis.offset_for_leader_epoch import OFFSET_FOR_LEADER_EPOCH, EpochPartitionResponse
from minikafka.wire.frame_parts import buffer_of, total_size

_log = logging.getLogger(__name__)


_FIRST_PAUSE_MS = 10
"""After an error; twice as long after each further one, up to ``replica.fetch.backoff.ms``."""


class Owner(Protocol):
    """Who has the logs opened that are copied to. Called on the worker."""

    def start_over(self, topic_partition: TopicPartition, leader: BrokerAddress) -> None:
        """Set the log here aside, and have the leader's copied whole."""

    def agreed(self, topic_partition: TopicPartition) -> None:
        """The log here has nothing any more that the leader's has not."""


class ReplicaFetcher(InterBrokerConnection):
    """Copies from one leading broker. ``step`` is for one thread; all else for any."""

    def __init__(self, broker: Broker, source: BrokerAddress, connector: Connector, owner: Owner) -> None:
        name = f"broker-{broker.broker_id}-fetcher-{source.broker_id}"
        self._owner = owner
        self._config = broker.config.replication
        super().__init__(Peer(source, connector, name), broker.clock, self._config.socket_timeout_ms)
        self._broker = broker
        self._applying = threading.Lock()
        """Held while an answer is applied, and by whoever changes what is followed."""
        self._followed: dict[TopicPartition, FollowerPartition] = {}
        self._handler: Callable[[Any], None] = lambda response: None
        self._session = requests.FetchSession()
        self._throttled_until_ms = 0
        """Partitions are left out until then, as what is copied is above its limit."""

    def __len__(self) -> int:
        return len(self._followed)

    def add(self, partition: Partition, leader_epoch: int, *, is_ahead: bool = False) -> None:
        """Follow a partition from now on. ``is_ahead``: see ``FollowerPartition``."""
        with self._applying:
            one = FollowerPartition(partition, leader_epoch, is_ahead=is_ahead)
            self._followed[partition.topic_partition] = one
            one.begin()
            self._session.follow_anew(one.name)
        self.wake()

    def remove(self, topic_partition: TopicPartition) -> None:
        """Follow a partition no longer: once this has returned nothing more is written."""
        with self._applying:
            self._followed.pop(topic_partition, None)

    # --- the conversation -----------------------------------------------------------------------------------

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

    def next_ms(self) -> int | None:
        now_ms = self.clock.monotonic_ms()
        later = [one.not_before_ms for one in list(self._followed.values())]
        return min((at for at in (self._throttled_until_ms, *later) if at > now_ms), default=None)

    def _ask_for(self, now_ms: int) -> bool:
        for name in tuple(self._broker.unwritable):
            if name in self._followed:
                self._followed[name].not_before_ms = now_ms + self._config.fetch_backoff_ms
        ready = [one for one in self._followed.values() if now_ms >= one.not_before_ms]
        asking = [one for one in ready if one.stage is Stage.ASK]
        if asking:
            return self._ask_epochs(asking)
        compared = [one for one in ready if one.stage is Stage.COMPARE]
        if compared:
            self._compare(compared[0])
            return True
        lost = [one for one in ready if one.stage is Stage.LOST]
        if lost:
            one = lost[0]
            time = LATEST if one.leader_end is None else EARLIEST
            asked_at = requests.offset_at(self._broker.broker_id, one.name, time)
            self._send(LIST_OFFSETS, 1, asked_at, lambda response: self._offset_told(one, response))
            return True
        fetching = [one for one in ready if one.stage is Stage.FETCH and self._is_safe(one)]
        if self._broker.throttles.follower.active:
            fetching = self._unthrottled(fetching, now_ms)
        if not fetching:
            return False
        version = self.peer.version(FETCH)
        asked = {one.name: one for one in fetching}
        wanted = [(one.name, one.leader_epoch, one.partition.log) for one in fetching]
        parts = requests.fetch_parts(wanted, self._config)
        request = self._session.request(self._broker.broker_id, parts, self._config)
        self._send(FETCH, version, request, lambda response: self._fetched(asked, response))
        return True

    def _unthrottled(self, fetching: list[FollowerPartition], now_ms: int) -> list[FollowerPartition]:
        """Those that need not wait for the rate of replication."""
        quota = self._broker.throttles.follower
        pause_ms = quota.pause_ms(now_ms)
        if not pause_ms:
            return fetching
        self._throttled_until_ms = now_ms + pause_ms
        return [one for one in fetching if not (one.behind and quota.covers(one.name))]

    def _send(self, api: Any, version: int, request: Any, handler: Callable[[Any], None]) -> None:
        self._handler = handler
        self.peer.send(api, version, request)

    # --- where the logs part --------------------------------------------------------------------------------

    def _ask_epochs(self, asking: list[FollowerPartition]) -> bool:
        version = self.peer.version(OFFSET_FOR_LEADER_EPOCH)
        asked: dict[TopicPartition, FollowerPartition] = {}
        for one in asking:
            if version == 0:
                one.told = []
                self._cut_later(one, one.safe_end())
            elif one.asked_epoch == UNKNOWN:
                one.note_beginning(0)  # of epoch 0, before which there was nothing
                self._cut_later(one, one.safe_end())
            else:
                asked[one.name] = one
        if asked:
            request = requests.epoch_ends(
                [(one.name, one.leader_epoch, one.asked_epoch) for one in asked.values()]
            )
            self._send(
                OFFSET_FOR_LEADER_EPOCH, version, request, lambda response: self._epochs_told(asked, response)
            )
        return True

    def _epochs_told(self, asked: Mapping[TopicPartition, FollowerPartition], response: Any) -> None:
        with self._applying:
            for topic in response.topics:
                for part in topic.partitions:
                    one = asked.get(TopicPartition(topic.name, part.index))
                    if one is not None and self._followed.get(one.name) is one:
                        self._epoch_told(one, part)

    def _epoch_told(self, one: FollowerPartition, told: EpochPartitionResponse) -> None:
        """The leader's newest epoch up to the one asked for, and its end."""
        if told.error_code != ErrorCode.NONE:
            self._put_off(one, ErrorCode.of(told.error_code).name)
            return
        log = one.partition.log
        known, epoch = log.epochs.latest, told.leader_epoch
        if told.end_offset == UNKNOWN or not one.note_beginning(told.end_offset):
            self._cut_later(one, one.safe_end())
            return
        one.above, one.asked_epoch = epoch, epoch - 1
        if epoch > known:
            return  # this log may have nothing of it: asked further
        own_epoch, own_end = log.end_offset_for_epoch(epoch)
        if own_end == UNKNOWN:
            self._cut_later(one, one.safe_end())
            return
        if own_epoch == epoch:
            one.told += [entry for entry in log.epochs.entries if entry[0] == epoch and entry not in one.told]
        # Where the leader never had what this log has newest, both sides' newest common epoch decides.
        self._cut_later(one, min(told.end_offset, own_end), then_ask=own_epoch != epoch)

    def _cut_later(
        self, one: FollowerPartition, offset: int, *, anew: bool = False, then_ask: bool = False
    ) -> None:
        one.stage = Stage.CUT
        cut = Cut(offset, anew, Stage.ASK if then_ask else Stage.FETCH)
        self._broker.worker.submit(lambda: self._cut_now(one, cut))

    def _cut_now(self, one: FollowerPartition, cut: Cut, *, compared: bool = False) -> None:
        """On the worker, as all that cuts logs."""
        if self._followed.get(one.name) is not one:
            return
        log = one.partition.log
        if not compared and self._must_compare(one, cut):
            with self._applying:
                one.stage, one.cut, one.leader_end = Stage.COMPARE, cut, None
            self.wake()
            return
        try:
            if cut.anew or cut.offset < log.end_offset:
                _log.info(
                    "%s is cut from offset %d to %d to follow %s",
                    one.name,
                    log.end_offset,
                    cut.offset,
                    self.peer.address,
                )
                self._broker.logs.truncate(one.name, cut.offset, anew=cut.anew)
                self._broker.run(one.partition.complete_truncation)
        except StorageError as error:
            with self._applying:
                one.begin()
                self._put_off(one, str(error))
            return
        if cut.then is Stage.FETCH:
            one.is_ahead = False
            self._owner.agreed(one.name)
        with self._applying:
            one.stage = cut.then
        self.wake()

    # --- leaders that were not in sync ----------------------------------------------------------------------

    def _must_compare(self, one: FollowerPartition, cut: Cut) -> bool:
        """Whether a cut takes what was committed, and nobody allowed that; or whether the leader may have
        other messages under epochs of the log here.
        """
        log = one.partition.log
        committed = log.end_offset if one.is_ahead else one.partition.high_watermark
        if log.config.unclean_election or self._broker.config.beside_0_10:
            return False
        doubtful = one.is_ahead and cut.then is Stage.FETCH and log.end_offset > log.start_offset
        return doubtful or cut.offset < min(committed, log.end_offset)

    def _compare(self, one: FollowerPartition) -> None:
        """Ask where the leader's log ends, and then what is last in what both have."""
        leader_end = one.leader_end
        if leader_end is None:
            asked_at = requests.offset_at(self._broker.broker_id, one.name, LATEST)
            self._send(LIST_OFFSETS, 1, asked_at, lambda response: self._end_told(one, response))
            return
        last = _common_end(one, leader_end) - 1
        request = requests.one_entry(one.name, one.leader_epoch, last)
        version = self.peer.version(FETCH)
        self._send(FETCH, version, request, lambda response: self._last_told(one, last, response))

    def _is_compared(self, one: FollowerPartition) -> bool:
        return self._followed.get(one.name) is one and one.stage is Stage.COMPARE and one.cut is not None

    def _end_told(self, one: FollowerPartition, response: Any) -> None:
        with self._applying:
            if not self._is_compared(one) or one.cut is None:
                return
            try:
                one.leader_end = requests.told_offset(response)
            except BrokerError as error:
                self._put_off(one, str(error))
                return
            may_be_part = one.cut.then is Stage.FETCH and (one.is_ahead or one.leader_end <= one.cut.offset)
            if not may_be_part or _common_end(one, one.leader_end) <= one.partition.log.start_offset:
                self._decide(one, is_same=True)

    def _last_told(self, one: FollowerPartition, last: int, response: FetchResponse) -> None:
        """The last entry of what both logs should have: an epoch may have begun twice."""
        with self._applying:
            if not self._is_compared(one):
                return
            log, part = one.partition.log, requests.told_entry(response)
            code, records = part.error_code, bytes(buffer_of(part.records)) if part.records else b""
            # Compaction may have left nothing of what the leader has committed.
            compacted = log.config.compacted and part.high_watermark > last
            answered = code == ErrorCode.NONE and (records or compacted)
            if code != ErrorCode.OFFSET_OUT_OF_RANGE and not answered:
                reason = "the leader does not give its last message"
                self._put_off(one, reason if code == ErrorCode.NONE else ErrorCode.of(code).name)
                one.leader_end = None  # it may write meanwhile: its end is asked for again
                return
            # Where the leader has deleted it, nothing is left to differ.
            self._decide(one, is_same=not records or has_entry(log, last, records))

    def _decide(self, one: FollowerPartition, *, is_same: bool) -> None:
        """Under the lock. ``is_same``: whether the logs are the same as far as both go."""
        cut, leader_end, log = one.cut, one.leader_end, one.partition.log
        assert cut is not None
        assert leader_end is not None
        one.stage, one.cut, one.leader_end = Stage.CUT, None, None
        if is_same and cut.offset >= log.end_offset:
            self._broker.worker.submit(lambda: self._cut_now(one, cut, compared=True))
            return
        if is_same and leader_end <= cut.offset and cut.then is Stage.FETCH:
            self._broker.worker.submit(lambda: self._take_over(one, leader_end))
            return
        _log.error(
            "%s: messages %d to %d were committed, and are not on broker %d, which leads, has others in "
            "their place and ends at %d: %s. That broker was elected though it was not in sync; was "
            "ZooKeeper restored from an older copy?",
            one.name,
            cut.offset if is_same else log.start_offset,
            log.end_offset - 1,
            self.peer.address.broker_id,
            leader_end,
            "the log here is set aside" if one.is_ahead else "they are cut from the log here",
        )
        self._broker.worker.submit(lambda: self._give_way(one, cut))

    def _give_way(self, one: FollowerPartition, cut: Cut) -> None:
        """On the worker: the leader has other messages."""
        if not one.is_ahead:
            self._cut_now(one, cut, compared=True)
            return
        if self._followed.get(one.name) is one:
            self._owner.start_over(one.name, self.peer.address)

    def _take_over(self, one: FollowerPartition, leader_end: int) -> None:
        """Have this broker lead, on the worker: the log of the leader is a part of the one here. The
        controller hears of it as of an ISR that was changed, and tells all.
        """
        known = one.partition.leadership
        if self._followed.get(one.name) is not one or known is None:
            return
        reason = "the leader has less than was committed"
        try:
            self._write_lead(one, known, leader_end)
        except (CoordinationLost, SessionExpired):
            raise
        except CoordinationError as error:
            reason = str(error)
        with self._applying:
            one.begin()
            self._put_off(one, reason)

    def _write_lead(self, one: FollowerPartition, known: LeaderAndIsr, leader_end: int) -> None:
        states, own = self._broker.registrar.states, self._broker.broker_id
        current = states.read({one.name: known.replicas}).get(one.name)
        if current is not None and (current.leader, current.leader_epoch) == (known.leader, one.leader_epoch):
            wanted = replace(
                current,
                leader=own,
                leader_epoch=current.leader_epoch + 1,
                isr=(own,),
                version=current.version + 1,
            )
            if states.write({one.name: wanted}).get(one.name) == wanted:
                _log.warning(
                    "%s: broker %d takes the lead over from broker %d, whose log ends at %d, and messages up "
                    "to %d were committed here: it was elected though it was not in sync; was ZooKeeper "
                    "restored from an older copy?",
                    one.name,
                    own,
                    known.leader,
                    leader_end,
                    one.partition.log.end_offset - 1,
                )
            states.tell_changes([one.name])

    def _offset_told(self, one: FollowerPartition, response: Any) -> None:
        """First the leader's end, then, where this log does not reach beyond that, its start."""
        with self._applying:
            if self._followed.get(one.name) is not one:
                return
            log, leader_end = one.partition.log, one.leader_end
            try:
                offset = requests.told_offset(response)
            except BrokerError as error:
                self._put_off(one, str(error))
                return
            if leader_end is not None:
                one.leader_end = None
                if offset > log.end_offset:
                    self._cut_later(one, offset, anew=True)
                else:
                    one.stage = Stage.FETCH  # it has grown over this log's end meanwhile
            elif offset >= log.end_offset:
                one.leader_end = offset
            else:
                _log.warning(
                    "%s ends at %d here and at %d on its leader, %s: what is behind that goes (that one was "
                    "elected though it was not in sync)",
                    one.name,
                    log.end_offset,
                    offset,
                    self.peer.address,
                )
                self._cut_later(one, offset, anew=offset < log.start_offset)

    # --- what comes -----------------------------------------------------------------------------------------

    def _fetched(self, asked: Mapping[TopicPartition, FollowerPartition], response: Any) -> None:
        if not self._session.answered(response):
            return
        with self._applying:
            came: list[tuple[FollowerPartition, FetchPartitionResponse, FollowerRecords | None]] = []
            for topic in response.topics:
                for part in topic.partitions:
                    one = asked.get(TopicPartition(topic.name, part.index))
                    if one is not None and self._followed.get(one.name) is one and _is_news(one, part):
                        copied = self._copied(one, part)
                        put_off = one.not_before_ms > self.clock.monotonic_ms()
                        if part.error_code == ErrorCode.NONE and one.stage is Stage.FETCH and not put_off:
                            came.append((one, part, copied))
            to_flush: list[FollowerPartition] = []
            self._broker.run(lambda: to_flush.extend(self._append(came)))
            if self._broker.throttles.follower.active:
                self._note_copied([copied for one, _, copied in came if self._is_throttled(one)])
            for one in to_flush:
                self._flush(one)

    def _is_throttled(self, one: FollowerPartition) -> bool:
        return self._broker.throttles.follower.covers(one.name)

    def _note_copied(self, copied: list[FollowerRecords | None]) -> None:
        count = sum(len(one.data) for one in copied if one is not None)
        if count:
            self._broker.throttles.follower.record(count, self.clock.monotonic_ms())

    def _copied(self, one: FollowerPartition, part: FetchPartitionResponse) -> FollowerRecords | None:
        """What may be appended; what cannot be is put off."""
        code = part.error_code
        if code == ErrorCode.OFFSET_OUT_OF_RANGE:
            one.stage = Stage.LOST
        elif code != ErrorCode.NONE:
            self._put_off(one, ErrorCode.of(code).name)
        else:
            try:
                records = buffer_of(part.records)
                return replicated(records, one.partition.log.end_offset) if len(records) else None
            except BrokerError as error:
                self._put_off(one, f"what its leader gives is damaged: {error.detail}")
        return None

    def _append(
        self, came: list[tuple[FollowerPartition, FetchPartitionResponse, FollowerRecords | None]]
    ) -> list[FollowerPartition]:
        """In a step: write what came; which logs have to be flushed."""
        to_flush = []
        for one, part, copied in came:
            try:
                if copied is not None:
                    now_ms, told = self._broker.clock.now_ms(), one.told[::-1]
                    if one.partition.append_as_follower(copied, one.leader_epoch, epochs=told, now_ms=now_ms):
                        to_flush.append(one)
                    # Those that had something come last the next time: a response has its largest size.
                    self._followed[one.name] = self._followed.pop(one.name)
                one.partition.check_follower(one.leader_epoch)
                one.partition.update_high_watermark(part.high_watermark)
                one.behind = part.high_watermark > one.partition.log.end_offset
                self._follow_start(one, part.log_start_offset)
                one.failures, one.complaint = 0, ""
            except (BrokerError, StorageError) as error:
                self._put_off(one, str(error))
        return to_flush

    def _follow_start(self, one: FollowerPartition, start_offset: int) -> None:
        """What the leader deleted at a user's wish is deleted here (DeleteRecords)."""
        log = one.partition.log
        wanted = min(start_offset, one.partition.high_watermark)
        if log.start_offset < wanted:
            self._broker.worker.submit(lambda: self._start_now(one, wanted))

    def _start_now(self, one: FollowerPartition, offset: int) -> None:
        """On the worker. The log may have been deleted, or cut, since."""
        if self._followed.get(one.name) is one and offset <= one.partition.log.end_offset:
            self._broker.logs.increment_start_offset(one.name, offset)

    def _is_safe(self, one: FollowerPartition) -> bool:
        """Whether what is here may count as here, as the offset of a fetch says: a flush may have failed."""
        if one.partition.log.needs_flush():
            self._flush(one)
        return not one.partition.log.needs_flush()

    def _flush(self, one: FollowerPartition) -> None:
        try:
            end_offset = one.partition.log.flush()
        except StorageError as error:
            self._put_off(one, str(error))
            return
        self._broker.run(lambda: _told_flushed(one.partition, end_offset))

    def _put_off(self, one: FollowerPartition, reason: str) -> None:
        # Soon at first: the leader may hear a moment later than its followers that it leads.
        pause_ms = min(self._config.fetch_backoff_ms, _FIRST_PAUSE_MS << min(one.failures, 10))
        one.not_before_ms = self.clock.monotonic_ms() + pause_ms
        one.failures += 1
        if one.complaint != reason and pause_ms == self._config.fetch_backoff_ms:
            one.complaint = reason
            _log.warning(
                "%s is not copied from %s, it is tried again: %s", one.name, self.peer.address, reason
            )


def _is_news(one: FollowerPartition, part: FetchPartitionResponse) -> bool:
    """Whether an answer says anything that this broker does not know: of many partitions few do."""
    partition = one.partition
    return (
        part.error_code != ErrorCode.NONE
        or total_size([part.records or b""]) > 0
        or part.high_watermark != partition.high_watermark
        or part.log_start_offset > partition.log.start_offset
        or one.failures > 0
        or one.behind
    )


def _common_end(one: FollowerPartition, leader_end: int) -> int:
    """Up to where the logs should be the same."""
    assert one.cut is not None
    return min(leader_end, one.cut.offset, one.partition.log.end_offset)


def _told_flushed(partition: Partition, end_offset: int) -> None:
    partition.complete_flush(end_offset)
