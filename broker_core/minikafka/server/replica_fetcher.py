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
              as ZooKeeper was restored from an older copy, say. ListOffsets tells where its log ends. Where
              it has nothing of its own behind the cut this broker takes the lead over (``_take_over``)
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
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from minikafka.base.errors import (
    BrokerError,
    CoordinationError,
    CoordinationLost,
    ErrorCode,
    SessionExpired,
    StorageError,
)
from minikafka.base.ids import BrokerAddress, TopicPartition
from minikafka.log.epochs import UNKNOWN
from minikafka.net.port import Connector
from minikafka.partition.leadership import Leadership
from minikafka.partition.partition import Partition
from minikafka.records.replicated import ReplicatedSet, replicated
from minikafka.server import replica_requests as requests
from minikafka.server.broker import Broker
from minikafka.server.peer import Conversation, Peer
from minikafka.wire.apis.fetch import FETCH, FetchPartitionResponse
from minikafka.wire.apis.list_offsets import EARLIEST, LATEST, LIST_OFFSETS
from minikafka.wire.apis.offset_for_leader_epoch import OFFSET_FOR_LEADER_EPOCH, EpochPartitionResponse
from minikafka.wire.parts import buffer_of, total_size

_log = logging.getLogger(__name__)


_FIRST_PAUSE_MS = 10
"""After an error; twice as long after each further one, up to ``replica.fetch.backoff.ms``."""


class Stage(Enum):
    """What a partition waits for; see the module."""

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
class Followed:
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
    """Whether this log has newer epochs than ZooKeeper had: all of it counts as committed."""
    cut: Cut | None = None
    """In the stage COMPARE: what waits for the leader's end."""
    leader_end: int | None = None
    """Where the leader's log ends, in the stage LOST, once that was told."""
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


