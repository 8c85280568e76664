"""Fetch sessions of followers (KIP-227).

A follower sends a partition once, and again when its fetch position changes; the response has the partitions
that have changed.

A session belongs to a connection and ends with it. It keeps the fetch position of each partition and the set
of partitions that may have changed since they were last read. ``Broker.touch`` reports all changes to it, so
that the cost of a fetch depends on the number of changes, not on the number of followed partitions. Consumers
have no sessions: they fetch few partitions.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from itertools import count
from weakref import ref

from minikafka.base.errors import BrokerError, ErrorCode
from minikafka.base.ids import TopicPartition
from minikafka.server.context import RequestContext
from minikafka.server.core.broker import Broker, DelayedRequest
from minikafka.server.replication.fetch_data import (
    FetchData,
    FetchPartitionData,
    max_wait_ms,
    partition_steps,
    read_partition,
    record_sent,
)
from minikafka.server.workers.work_pool import finish
from minikafka.wire.apis.fetch import (
    NEW_SESSION_EPOCH,
    NO_SESSION,
    FetchPartition,
    FetchPartitionResponse,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    FetchTopicResponse,
)

Parts = Mapping[TopicPartition, FetchPartition]

_EPOCHS = 0x7FFFFFFF
_NEVER_MS = 1 << 62
_IDS = count(1)


def parts_of(topics: Iterable[FetchTopic]) -> dict[TopicPartition, FetchPartition]:
    """Return the fetch position of each partition of a request."""
    return {TopicPartition(topic.name, part.index): part for topic in topics for part in topic.partitions}


def note_follower(broker: Broker, replica_id: int, parts: Parts) -> None:
    """Record a follower's fetch offsets: it has everything below them. Called within a step."""
    now_ms = broker.clock.monotonic_ms()
    for topic_partition, part in parts.items():
        partition = broker.partitions.get(topic_partition)
        if partition is None:
            continue
        try:
            partition.check_leader(part.current_leader_epoch)
            followed = partition.update_follower_fetch_state(replica_id, part.fetch_offset, now_ms)
        except BrokerError:
            continue  # the read that follows reports it
        if followed.high_watermark_advanced:
            broker.touch(topic_partition)
        if followed.proposed_isr is not None:
            broker.propose_isr(partition, followed.proposed_isr)


class _ChangeListener:
    """An operation that never completes, filed under all partitions of a session to report their changes.

    It is removed when the session ends with its connection.
    """

    def __init__(self, broker: Broker, session: FollowerSession) -> None:
        self._broker = broker
        self._session = ref(session)

    def satisfied(self, key: Hashable | None = None) -> bool:
        """Report the change to the session, which may complete its fetch. Return False."""
        session = self._session()
        if session is None:
            self._broker.purgatory.remove(self)
        elif isinstance(key, TopicPartition):
            session.partition_changed(key)
        return False

    def complete(self) -> None:
        """Do nothing; called when the broker stops."""

    def abandon(self, reason: str) -> None:
        """Do nothing; called when the broker stops."""


class FollowerSession:
    """The fetch session of one follower over one connection."""

    def __init__(self, broker: Broker, replica_id: int) -> None:
        self.session_id = next(_IDS) % _EPOCHS + 1
        self.next_epoch = 1
        self.parts: dict[TopicPartition, FetchPartition] = {}
        self.reported: dict[TopicPartition, tuple[int, int]] = {}
        """The high watermark and log start offset that were last sent to the follower."""
        self.waiting: _DelayedFollowerFetch | None = None
        self._broker = broker
        self._replica_id = replica_id
        self._changed: dict[TopicPartition, None] = {}
        self._refreshed_ms = 0
        self._listener = _ChangeListener(broker, self)

    def take(self, request: FetchRequest) -> None:
        """Apply the partitions of a request, which may be the first. Called within a step."""
        changed = parts_of(request.topics)
        forgotten = [
            TopicPartition(topic.name, index)
            for topic in request.forgotten_topics
            for index in topic.partitions
        ]
        others = not changed.keys() <= self.parts.keys() or bool(forgotten)
        for topic_partition, part in changed.items():
            known = self.parts.get(topic_partition)
            if known is not None and part.fetch_offset <= known.fetch_offset:
                # It follows again, perhaps in another epoch, and has not used the responses since.
                self.reported.pop(topic_partition, None)
        self.parts.update(changed)
        self._changed.update(dict.fromkeys(changed))
        for topic_partition in forgotten:
            for table in (self.parts, self.reported, self._changed):
                table.pop(topic_partition, None)
        if others:
            self._broker.purgatory.remove(self._listener)
            self._broker.purgatory.add(self._listener, self.parts, _NEVER_MS)
        now_ms = self._broker.clock.monotonic_ms()
        refresh_ms = self._broker.config.replication.lag_time_max_ms // 4
        if now_ms - self._refreshed_ms >= refresh_ms:
            # The request fetches all partitions, though it names few: the follower is alive for all.
            self._refreshed_ms = now_ms
            changed = self.parts
        note_follower(self._broker, self._replica_id, changed)

    def take_changed(self) -> Iterator[TopicPartition]:
        """Yield and remove the changed partitions. A change after the yield adds the partition again."""
        for topic_partition in list(self._changed):
            self._changed.pop(topic_partition, None)
            yield topic_partition

    def keep_changed(self, topic_partitions: Iterable[TopicPartition]) -> None:
        """Mark partitions as changed: they have more data than was sent."""
        self._changed.update(dict.fromkeys(topic_partitions))

    @property
    def has_changed(self) -> bool:
        """Return True if a partition has changed since ``take_changed``."""
        return bool(self._changed)

    def partition_changed(self, topic_partition: TopicPartition) -> None:
        """Mark a partition as changed, and complete the delayed fetch if it can be. Called within a step."""
        if topic_partition in self.parts:
            self._changed[topic_partition] = None
            waiting = self.waiting
            # A fetch that has timed out is being answered already.
            if (
                waiting is not None
                and waiting in self._broker.purgatory
                and waiting.satisfied(topic_partition)
            ):
                self._broker.purgatory.remove(waiting)
                self._broker.answer(waiting)


