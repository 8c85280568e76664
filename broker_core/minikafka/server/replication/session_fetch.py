"""Fetches of sessions (KIP-227), of followers and consumers.

A session watches its partitions: ``Broker.touch`` reports all changes to it, and a fetch reads only what has
changed, so that its cost depends on the number of changes, not on the number of partitions. Between fetches a
session hears of each partition once, until a fetch has read it: sessions that are no longer used cost
nothing. The session cache is in ``server.core.fetch_sessions``.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from itertools import groupby

from minikafka.base.clock import NEVER_MS
from minikafka.base.errors import BrokerError, ErrorCode
from minikafka.base.ids import TOPIC_NAME_MAX_LENGTH, TopicPartition
from minikafka.log.checkpoints.leader_epochs import UNKNOWN
from minikafka.security.authorizer import Authorizer
from minikafka.server.context import RequestContext
from minikafka.server.core.broker import Broker, DelayedRequest
from minikafka.server.core.fetch_sessions import FetchSession
from minikafka.server.core.new_leaders import NewLeaders
from minikafka.server.replication.fetch_data import (
    FetchData,
    FetchPartitionData,
    error_response,
    has_more,
    log_id_error,
    max_wait_ms,
    partial_reads_of,
    partition_steps,
    read_partition,
    record_sent,
    topic_error,
    topic_id_error,
)
from minikafka.server.workers.work_pool import Steps, begin_here
from minikafka.wire.api import partitions_of
from minikafka.wire.apis.fetch import (
    FINAL_EPOCH,
    NEW_SESSION_EPOCH,
    NO_SESSION,
    READ_COMMITTED,
    TOPIC_IDS_SINCE,
    FetchPartition,
    FetchPartitionResponse,
    FetchRequest,
    FetchResponse,
    FetchTopicResponse,
)
from minikafka.wire.fields import ZERO_UUID

Parts = Mapping[TopicPartition, FetchPartition]

_STEP_PARTITIONS = 100


def note_follower(
    broker: Broker, replica_id: int, parts: Parts, topic_ids: Mapping[str, bytes] | None = None
) -> None:
    """Record a follower's fetch offsets: it has everything below them. Called within a step.

    ``topic_ids``: of the topics that the follower means, in versions with ids; another topic's log is not
    what it has.
    """
    now_ms = broker.clock.monotonic_ms()
    for topic_partition, part in parts.items():
        partition = broker.partitions.get(topic_partition)
        if partition is None:
            continue
        if topic_ids is not None and log_id_error(broker, topic_partition, topic_ids[topic_partition.topic]):
            continue
        try:
            partition.check_leader(part.current_leader_epoch)
            if part.last_fetched_epoch != UNKNOWN and partition.diverging_epoch(
                part.last_fetched_epoch, part.fetch_offset
            ):
                continue  # it has other messages
            followed = partition.update_follower_fetch_state(
                replica_id, part.fetch_offset, now_ms, part.log_start_offset
            )
        except BrokerError:
            continue  # the read that follows reports it
        if followed.high_watermark_advanced:
            broker.touch(topic_partition)
        if followed.proposed_isr is not None:
            broker.propose_isr(partition, followed.proposed_isr)


class WatchingSession(FetchSession):
    """A session with its watch: an operation that never completes, filed under partitions of the session to
    report their changes, until the cache removes the session.
    """

    def __init__(
        self, session_id: int, owner: str, now_ms: int, *, by_id: bool, broker: Broker, replica_id: int
    ) -> None:
        super().__init__(session_id, owner, now_ms, privileged=replica_id >= 0, by_id=by_id)
        self.waiting: _DelayedSessionFetch | None = None
        self.is_served = False
        """True from a request on until its response."""
        self._broker = broker
        self._replica_id = replica_id
        self._refreshed_ms = 0
        self._authorizer: Authorizer | None = broker.access_control.authorizer

    def take(self, request: FetchRequest, now_ms: int) -> None:
        """Apply the partitions of a request, which may be the first. Called within a step."""
        if self.by_id:
            cache = self._broker.metadata_cache
            named, forgotten = self.resolve(
                request.topics, request.forgotten_topics, cache.topics_by_id, cache.ids_changed
            )
        else:
            named = dict(partitions_of(request.topics))
            forgotten = [
                TopicPartition(topic.name, index)
                for topic in request.forgotten_topics
                for index in topic.partitions
            ]
        if self.is_served:
            # The request before will be refused: what it has read is read again.
            self.keep_changed(self.parts)
        self.is_served = True
        self.update(named, forgotten)
        authorizer = self._broker.access_control.authorizer
        if authorizer is not self._authorizer:
            # The permissions of each partition are checked again.
            self._authorizer = authorizer
            self.keep_changed(self.parts)
        self.watch_changed()
        for topic_partition in forgotten:
            self._broker.purgatory.unwatch(self, topic_partition)
        if self.privileged:
            self._note(named, now_ms)

    def _note(self, named: Parts, now_ms: int) -> None:
        refresh_ms = self._broker.config.replication.lag_time_max_ms // 4
        if now_ms - self._refreshed_ms >= refresh_ms:
            # The request fetches all partitions, though it names few: the follower is alive for all.
            self._refreshed_ms = now_ms
            named = self.parts
        note_follower(self._broker, self._replica_id, named, self.topic_ids if self.by_id else None)

    def watch_changed(self) -> None:
        """Watch the partitions that are read next. Called within a step."""
        self._broker.purgatory.watch(self, self.changed)

    def satisfied(self, key: Hashable | None = None) -> bool:
        """Mark a partition as changed, and complete the waiting fetch if it can be. Return False."""
        if not isinstance(key, TopicPartition) or key not in self.parts:
            return False
        self.changed[key] = None
        waiting, purgatory = self.waiting, self._broker.purgatory
        if not self.is_served:
            purgatory.unwatch(self, key)
        # A fetch that has timed out is being answered already.
        elif waiting is not None and waiting in purgatory and waiting.satisfied(key):
            purgatory.remove(waiting)
            self._broker.answer(waiting)
        return False

    def complete(self) -> None:
        """Do nothing; called when the broker stops."""

    def abandon(self, reason: str) -> None:
        """Do nothing; called when the broker stops."""


class _DelayedSessionFetch(DelayedRequest):
    """A fetch of a session, which may wait."""

    def __init__(
        self, broker: Broker, context: RequestContext, request: FetchRequest, session: WatchingSession
    ) -> None:
        """Called within the step that takes the request into the session, whose epoch it has."""
        super().__init__(broker, context)
        self._request = request
        self._session = session
        self._epoch = session.next_epoch
        self._all_data: FetchData = {}
        self._size = 0
        self._topic_ids = session.topic_ids
        self._unresolved = list(session.unresolved)
        self._is_final = bool(self._unresolved)
        self._throttled = False
        """True if a partition has no data because the leader's replication rate is above its limit."""

    def read_steps(self) -> Iterator[int]:
        """Read the partitions that have changed, in steps."""
        for count, topic_partition in enumerate(self._session.take_changed(), 1):
            part = self._session.parts.get(topic_partition)
            if part is not None:
                self._read(topic_partition, part)
            if count % _STEP_PARTITIONS == 0:
                yield 0

    def _read(self, topic_partition: TopicPartition, part: FetchPartition) -> None:
        before = self._all_data.pop(topic_partition, None)
        self._size -= 0 if before is None else before.size_bytes
        topic = topic_partition.topic
        denied = topic_error(self._context, self._request, topic)
        if denied is None:
            data = read_partition(
                self._broker,
                self._context,
                self._request,
                topic_partition,
                part,
                max(0, self._request.max_bytes - self._size),
                first=self._size == 0,
                topic_id=self._topic_ids.get(topic, ZERO_UUID),
            )
        else:
            data = FetchPartitionData(denied)
        self._is_final = self._is_final or data.is_final
        self._throttled = self._throttled or data.throttled
        if self._is_reportable(topic_partition, part, data):
            self._all_data[topic_partition] = data
            self._size += data.size_bytes

    def _is_reportable(
        self, topic_partition: TopicPartition, part: FetchPartition, data: FetchPartitionData
    ) -> bool:
        if data.is_final or data.size_bytes:
            return True
        if data.partition is not None and data.bound > part.fetch_offset:  # the response is full
            self._session.keep_changed([topic_partition])
        known = self._session.reported.get(topic_partition)
        return known != (data.high_watermark, data.log_start_offset)

    @property
    def can_be_answered(self) -> bool:
        """Return True if there is an error or the like, or as much data as the client wants."""
        return self._is_final or self._size >= self._request.min_bytes or self._request.max_wait_ms <= 0

    def satisfied(self, key: Hashable | None = None) -> bool:
        for _ in self.read_steps():
            pass
        return self.can_be_answered

    def max_wait_ms(self) -> int:
        """Return the maximum wait in milliseconds."""
        return max_wait_ms(
            self._broker, self._context, self._request, self._session.parts, throttled=self._throttled
        )

    def complete(self) -> None:
        broker = self._broker
        begin_here(broker.pool, self._context.exchange, broker.clock, self.answer_steps())

    def answer_steps(self) -> Steps:
        """Send the response, in steps."""
        session, broker, context = self._session, self._broker, self._context
        if session.waiting is self:
            session.waiting = None
        if session.next_epoch != self._epoch:
            # The client has sent the next request without this response, over another connection.
            _refuse(context, ErrorCode.INVALID_FETCH_SESSION_EPOCH)
            return
        session.is_served = False
        committed_only = self._request.isolation_level == READ_COMMITTED
        partial_reads = partial_reads_of(context.exchange, self._request)
        record_sent(broker, self._request, self._all_data)
        leaders = NewLeaders(broker, context.listener)
        answered: dict[str, list[FetchPartitionResponse]] = {}
        for count, (topic_partition, data) in enumerate(self._all_data.items(), 1):
            asked = session.parts.get(topic_partition)
            if asked is None:
                continue  # forgotten meanwhile
            # Records are not converted for clients that have sessions: they know all formats.
            given = yield from partition_steps(
                broker,
                context.version,
                topic_partition.topic,
                asked,
                data,
                0,
                leaders,
                committed_only=committed_only,
            )
            answered.setdefault(topic_partition.topic, []).append(given)
            if given.error_code == ErrorCode.NONE:
                session.reported[topic_partition] = data.high_watermark, data.log_start_offset
            else:
                session.reported.pop(topic_partition, None)
            if partial_reads is not None:
                partial_reads.record_response(topic_partition, has_more(data, given))
            if count % _STEP_PARTITIONS == 0:
                yield 0
        # Read again with the next fetch: the client may not have used this response.
        session.keep_changed(key for key, data in self._all_data.items() if data.size_bytes or data.is_final)
        topics = [
            FetchTopicResponse(topic, tuple(parts), topic_id=self._topic_ids.get(topic, ZERO_UUID))
            for topic, parts in answered.items()
        ]
        response = FetchResponse(
            0, ErrorCode.NONE, session.session_id, (*topics, *self._unresolved_topics()), leaders.endpoints()
        )
        # As in Kafka: clients do not take over a new session that comes without its partitions.
        session_id = NO_SESSION if self._is_first else session.session_id
        if not context.reply_to_fetch(response, FetchResponse(0, ErrorCode.NONE, session_id, ())):
            broker.run(self._note_withheld)

    def _unresolved_topics(self) -> Iterator[FetchTopicResponse]:
        """Yield the errors of unresolved partitions, which every response has."""
        for topic_id, keys in groupby(self._unresolved, lambda key: key[0]):
            topic = self._session.name_of(topic_id)
            denied = topic_error(self._context, self._request, topic)
            code = denied or topic_id_error(self._broker, topic, topic_id) or ErrorCode.INCONSISTENT_TOPIC_ID
            parts = tuple(error_response(index, code) for _, index in keys)
            yield FetchTopicResponse("", parts, topic_id=topic_id)

    @property
    def _is_first(self) -> bool:
        return self._request.session_epoch == NEW_SESSION_EPOCH

    def _note_withheld(self) -> None:
        """Undo what the response has changed in the session, as an empty one was sent. Called in a step."""
        session = self._session
        if self._is_first:
            self._broker.fetch_sessions.discard(session)
            return
        for topic_partition in self._all_data:
            session.reported.pop(topic_partition, None)
        session.keep_changed(key for key in self._all_data if key in session.parts)