class ReplicaFetcher(Conversation):
    """Copies from one leading broker. ``step`` is for one thread; all else for any."""

    def __init__(self, broker: Broker, source: BrokerAddress, connector: Connector) -> None:
        name = f"broker-{broker.broker_id}-fetcher-{source.broker_id}"
        self._config = broker.config.replication
        super().__init__(Peer(source, connector, name), broker.clock, self._config.socket_timeout_ms)
        self._broker = broker
        self._applying = threading.Lock()
        """Held while an answer is applied, and by whoever changes what is followed."""
        self._followed: dict[TopicPartition, Followed] = {}
        self._handler: Callable[[Any], None] = lambda response: None
        self._session = requests.FetchSession()
        self._throttled_until_ms = 0
        """Partitions are left out until then, as what is copied is above its limit."""

    def __len__(self) -> int:
        return len(self._followed)

    def add(self, partition: Partition, leader_epoch: int, *, is_ahead: bool = False) -> None:
        """Follow a partition from now on. ``is_ahead``: see ``Followed``."""
        with self._applying:
            one = Followed(partition, leader_epoch, is_ahead=is_ahead)
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
            one = compared[0]
            asked_at = requests.offset_at(self._broker.broker_id, one.name, LATEST)
            self._send(LIST_OFFSETS, 1, asked_at, lambda response: self._end_told(one, response))
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

    def _unthrottled(self, fetching: list[Followed], now_ms: int) -> list[Followed]:
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

    def _ask_epochs(self, asking: list[Followed]) -> bool:
        version = self.peer.version(OFFSET_FOR_LEADER_EPOCH)
        asked: dict[TopicPartition, Followed] = {}
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

    def _epochs_told(self, asked: Mapping[TopicPartition, Followed], response: Any) -> None:
        with self._applying:
            for topic in response.topics:
                for part in topic.partitions:
                    one = asked.get(TopicPartition(topic.name, part.index))
                    if one is not None and self._followed.get(one.name) is one:
                        self._epoch_told(one, part)

    def _epoch_told(self, one: Followed, told: EpochPartitionResponse) -> None:
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
        own_epoch, own_end = log.end_of_epoch(epoch)
        if own_end == UNKNOWN:
            self._cut_later(one, one.safe_end())
            return
        if own_epoch == epoch:
            one.told += [entry for entry in log.epochs.entries if entry[0] == epoch and entry not in one.told]
        # Where the leader never had what this log has newest, both sides' newest common epoch decides.
        self._cut_later(one, min(told.end_offset, own_end), then_ask=own_epoch != epoch)

    def _cut_later(self, one: Followed, offset: int, *, anew: bool = False, then_ask: bool = False) -> None:
        one.stage = Stage.CUT
        cut = Cut(offset, anew, Stage.ASK if then_ask else Stage.FETCH)
        self._broker.worker.submit(lambda: self._cut_now(one, cut))

    def _cut_now(self, one: Followed, cut: Cut, *, compared: bool = False) -> None:
        """On the worker, as all that cuts logs."""
        if self._followed.get(one.name) is not one:
            return
        log = one.partition.log
        if not compared and self._would_lose(one, cut.offset):
            with self._applying:
                one.stage, one.cut = Stage.COMPARE, cut
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
                self._broker.run(one.partition.truncated)
        except StorageError as error:
            with self._applying:
                one.begin()
                self._put_off(one, str(error))
            return
        with self._applying:
            one.stage = cut.then
        self.wake()

    # --- leaders that were not in sync ----------------------------------------------------------------------

    def _would_lose(self, one: Followed, offset: int) -> bool:
        """Whether a cut takes what was committed, and nobody allowed that."""
        log = one.partition.log
        committed = log.end_offset if one.is_ahead else one.partition.high_watermark
        allowed = log.config.unclean_election or self._broker.config.beside_0_10
        return offset < min(committed, log.end_offset) and not allowed

    def _end_told(self, one: Followed, response: Any) -> None:
        with self._applying:
            cut = one.cut
            if self._followed.get(one.name) is not one or one.stage is not Stage.COMPARE or cut is None:
                return
            try:
                leader_end = requests.told_offset(response)
            except BrokerError as error:
                self._put_off(one, str(error))
                return
            one.stage, one.cut = Stage.CUT, None
        if leader_end <= cut.offset and cut.then is Stage.FETCH:
            self._broker.worker.submit(lambda: self._take_over(one, leader_end))
            return
        _log.error(
            "%s: messages %d to %d were committed, and are not on broker %d, which leads, has others in "
            "their place and ends at %d: they are cut from the log here. That broker was elected though it "
            "was not in sync; was ZooKeeper restored from an older copy?",
            one.name,
            cut.offset,
            one.partition.log.end_offset - 1,
            self.peer.address.broker_id,
            leader_end,
        )
        self._broker.worker.submit(lambda: self._cut_now(one, cut, compared=True))

    def _take_over(self, one: Followed, leader_end: int) -> None:
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

    def _write_lead(self, one: Followed, known: Leadership, leader_end: int) -> None:
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

    def _offset_told(self, one: Followed, response: Any) -> None:
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

    def _fetched(self, asked: Mapping[TopicPartition, Followed], response: Any) -> None:
        if not self._session.answered(response):
            return
        with self._applying:
            came: list[tuple[Followed, FetchPartitionResponse, ReplicatedSet | None]] = []
            for topic in response.topics:
                for part in topic.partitions:
                    one = asked.get(TopicPartition(topic.name, part.index))
                    if one is not None and self._followed.get(one.name) is one and _is_news(one, part):
                        copied = self._copied(one, part)
                        put_off = one.not_before_ms > self.clock.monotonic_ms()
                        if part.error_code == ErrorCode.NONE and one.stage is Stage.FETCH and not put_off:
                            came.append((one, part, copied))
            to_flush: list[Followed] = []
            self._broker.run(lambda: to_flush.extend(self._append(came)))
            if self._broker.throttles.follower.active:
                self._note_copied([copied for one, _, copied in came if self._is_throttled(one)])
            for one in to_flush:
                self._flush(one)

    def _is_throttled(self, one: Followed) -> bool:
        return self._broker.throttles.follower.covers(one.name)

    def _note_copied(self, copied: list[ReplicatedSet | None]) -> None:
        count = sum(len(one.data) for one in copied if one is not None)
        if count:
            self._broker.throttles.follower.record(count, self.clock.monotonic_ms())

    def _copied(self, one: Followed, part: FetchPartitionResponse) -> ReplicatedSet | None:
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
        self, came: list[tuple[Followed, FetchPartitionResponse, ReplicatedSet | None]]
    ) -> list[Followed]:
        """In a step: write what came; which logs have to be flushed."""
        to_flush = []
        for one, part, copied in came:
            try:
                if copied is not None:
                    now_ms, told = self._broker.clock.now_ms(), one.told[::-1]
                    if one.partition.replicate(copied, one.leader_epoch, epochs=told, now_ms=now_ms):
                        to_flush.append(one)
                    # Those that had something come last the next time: a response has its largest size.
                    self._followed[one.name] = self._followed.pop(one.name)
                one.partition.check_follower(one.leader_epoch)
                one.partition.learn_high_watermark(part.high_watermark)
                one.behind = part.high_watermark > one.partition.log.end_offset
                self._follow_start(one, part.log_start_offset)
                one.failures, one.complaint = 0, ""
            except (BrokerError, StorageError) as error:
                self._put_off(one, str(error))
        return to_flush

    def _follow_start(self, one: Followed, start_offset: int) -> None:
        """What the leader deleted at a user's wish is deleted here (DeleteRecords)."""
        log = one.partition.log
        wanted = min(start_offset, one.partition.high_watermark)
        if log.start_offset < wanted:
            self._broker.worker.submit(lambda: self._start_now(one, wanted))

    def _start_now(self, one: Followed, offset: int) -> None:
        """On the worker. The log may have been deleted, or cut, since."""
        if self._followed.get(one.name) is one and offset <= one.partition.log.end_offset:
            self._broker.logs.advance_start(one.name, offset)

    def _is_safe(self, one: Followed) -> bool:
        """Whether what is here may count as here, as the offset of a fetch says: a flush may have failed."""
        if one.partition.log.needs_flush():
            self._flush(one)
        return not one.partition.log.needs_flush()

    def _flush(self, one: Followed) -> None:
        try:
            end_offset = one.partition.log.flush()
        except StorageError as error:
            self._put_off(one, str(error))
            return
        self._broker.run(lambda: _told_flushed(one.partition, end_offset))

    def _put_off(self, one: Followed, reason: str) -> None:
        # Soon at first: the leader may hear a moment later than its followers that it leads.
        pause_ms = min(self._config.fetch_backoff_ms, _FIRST_PAUSE_MS << min(one.failures, 10))
        one.not_before_ms = self.clock.monotonic_ms() + pause_ms
        one.failures += 1
        if one.complaint != reason and pause_ms == self._config.fetch_backoff_ms:
            one.complaint = reason
            _log.warning(
                "%s is not copied from %s, it is tried again: %s", one.name, self.peer.address, reason
            )