class _DelayedFollowerFetch(DelayedRequest):
    """A delayed fetch of a session."""

    def __init__(
        self, broker: Broker, context: RequestContext, request: FetchRequest, session: FollowerSession
    ) -> None:
        super().__init__(broker, context)
        self._request = request
        self._session = session
        self._all_data: FetchData = {}
        self._size = 0
        self._failed = False
        self._throttled: FetchPartitionData | None = None
        """A partition without data because the replication rate is above its limit."""

    def satisfied(self, key: Hashable | None = None) -> bool:
        session = self._session
        for topic_partition in session.take_changed():
            part = session.parts.get(topic_partition)
            if part is None:
                continue
            before = self._all_data.pop(topic_partition, None)
            self._size -= 0 if before is None else before.size_bytes
            left = max(0, self._request.max_bytes - self._size)
            data = read_partition(
                self._broker,
                self._context.version,
                self._request,
                topic_partition,
                part,
                left,
                first=self._size == 0,
            )
            self._failed = self._failed or data.error_code is not ErrorCode.NONE
            self._throttled = data if data.throttled else self._throttled
            if self._is_reportable(topic_partition, data):
                self._all_data[topic_partition] = data
                self._size += data.size_bytes
        return self._failed or self._size >= self._request.min_bytes

    def _is_reportable(self, topic_partition: TopicPartition, data: FetchPartitionData) -> bool:
        if data.error_code is not ErrorCode.NONE or data.size_bytes:
            return True
        more = data.partition is not None and data.bound > self._session.parts[topic_partition].fetch_offset
        if more:  # the response is full
            self._session.keep_changed([topic_partition])
        known = self._session.reported.get(topic_partition)
        return known != (data.high_watermark, data.log_start_offset)

    def max_wait_ms(self) -> int:
        """Return the maximum wait in milliseconds."""
        return max_wait_ms(self._broker, self._request, () if self._throttled is None else (self._throttled,))

    def complete(self) -> None:
        session = self._session
        session.waiting = None
        record_sent(self._broker, self._request, self._all_data)
        answered: dict[str, list[FetchPartitionResponse]] = {}
        for (topic, index), data in self._all_data.items():
            asked = session.parts.get(TopicPartition(topic, index))
            if asked is None:
                continue  # forgotten meanwhile
            # Records are not converted for followers that have sessions: they know all formats.
            given = finish(
                partition_steps(
                    self._broker, self._context.version, topic, asked, data, 0, committed_only=False
                )
            )
            answered.setdefault(topic, []).append(given)
            if given.error_code == ErrorCode.NONE:
                session.reported[TopicPartition(topic, index)] = data.high_watermark, data.log_start_offset
        # Read again with the next fetch: the follower may not have used this response.
        session.keep_changed(
            key for key, data in self._all_data.items() if data.size_bytes or data.error_code
        )
        topics = tuple(FetchTopicResponse(topic, tuple(parts)) for topic, parts in answered.items())
        self._context.reply(FetchResponse(0, ErrorCode.NONE, session.session_id, topics))


def serve_follower(broker: Broker, context: RequestContext, request: FetchRequest) -> None:
    """Serve one fetch of a follower's session, at once or when a partition has changed."""
    memory = context.exchange.memory
    session: FollowerSession | None = memory.get(__name__)
    if request.session_epoch == NEW_SESSION_EPOCH:
        session = memory[__name__] = FollowerSession(broker, request.replica_id)
    elif session is None or session.session_id != request.session_id:
        context.reply(FetchResponse(0, ErrorCode.FETCH_SESSION_ID_NOT_FOUND, NO_SESSION, ()))
        return
    elif session.next_epoch != request.session_epoch:
        context.reply(FetchResponse(0, ErrorCode.INVALID_FETCH_SESSION_EPOCH, NO_SESSION, ()))
        return
    else:
        session.next_epoch = session.next_epoch % _EPOCHS + 1
    current = session
    broker.run(lambda: current.take(request))
    operation = _DelayedFollowerFetch(broker, context, request, current)
    # Logs are read without the core's lock. Only a fetch that must wait checks for missed changes under it.
    if operation.satisfied() or request.max_wait_ms <= 0:
        operation.complete()
        return
    wait_ms = operation.max_wait_ms()

    def step() -> None:
        if current.has_changed and operation.satisfied():
            broker.answer(operation)
        else:
            current.waiting = operation
            broker.wait(operation, [], broker.clock.monotonic_ms() + wait_ms)

    broker.run(step)