def _refuse(context: RequestContext, code: ErrorCode) -> None:
    context.reply(FetchResponse(0, code, NO_SESSION, ()))


def _session_of(
    broker: Broker, context: RequestContext, request: FetchRequest
) -> WatchingSession | ErrorCode | None:
    """Return the session of a request, with the partitions that it names; None to serve it without one.

    Called within a step.
    """
    cache, now_ms = broker.fetch_sessions, broker.clock.monotonic_ms()
    owner, privileged = context.principal.name, request.follower_id >= 0
    by_id = context.version >= TOPIC_IDS_SINCE
    known: WatchingSession | None = cache.get(request.session_id, owner, privileged=privileged)
    # No topic has such a name, and many of them would take more memory than the cache allows for.
    too_long = any(len(topic.name) > TOPIC_NAME_MAX_LENGTH for topic in request.topics)
    if request.session_epoch in {NEW_SESSION_EPOCH, FINAL_EPOCH}:
        if known is not None:
            cache.remove(known)
        if request.session_epoch == FINAL_EPOCH or too_long:
            return None
        session = _new_session(broker, owner, request, by_id=by_id)
        if session is None:
            return None
    elif known is None:
        return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    elif known.next_epoch != request.session_epoch:
        return ErrorCode.INVALID_FETCH_SESSION_EPOCH
    elif known.by_id != by_id:
        return ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    elif too_long:
        cache.remove(known)
        return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    else:
        session = known
        session.advance()
    session.take(request, now_ms)
    if known is session and not session.size:
        cache.remove(session)
        return None
    if not cache.touch(session, now_ms):
        return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    return session


