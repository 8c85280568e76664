"""Fetches of followers, in sessions: a follower names a partition once, and again when it asks for something
else of it; it is answered about those partitions that have news (KIP-227).

A session belongs to a connection, and goes with it. It keeps what was asked of each partition, and which of
them may have news since they were looked at last: it is told of all that happens to them (``Broker.touch``),
so that a fetch costs what has happened, not what is followed. Consumers have no sessions: they ask for few
partitions.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from itertools import count
from weakref import ref

from minikafka.base.errors import BrokerError, ErrorCode
from minikafka.base.ids import TopicPartition
from minikafka.server.context import RequestContext
from minikafka.server.core.broker import Broker
from minikafka.server.replication.fetch_shares import (
    Share,
    Shares,
    note_given,
    part_steps,
    patience_ms,
    read_share,
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
    """What is asked of each partition."""
    return {TopicPartition(topic.name, part.index): part for topic in topics for part in topic.partitions}


def note_follower(broker: Broker, replica_id: int, parts: Parts) -> None:
    """In a step: a follower asks for these, so it has what lies below."""
    now_ms = broker.clock.monotonic_ms()
    for topic_partition, part in parts.items():
        partition = broker.partitions.get(topic_partition)
        if partition is None:
            continue
        try:
            partition.check_leader(part.current_leader_epoch)
            followed = partition.update_follower_fetch_state(replica_id, part.fetch_offset, now_ms)
        except BrokerError:
            continue  # who reads meets it again
        if followed.high_watermark_advanced:
            broker.touch(topic_partition)
        if followed.proposed_isr is not None:
            broker.propose_isr(partition, followed.proposed_isr)


class _Ear:
    """A ticket that waits for ever, under all partitions of a session: that is how the session hears of them.
    It ends when the session does, with its connection.
    """

    def __init__(self, broker: Broker, session: FollowerSession) -> None:
        self._broker = broker
        self._session = ref(session)

    def satisfied(self, key: Hashable | None = None) -> bool:
        """Never, but what waits in the session may be."""
        session = self._session()
        if session is None:
            self._broker.waiting.remove(self)
        elif isinstance(key, TopicPartition):
            session.hear(key)
        return False

    def complete(self) -> None:
        """The broker stops."""

    def abandon(self, reason: str) -> None:
        """The broker stops."""


class FollowerSession:
    """What one follower asks for over one connection."""

    def __init__(self, broker: Broker, replica_id: int) -> None:
        self.session_id = next(_IDS) % _EPOCHS + 1
        self.next_epoch = 1
        self.parts: dict[TopicPartition, FetchPartition] = {}
        self.told: dict[TopicPartition, tuple[int, int]] = {}
        """High watermark and log start as the follower knows them."""
        self.waiting: _FollowerTicket | None = None
        self._broker = broker
        self._replica_id = replica_id
        self._news: dict[TopicPartition, None] = {}
        self._refreshed_ms = 0
        self._ear = _Ear(broker, self)

    def take(self, request: FetchRequest) -> None:
        """In a step: take over what a request says, which may be the first."""
        changed = parts_of(request.topics)
        gone = [
            TopicPartition(one.name, index) for one in request.forgotten_topics for index in one.partitions
        ]
        others = not changed.keys() <= self.parts.keys() or bool(gone)
        for topic_partition, part in changed.items():
            known = self.parts.get(topic_partition)
            if known is not None and part.fetch_offset <= known.fetch_offset:
                # It follows anew, perhaps in another epoch, and took nothing of what came meanwhile.
                self.told.pop(topic_partition, None)
        self.parts.update(changed)
        self._news.update(dict.fromkeys(changed))
        for topic_partition in gone:
            for table in (self.parts, self.told, self._news):
                table.pop(topic_partition, None)
        if others:
            self._broker.waiting.remove(self._ear)
            self._broker.waiting.add(self._ear, self.parts, _NEVER_MS)
        now_ms = self._broker.clock.monotonic_ms()
        refresh_ms = self._broker.config.replication.lag_time_max_ms // 4
        if now_ms - self._refreshed_ms >= refresh_ms:
            # It asks for all of them, though it names few: it is there.
            self._refreshed_ms = now_ms
            changed = self.parts
        note_follower(self._broker, self._replica_id, changed)

    def take_news(self) -> Iterator[TopicPartition]:
        """The partitions to be looked at. What happens to one once it is given makes it one of the next."""
        for topic_partition in list(self._news):
            self._news.pop(topic_partition, None)
            yield topic_partition

    def keep(self, topic_partitions: Iterable[TopicPartition]) -> None:
        """These have more to give."""
        self._news.update(dict.fromkeys(topic_partitions))

    @property
    def has_news(self) -> bool:
        """Whether something happened since ``take_news``."""
        return bool(self._news)

    def hear(self, topic_partition: TopicPartition) -> None:
        """In a step: something happened to a partition."""
        if topic_partition in self.parts:
            self._news[topic_partition] = None
            waiting = self.waiting
            # One whose time is up is being answered already.
            if waiting is not None and waiting in self._broker.waiting and waiting.satisfied(topic_partition):
                self._broker.waiting.remove(waiting)
                self._broker.answer(waiting)


class _FollowerTicket:
    """A fetch of a session that waits for news."""

    def __init__(
        self, broker: Broker, context: RequestContext, request: FetchRequest, session: FollowerSession
    ) -> None:
        self._broker = broker
        self._context = context
        self._request = request
        self._session = session
        self._shares: Shares = {}
        self._size = 0
        self._failed = False
        self._throttled: Share | None = None
        """One that gives nothing only as the rate of replication is above its limit."""

    def satisfied(self, key: Hashable | None = None) -> bool:
        session = self._session
        for topic_partition in session.take_news():
            part = session.parts.get(topic_partition)
            if part is None:
                continue
            before = self._shares.pop(topic_partition, None)
            self._size -= 0 if before is None else before.size_bytes
            left = max(0, self._request.max_bytes - self._size)
            share = read_share(
                self._broker,
                self._context.version,
                self._request,
                topic_partition,
                part,
                left,
                first=self._size == 0,
            )
            self._failed = self._failed or share.error_code is not ErrorCode.NONE
            self._throttled = share if share.throttled else self._throttled
            if self._is_news(topic_partition, share):
                self._shares[topic_partition] = share
                self._size += share.size_bytes
        return self._failed or self._size >= self._request.min_bytes

    def _is_news(self, topic_partition: TopicPartition, share: Share) -> bool:
        if share.error_code is not ErrorCode.NONE or share.size_bytes:
            return True
        more = share.partition is not None and share.bound > self._session.parts[topic_partition].fetch_offset
        if more:  # the response is full
            self._session.keep([topic_partition])
        return self._session.told.get(topic_partition) != (share.high_watermark, share.log_start_offset)

    def patience_ms(self) -> int:
        """How long it waits at most."""
        return patience_ms(self._broker, self._request, () if self._throttled is None else (self._throttled,))

    def complete(self) -> None:
        session = self._session
        session.waiting = None
        note_given(self._broker, self._request, self._shares)
        answered: dict[str, list[FetchPartitionResponse]] = {}
        for (topic, index), share in self._shares.items():
            asked = session.parts.get(TopicPartition(topic, index))
            if asked is None:
                continue  # forgotten meanwhile
            # Nothing is converted for followers that have sessions: they know all formats.
            given = finish(
                part_steps(self._broker, self._context.version, topic, asked, share, 0, committed_only=False)
            )
            answered.setdefault(topic, []).append(given)
            if given.error_code == ErrorCode.NONE:
                session.told[TopicPartition(topic, index)] = share.high_watermark, share.log_start_offset
        # Looked at again: the follower may not have taken what it was sent.
        session.keep(key for key, share in self._shares.items() if share.size_bytes or share.error_code)
        topics = tuple(FetchTopicResponse(topic, tuple(parts)) for topic, parts in answered.items())
        self._context.reply(FetchResponse(0, ErrorCode.NONE, session.session_id, topics))

    def abandon(self, reason: str) -> None:
        self._context.exchange.close(reason)


def serve_follower(broker: Broker, context: RequestContext, request: FetchRequest) -> None:
    """Serve one request of a follower's session, now or when there are news."""
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
    ticket = _FollowerTicket(broker, context, request, current)
    # Logs are read without the core's lock. Only who has to wait asks under it whether something was missed.
    if ticket.satisfied() or request.max_wait_ms <= 0:
        ticket.complete()
        return
    wait_ms = ticket.patience_ms()

    def step() -> None:
        if current.has_news and ticket.satisfied():
            broker.answer(ticket)
        else:
            current.waiting = ticket
            broker.wait(ticket, [], broker.clock.monotonic_ms() + wait_ms)

    broker.run(step)
