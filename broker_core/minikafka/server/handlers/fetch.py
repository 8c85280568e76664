"""Fetch: message sets of partitions that this broker leads, straight from the files.

Versions: 1 adds throttle_time_ms, 2 allows magic 1, 3 adds max_bytes for the whole response and keeps the
partitions' order, 4 allows magic 2 and adds the isolation level with what belongs to it, 5 the log start
offset, 7 sessions, 9 leader epochs, 10 allows zstd. Newer messages are converted down: versions 0 and 1 get
magic 0, 2 and 3 magic 1; zstd before version 10 is UNSUPPORTED_COMPRESSION_TYPE. Sessions are declined: the
session id in answers is 0, so that a client names all its partitions each time. Behaviour
    The response waits until ``min_bytes`` are there, at most ``max_wait_ms`` and as long as a connection may
    be idle; an error of any partition is answered at once, and naming one twice is an error. Up to version 2
    a partition's share is cut at ``partition_max_bytes`` even within a message; from version 3 on the first
    partition that has anything gives at least one whole message. Messages at and above the high watermark are
    not given. A consumer that was given a part of other partitions, and does not name them, waits less
    (``partition.catching_up``). A follower, which names itself as ``replica_id``, is given all that there
    is; the offsets that it asks for tell what it has, which moves the high watermark. What is converted down,
    which takes memory, is at most as much as a request may hold, and so any message.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Hashable

from minikafka.base.errors import BrokerError, ErrorCode, StorageError
from minikafka.base.files import FileSlice
from minikafka.base.ids import TopicPartition
from minikafka.base.values import fast_value
from minikafka.log.reading import LogRead
from minikafka.log.transactions import aborted_transactions
from minikafka.net.server import Exchange
from minikafka.partition.catching_up import CatchingUp
from minikafka.partition.partition import Partition
from minikafka.records.conversion import down_convert
from minikafka.server.broker import Broker
from minikafka.server.context import RequestContext
from minikafka.wire.apis.fetch import (
    FINAL_EPOCH,
    NEW_SESSION_EPOCH,
    NO_SESSION,
    READ_COMMITTED,
    AbortedTransaction,
    FetchPartition,
    FetchPartitionResponse,
    FetchRequest,
    FetchResponse,
    FetchTopicResponse,
)
from minikafka.wire.parts import Part

_log = logging.getLogger(__name__)

NO_OFFSET = -1
MAGIC_1_SINCE = 2
"""The version whose consumers know messages of magic 1."""
MAGIC_2_SINCE = 4
"""The version whose consumers know batches of magic 2."""
ZSTD_SINCE = 10
"""The version whose consumers know zstd."""
FILLING = struct.pack(">qi", -1, 0x7FFFFFFF)
"""The beginning of a message, in place of entries of which older formats have nothing (marks of
transactions): an empty answer would say that the log ends here. Kafka from 2.0 on does the same."""


@fast_value
class _Share:
    """What one partition gives."""

    error_code: ErrorCode
    high_watermark: int = NO_OFFSET
    last_stable_offset: int = NO_OFFSET
    log_start_offset: int = NO_OFFSET
    read: LogRead | None = None
    partition: Partition | None = None
    bound: int = NO_OFFSET
    """What could be read ended there."""

    @property
    def size_bytes(self) -> int:
        return self.read.size_bytes if self.read is not None else 0


_Shares = dict[TopicPartition, _Share]


class _FetchTicket:
    """A fetch that waits for more bytes."""

    def __init__(self, broker: Broker, context: RequestContext, request: FetchRequest) -> None:
        self._broker = broker
        self._context = context
        self._request = request
        self._shares: _Shares = {}
        self._size = 0
        self._asked: dict[Hashable, FetchPartition] = {}
        """What is asked of each partition, once the request waits."""

    def satisfied(self, key: Hashable | None = None) -> bool:
        asked = self._asked.get(key) if self._context.version >= MAGIC_2_SINCE else None
        if asked is None:
            self._shares = _collect(self._broker, self._context.version, self._request)
            self._size = sum(share.size_bytes for share in self._shares.values())
            failed = any(share.error_code is not ErrorCode.NONE for share in self._shares.values())
            return failed or self._size >= self._request.min_bytes
        # A follower names a thousand partitions, and something happens to one.
        topic_partition = TopicPartition(*key)  # type: ignore[misc]
        others = self._size - self._shares[topic_partition].size_bytes
        left = max(0, self._request.max_bytes - others)
        share = _read(self._broker, self._request, topic_partition, asked, left, others == 0)
        self._shares[topic_partition] = share
        self._size = others + share.size_bytes
        return share.error_code is not ErrorCode.NONE or self._size >= self._request.min_bytes

    def outdated(self) -> bool:
        """Whether there may be more than ``satisfied`` found, or less."""
        partitions = self._broker.partitions
        return any(
            share.partition is None
            or share.partition is not partitions.get(topic_partition)
            or _bound(self._request, share.partition) != share.bound
            for topic_partition, share in self._shares.items()
        )

    def complete(self) -> None:
        _answer(self._broker, self._context, self._request, self._shares)

    def abandon(self, reason: str) -> None:
        self._context.exchange.close(reason)

    def keys(self) -> list[Hashable]:
        for topic in self._request.topics:
            for part in topic.partitions:
                self._asked[TopicPartition(topic.name, part.index)] = part
        return list(self._shares)

    def patience_ms(self) -> int:
        """How long it waits at most."""
        # Nobody notices that a client has gone while its request waits.
        most_ms = min(self._request.max_wait_ms, self._broker.config.connection_idle_max_ms)
        catching_up = _catching_up(self._context.exchange, self._request)
        if catching_up is None:
            return most_ms
        return catching_up.patience_ms(self._shares, most_ms, self._broker.clock.monotonic_ms())


def handle(broker: Broker, context: RequestContext, request: FetchRequest) -> None:
    """Serve one fetch request, now or when there is enough."""
    if request.session_epoch not in {FINAL_EPOCH, NEW_SESSION_EPOCH}:
        # Of a session, of which there is none here.
        code = ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        context.reply(FetchResponse(throttle_time_ms=0, error_code=code, session_id=NO_SESSION, topics=()))
        return
    if request.replica_id >= 0:
        _note_follower(broker, request)
    ticket = _FetchTicket(broker, context, request)
    # Logs are read without the core's lock. Only who has to wait asks under it whether something was missed.
    if ticket.satisfied() or request.max_wait_ms <= 0:
        ticket.complete()
        return
    patience_ms = ticket.patience_ms()

    def step() -> None:
        if ticket.outdated() and ticket.satisfied():
            broker.answer(ticket)
        else:
            broker.wait(ticket, ticket.keys(), broker.clock.monotonic_ms() + patience_ms)

    broker.run(step)


def _note_follower(broker: Broker, request: FetchRequest) -> None:
    """A follower asks: it has what lies below."""

    def step() -> None:
        now_ms = broker.clock.monotonic_ms()
        for topic in request.topics:
            for part in topic.partitions:
                partition = broker.partitions.get(TopicPartition(topic.name, part.index))
                if partition is None:
                    continue
                try:
                    partition.check_leader(part.current_leader_epoch)
                    followed = partition.followed(request.replica_id, part.fetch_offset, now_ms)
                except BrokerError:
                    continue  # who reads meets it again
                if followed.moved:
                    broker.touch(partition.topic_partition)
                if followed.wanted is not None:
                    broker.isr_wanted(partition, followed.wanted)

    broker.run(step)


def _bound(request: FetchRequest, partition: Partition) -> int:
    """Up to where whoever asks may read."""
    return partition.log.end_offset if request.replica_id >= 0 else partition.high_watermark


def _catching_up(exchange: Exchange, request: FetchRequest) -> CatchingUp | None:
    """What is known of the connection; None where a replica asks."""
    if request.replica_id >= 0:
        return None
    found: CatchingUp | None = exchange.memory.get(__name__)
    if found is None:
        found = exchange.memory[__name__] = CatchingUp()
    return found


def _collect(broker: Broker, version: int, request: FetchRequest) -> _Shares:
    shares: _Shares = {}
    left = request.max_bytes
    memory_left = broker.config.request_max_bytes
    nothing_yet = True
    for topic in request.topics:
        for part in topic.partitions:
            topic_partition = TopicPartition(topic.name, part.index)
            if topic_partition in shares:
                shares[topic_partition] = _Share(ErrorCode.INVALID_REQUEST)
                continue
            whole = version >= 3 and nothing_yet
            share = _read(broker, request, topic_partition, part, max(0, left), whole)
            if _takes_memory(version, share):
                if share.size_bytes > memory_left:
                    limit = max(0, min(left, memory_left))
                    share = _read(broker, request, topic_partition, part, limit, whole)
                memory_left -= share.size_bytes
            shares[topic_partition] = share
            left -= share.size_bytes
            nothing_yet = nothing_yet and share.size_bytes == 0
    return shares


def _takes_memory(version: int, share: _Share) -> bool:
    """Whether it is to be converted down."""
    if version >= MAGIC_2_SINCE or share.read is None or not share.size_bytes:
        return False
    try:
        return version < MAGIC_1_SINCE or not share.read.is_classic()
    except StorageError:
        return False  # who makes the answer meets it again


def _read(
    broker: Broker,
    request: FetchRequest,
    topic_partition: TopicPartition,
    part: FetchPartition,
    left: int,
    whole_message: bool,
) -> _Share:
    try:
        partition = broker.partition(topic_partition)
        # Before the read, which has all that lies below them.
        last_stable_offset, high_watermark = partition.last_stable_offset, partition.high_watermark
        bound = _bound(request, partition)
        if part.fetch_offset == bound:
            # Most of what a follower asks for, and who waits at the end: there is nothing to look up.
            partition.check_leader(part.current_leader_epoch)
            read = LogRead(None, bound)
        else:
            read = partition.read(
                part.fetch_offset,
                min(left, part.partition_max_bytes),
                at_least_one=whole_message,
                committed_only=request.isolation_level == READ_COMMITTED,
                leader_epoch=part.current_leader_epoch,
                for_replica=request.replica_id >= 0,
            )
    except BrokerError as error:
        return _Share(error.code)
    except StorageError as error:
        _log.error("fetch from %s at %d failed: %s", topic_partition, part.fetch_offset, error)
        return _Share(ErrorCode.KAFKA_STORAGE_ERROR)
    start_offset = partition.log.start_offset
    return _Share(ErrorCode.NONE, high_watermark, last_stable_offset, start_offset, read, partition, bound)


def _answer(broker: Broker, context: RequestContext, request: FetchRequest, shares: _Shares) -> None:
    version, most = context.version, broker.config.request_max_bytes
    committed_only = request.isolation_level == READ_COMMITTED
    catching_up = _catching_up(context.exchange, request)
    topics = []
    for topic in request.topics:
        partitions = []
        for part in topic.partitions:
            topic_partition = TopicPartition(topic.name, part.index)
            share = shares[topic_partition]
            given = _part(version, topic.name, part.index, share, most, committed_only=committed_only)
            partitions.append(given)
            if catching_up is not None:
                more = share.read is not None and share.read.more and given.error_code == ErrorCode.NONE
                catching_up.given(topic_partition, more)
        topics.append(FetchTopicResponse(name=topic.name, partitions=tuple(partitions)))
    context.reply(
        FetchResponse(
            throttle_time_ms=0, error_code=ErrorCode.NONE, session_id=NO_SESSION, topics=tuple(topics)
        )
    )


def _records(version: int, read: LogRead, records: FileSlice, max_bytes: int) -> Part:
    """``max_bytes`` is what may be read to be converted down."""
    if version >= MAGIC_2_SINCE:
        if version < ZSTD_SINCE and read.has_zstd():
            raise BrokerError(
                ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
                f"batches are compressed with zstd, which Fetch {version} does not know",
            )
        return records
    if version >= MAGIC_1_SINCE and read.is_classic():
        return records
    part = records.part(0, min(records.length, max_bytes))
    return down_convert(part.read(), int(version >= MAGIC_1_SINCE)) or FILLING


def _part(
    version: int, topic: str, index: int, share: _Share, convert_max_bytes: int, *, committed_only: bool
) -> FetchPartitionResponse:
    code = share.error_code
    sent: Part = b""
    aborted: tuple[AbortedTransaction, ...] | None = () if committed_only else None
    if share.read is not None and share.read.slice is not None:
        try:
            sent = _records(version, share.read, share.read.slice, convert_max_bytes)
            if committed_only and share.partition is not None:
                found = aborted_transactions(share.partition.log, share.read, share.high_watermark)
                aborted = tuple(AbortedTransaction(*one) for one in found)
        except BrokerError as error:
            sent = b""
            level = logging.ERROR if error.code is ErrorCode.CORRUPT_MESSAGE else logging.INFO
            _log.log(level, "%s-%d cannot be given in Fetch %d: %s", topic, index, version, error)
            code = error.code
        except StorageError as error:
            sent = b""
            _log.error("%s-%d cannot be read: %s", topic, index, error)
            code = ErrorCode.KAFKA_STORAGE_ERROR
    return FetchPartitionResponse(
        index=index,
        error_code=code,
        high_watermark=share.high_watermark,
        last_stable_offset=share.last_stable_offset,
        log_start_offset=share.log_start_offset,
        aborted_transactions=aborted,
        records=sent,
    )
