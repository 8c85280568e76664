"""Fetch sessions (KIP-227), and the cache that bounds them.

A client that has a session sends a partition once, and again when its fetch position changes; the response
has the partitions that have changed. A session outlives its connection: each request names it, and the epoch
that follows that of the request before.

The cache has ``max.incremental.fetch.session.cache.slots``. A client for which there is none fetches all of
its partitions each time. For a new session another one is evicted, as in Kafka: the least recently used if it
has been unused for ``EVICTION_MS``; otherwise the smallest, if it is smaller than the new one and was made
more than ``EVICTION_MS`` ago. Followers are privileged: they evict a consumer's session of any size and age,
and no consumer evicts theirs unless it is unused. Unlike in Kafka, the partitions of all sessions together
are bounded too, and a session belongs to its principal.

Since Fetch 13 a client names topics by their ids. A session by ids learns the name of each id once, as in
Kafka: an id whose topic is deleted keeps its name, so that the errors tell deleted topics, and those that
were made again, from unknown ids.

Pure: time and ids are passed in.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Generic, TypeVar

from minikafka.base.ids import TopicPartition
from minikafka.wire.apis.fetch import (
    NO_SESSION,
    FetchPartition,
    FetchTopic,
    ForgottenTopic,
    next_session_epoch,
)

EVICTION_MS = 120_000
MOST_PARTITIONS = 250_000
"""The partitions of all sessions together. Each takes about 1 KB."""


class FetchSession:
    """The fetch positions of one session, and the partitions that have changed since they were read."""

    def __init__(
        self, session_id: int, owner: str, now_ms: int, *, privileged: bool, by_id: bool = False
    ) -> None:
        """``owner``: the name of the principal. ``privileged``: of a follower. ``by_id``: topics are named by
        their ids.
        """
        self.session_id = session_id
        self.owner = owner
        self.privileged = privileged
        self.by_id = by_id
        self.created_ms = self.last_used_ms = now_ms
        self.next_epoch = 1
        self.parts: dict[TopicPartition, FetchPartition] = {}
        self.reported: dict[TopicPartition, tuple[int, int]] = {}
        """The high watermark and log start offset that were last sent."""
        self.changed: dict[TopicPartition, None] = {}
        """Partitions that may have changed since they were last read, in the order in which to read them."""
        self.topic_ids: Mapping[str, bytes] = {}
        """Topic -> the id of its ``parts``, in a session by ids. Never changed, but replaced."""
        self.unresolved: dict[tuple[bytes, int], FetchPartition] = {}
        """(Topic id, partition) -> the part, of ids that are unknown, or whose topic was made again, with the
        id that ``parts`` has."""
        self._resolved_at = 0
        """The ``ids_changed`` at which the ``unresolved`` were last looked up. ``topics_by_id`` is not kept:
        it would stay in memory with each session that nobody uses any more."""
        self._names: dict[bytes, str] = {}
        """Topic id -> the topic that has or had it."""
        self.counted = 0
        """The partitions that the cache has counted."""

    @property
    def size(self) -> int:
        """The number of its partitions."""
        return len(self.parts) + len(self.unresolved)

    @property
    def weight(self) -> int:
        """The number that counts in the cache: of its partitions, or of the names that it knows, if more."""
        return max(self.size, len(self._names))

    def name_of(self, topic_id: bytes) -> str:
        """Return the name of a topic id, "" if it is unknown."""
        return self._names.get(topic_id, "")

    def resolve(
        self,
        topics: Iterable[FetchTopic],
        forgotten: Iterable[ForgottenTopic],
        topics_by_id: Mapping[bytes, str],
        ids_changed: int,
    ) -> tuple[dict[TopicPartition, FetchPartition], list[TopicPartition]]:
        """Return the partitions that a request by ids names and forgets, for ``update``; keep those that are
        unresolved. ``topics_by_id``: topic id -> its topic; ``ids_changed``: another number if they changed.
        """
        rows: list[tuple[bytes, FetchPartition]] = []
        if ids_changed != self._resolved_at:
            rows += ((topic_id, part) for (topic_id, _), part in self.unresolved.items())
            self.unresolved, self._resolved_at = {}, ids_changed
        rows += ((topic.topic_id, part) for topic in topics for part in topic.partitions)
        # Also an id that comes back, as after ZooKeeper was restored.
        new = {key for key, _ in rows if key in topics_by_id and self._topic_of(key) is None}
        self._learn({topics_by_id[topic_id]: topic_id for topic_id in new})
        named: dict[TopicPartition, FetchPartition] = {}
        for topic_id, part in rows:
            topic = self._topic_of(topic_id)
            if topic is None:
                self.unresolved[topic_id, part.index] = part
            else:
                named[TopicPartition(topic, part.index)] = part
        left: list[TopicPartition] = []
        for row in forgotten:
            topic = self._topic_of(row.topic_id)
            for index in row.partitions:
                if topic is None:
                    self.unresolved.pop((row.topic_id, index), None)
                else:
                    left.append(TopicPartition(topic, index))
        return named, left

    def _topic_of(self, topic_id: bytes) -> str | None:
        """Return the topic whose ``parts`` have this id."""
        name = self._names.get(topic_id)
        return name if name is not None and self.topic_ids[name] == topic_id else None

    def _learn(self, found: Mapping[str, bytes]) -> None:
        """Learn the ids of topics. Partitions that have an earlier id of such a topic become unresolved."""
        again = found.keys() & self.topic_ids.keys()
        for key in [key for key in self.parts if key.topic in again] if again else ():
            self.unresolved[self.topic_ids[key.topic], key.partition] = self.parts[key]
            self._remove(key)
        if found:
            self.topic_ids = {**self.topic_ids, **found}
            self._names.update((topic_id, name) for name, topic_id in found.items())

    def _remove(self, topic_partition: TopicPartition) -> None:
        for table in (self.parts, self.reported, self.changed):
            table.pop(topic_partition, None)

    def update(
        self, named: Mapping[TopicPartition, FetchPartition], forgotten: Iterable[TopicPartition]
    ) -> None:
        """Apply the partitions of a request, which may be the first."""
        for topic_partition, part in named.items():
            known = self.parts.get(topic_partition)
            if known is not None and part.fetch_offset <= known.fetch_offset:
                # It is fetched again, perhaps in another epoch: the client has not used the responses since.
                self.reported.pop(topic_partition, None)
        self.parts.update(named)
        self.keep_changed(named)
        for topic_partition in forgotten:
            self._remove(topic_partition)

    def advance(self) -> int:
        """Expect the next epoch, and return it."""
        self.next_epoch = next_session_epoch(self.next_epoch)
        return self.next_epoch

    def take_changed(self) -> Iterator[TopicPartition]:
        """Yield and remove the changed partitions. A change after the yield adds the partition again."""
        for topic_partition in list(self.changed):
            self.changed.pop(topic_partition, None)
            yield topic_partition

    def keep_changed(self, topic_partitions: Iterable[TopicPartition]) -> None:
        """Read these partitions again with the next request."""
        self.changed.update(dict.fromkeys(topic_partitions))


S = TypeVar("S", bound=FetchSession)


class FetchSessionCache(Generic[S]):
    """The sessions of a broker, the least recently used first. Used within steps of the core."""

    def __init__(self, slots: int, new_id: Callable[[], int], on_removed: Callable[[S], object]) -> None:
        """``new_id`` returns random numbers from 1 to 2^31 - 1, so that no session of a broker that has
        restarted is taken for another one. ``on_removed`` is called with each removed session.
        """
        self._slots = slots
        self._new_id = new_id
        self._on_removed = on_removed
        self._sessions: OrderedDict[int, S] = OrderedDict()
        self.partitions = 0
        """The partitions of all sessions together."""
        self.evictions = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def get(self, session_id: int, owner: str, *, privileged: bool) -> S | None:
        """Return the session of this owner; None if there is none."""
        session = self._sessions.get(session_id)
        if session is None or (session.owner, session.privileged) != (owner, privileged):
            return None
        return session

    def create(self, make: Callable[[int], S], size: int, now_ms: int, *, privileged: bool) -> S | None:
        """Return a new session, made from its id, for ``size`` partitions; None if there is no room."""
        if size > MOST_PARTITIONS:
            return None
        while len(self._sessions) >= self._slots or self.partitions + size > MOST_PARTITIONS:
            if not self._evict(size, now_ms, privileged=privileged):
                return None
        session_id = self._new_id()
        while session_id == NO_SESSION or session_id in self._sessions:
            session_id = self._new_id()
        session = self._sessions[session_id] = make(session_id)
        return session

    def touch(self, session: S, now_ms: int) -> bool:
        """Record that a session was used, and its size. Return False if there is no room for what it has
        become: it is removed.
        """
        session.last_used_ms = now_ms
        self._sessions.move_to_end(session.session_id)
        weight = session.weight
        self.partitions += weight - session.counted
        session.counted = weight
        if self.partitions <= MOST_PARTITIONS:
            return True
        self.remove(session)
        return False

    def remove(self, session: S) -> None:
        """Remove a session that is in the cache."""
        del self._sessions[session.session_id]
        self.partitions -= session.counted
        self._on_removed(session)

    def discard(self, session: S) -> None:
        """Remove a session if it is in the cache."""
        if self._sessions.get(session.session_id) is session:
            self.remove(session)

    def _evict(self, size: int, now_ms: int, *, privileged: bool) -> bool:
        oldest = next(iter(self._sessions.values()), None)
        if oldest is None:
            return False
        if now_ms - oldest.last_used_ms <= EVICTION_MS:
            evictable = [
                session
                for session in self._sessions.values()
                if now_ms - session.created_ms > EVICTION_MS or (privileged and not session.privileged)
            ]
            if not evictable:
                return False
            oldest = min(evictable, key=_value)
            if (privileged, size) <= _value(oldest):
                return False
        self.remove(oldest)
        self.evictions += 1
        return True


def _value(session: FetchSession) -> tuple[bool, int]:
    return session.privileged, session.counted