def _new_session(broker: Broker, owner: str, request: FetchRequest, *, by_id: bool) -> WatchingSession | None:
    now_ms, replica_id = broker.clock.monotonic_ms(), request.follower_id

    def make(session_id: int) -> WatchingSession:
        return WatchingSession(session_id, owner, now_ms, by_id=by_id, broker=broker, replica_id=replica_id)

    size, privileged = sum(len(topic.partitions) for topic in request.topics), replica_id >= 0
    session: WatchingSession | None = broker.fetch_sessions.create(make, size, now_ms, privileged=privileged)
    if session is not None:
        broker.purgatory.add(session, (), NEVER_MS)
    return session


def serve_in_session(broker: Broker, context: RequestContext, request: FetchRequest) -> bool:
    """Serve one fetch of a session, at once or when a partition has changed. Return False for a request
    without a session, which is not served then.
    """
    if request.session_id == NO_SESSION and request.session_epoch == FINAL_EPOCH:
        return False

    def begin() -> tuple[WatchingSession, _DelayedSessionFetch] | ErrorCode | None:
        session = _session_of(broker, context, request)
        if session is None or isinstance(session, ErrorCode):
            return session
        return session, _DelayedSessionFetch(broker, context, request, session)

    begun = broker.run(begin)
    if begun is None:
        return False
    if isinstance(begun, ErrorCode):
        _refuse(context, begun)
        return True
    session, operation = begun
    begin_here(broker.pool, context.exchange, broker.clock, _serve(broker, operation, session))
    return True


def _serve(broker: Broker, operation: _DelayedSessionFetch, session: WatchingSession) -> Steps:
    # Logs are read without the core's lock. Only a fetch that must wait checks for missed changes under it.
    yield from operation.read_steps()
    if operation.can_be_answered:
        yield from operation.answer_steps()
        return
    wait_ms = operation.max_wait_ms()

    def step() -> None:
        session.watch_changed()
        if session.changed and operation.satisfied():
            broker.answer(operation)
        else:
            session.waiting = operation
            broker.wait(operation, [], broker.clock.monotonic_ms() + wait_ms)

    broker.run(step)