def _is_news(one: Followed, part: FetchPartitionResponse) -> bool:
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


def _told_flushed(partition: Partition, end_offset: int) -> None:
    partition.flushed(end_offset)


class Fetchers:
    """All fetchers of a broker. ``spawn`` lets one run on a thread; None where somebody else steps them."""

    def __init__(
        self,
        broker: Broker,
        connector: Connector,
        spawn: Callable[[Conversation, str], None] | None,
    ) -> None:
        self._broker = broker
        self._connector = connector
        self._spawn = spawn
        self._fetchers: dict[tuple[BrokerAddress, int], ReplicaFetcher] = {}
        self._by_partition: dict[TopicPartition, ReplicaFetcher] = {}

    def follow(
        self, partition: Partition, leader: BrokerAddress, leader_epoch: int, *, is_ahead: bool = False
    ) -> None:
        """Copy a partition from ``leader`` from now on, and from nobody else. ``is_ahead``: see
        ``Followed``.
        """
        self.leave(partition.topic_partition)
        share = partition.topic_partition.partition % self._broker.config.replication.fetchers
        key = leader, share
        fetcher = self._fetchers.get(key)
        if fetcher is None:
            fetcher = ReplicaFetcher(self._broker, leader, self._connector)
            self._fetchers[key] = fetcher
            if self._spawn is not None:
                self._spawn(fetcher, f"fetcher-{leader.broker_id}-{share}")
        fetcher.add(partition, leader_epoch, is_ahead=is_ahead)
        self._by_partition[partition.topic_partition] = fetcher

    def leave(self, topic_partition: TopicPartition) -> None:
        """Copy a partition no longer. Once this has returned nothing more is written to it."""
        fetcher = self._by_partition.pop(topic_partition, None)
        if fetcher is not None:
            fetcher.remove(topic_partition)

    def sweep(self) -> None:
        """End the fetchers that have nothing to copy any more."""
        for key, fetcher in list(self._fetchers.items()):
            if not len(fetcher):
                fetcher.stop()
                del self._fetchers[key]

    def step(self) -> bool:
        """One step of each; whether any had something to do."""
        return any(tuple(fetcher.step() for fetcher in list(self._fetchers.values())))

    def stop(self) -> None:
        """Copy nothing any more."""
        for topic_partition in list(self._by_partition):
            self.leave(topic_partition)
        self.sweep()
