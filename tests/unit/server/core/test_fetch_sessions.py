"""The cache of fetch sessions: its slots, what it evicts, and the epochs of a session."""

from __future__ import annotations

import gc
import itertools
import weakref

import pytest

from minikafka.base.ids import TopicPartition
from minikafka.server.core import fetch_sessions
from minikafka.server.core.fetch_sessions import EVICTION_MS, FetchSession, FetchSessionCache
from minikafka.wire.apis.fetch import LAST_EPOCH, FetchPartition, FetchTopic, ForgottenTopic

OLD_MS = EVICTION_MS + 1


class Cache(FetchSessionCache[FetchSession]):
    """A cache that remembers what was removed."""

    def __init__(self, slots: int) -> None:
        self.removed: list[int] = []
        ids = itertools.count(1)
        super().__init__(slots, lambda: next(ids), lambda session: self.removed.append(session.session_id))

    def add(self, size: int = 1, now_ms: int = 0, *, follower: bool = False) -> FetchSession | None:
        """A new session of so many partitions."""

        def make(session_id: int) -> FetchSession:
            return FetchSession(session_id, "alice", now_ms, privileged=follower)

        session = self.create(make, size, now_ms, privileged=follower)
        if session is not None:
            session.update({TopicPartition("t", n): FetchPartition(n, -1, 0, -1, 1) for n in range(size)}, ())
            assert self.touch(session, now_ms)
        return session


def added(session: FetchSession | None) -> FetchSession:
    assert session is not None
    return session


def test_there_are_no_more_sessions_than_slots() -> None:
    cache = Cache(2)
    assert cache.add()
    assert cache.add()
    assert cache.add(size=9) is None
    assert (len(cache), cache.partitions, cache.removed) == (2, 2, [])


def test_without_slots_there_is_no_session() -> None:
    assert Cache(0).add(follower=True) is None


def test_the_least_recently_used_session_is_evicted_when_it_is_unused() -> None:
    cache = Cache(2)
    first, second = added(cache.add(size=9)), added(cache.add(size=9))
    cache.touch(first, 1)
    assert cache.add(now_ms=OLD_MS)
    assert (cache.removed, cache.evictions) == ([second.session_id], 1)


@pytest.mark.parametrize(("size", "evicted"), [(2, []), (3, [2])])
def test_a_larger_session_evicts_the_smallest_old_one(size: int, evicted: list[int]) -> None:
    cache = Cache(2)
    for old in (added(cache.add(size=4)), added(cache.add(size=2))):
        cache.touch(old, OLD_MS)
    assert (cache.add(size=size, now_ms=OLD_MS) is not None) == bool(evicted)
    assert cache.removed == evicted


def test_a_follower_evicts_a_consumer_of_any_size_at_once() -> None:
    cache = Cache(2)
    consumer = added(cache.add(size=9))
    assert cache.add(follower=True)
    assert cache.add(follower=True)
    assert cache.removed == [consumer.session_id]
    assert cache.add(size=9, follower=True) is None


def test_a_consumer_does_not_evict_a_follower_in_use() -> None:
    cache = Cache(1)
    follower = added(cache.add(follower=True))
    cache.touch(follower, OLD_MS)
    assert cache.add(size=9, now_ms=OLD_MS) is None
    assert cache.add(size=9, now_ms=2 * OLD_MS)


def test_a_session_belongs_to_its_principal() -> None:
    cache = Cache(1)
    session = added(cache.add())
    assert cache.get(session.session_id, "alice", privileged=False) is session
    assert cache.get(session.session_id, "bob", privileged=False) is None
    assert cache.get(session.session_id, "alice", privileged=True) is None


def test_partitions_of_all_sessions_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_sessions, "MOST_PARTITIONS", 10)
    cache = Cache(100)
    assert cache.add(size=11) is None
    growing = added(cache.add(size=6))
    assert cache.add(size=5) is None
    assert cache.add(size=4)
    growing.update({TopicPartition("more", 0): FetchPartition(0, -1, 0, -1, 1)}, ())
    assert not cache.touch(growing, 0)
    assert (cache.removed, cache.partitions) == ([growing.session_id], 4)


def test_after_the_last_epoch_comes_the_first() -> None:
    session = FetchSession(1, "alice", 0, privileged=False)
    assert session.advance() == 2
    session.next_epoch = LAST_EPOCH
    assert session.advance() == 1


def test_a_partition_that_is_named_and_forgotten_is_forgotten() -> None:
    session, partition = FetchSession(1, "alice", 0, privileged=False), TopicPartition("t", 0)
    session.update({partition: FetchPartition(0, -1, 0, -1, 1)}, [partition])
    assert (session.parts, list(session.take_changed())) == ({}, [])


def test_a_session_does_not_keep_the_ids_of_the_cluster() -> None:
    class Ids(dict[bytes, str]):
        """A dict to which there are weak references."""

    ids = Ids({b"1" * 16: "t"})
    session = FetchSession(1, "alice", 0, privileged=False, by_id=True)
    topic = FetchTopic("", (FetchPartition(0, -1, 0, -1, 1),), topic_id=b"2" * 16)
    session.resolve((topic,), (), ids, 1)
    seen = weakref.ref(ids)
    del ids
    gc.collect()
    assert seen() is None
    assert list(session.resolve((), (), {b"2" * 16: "u"}, 2)[0]) == [TopicPartition("u", 0)]


def test_names_of_forgotten_topics_count_in_the_cache() -> None:
    cache = FetchSessionCache[FetchSession](9, itertools.count(1).__next__, lambda session: None)
    session = added(
        cache.create(
            lambda n: FetchSession(n, "alice", 0, privileged=False, by_id=True), 3, 0, privileged=False
        )
    )
    ids = {bytes([n]) * 16: f"t{n}" for n in range(1, 4)}
    topics = [FetchTopic("", (FetchPartition(0, -1, 0, -1, 1),), topic_id=topic_id) for topic_id in ids]
    left = [ForgottenTopic("", (0,), topic_id=topic_id) for topic_id in ids]
    session.update(*session.resolve(topics, left[1:], ids, 1))
    cache.touch(session, 0)
    assert (session.size, cache.partitions) == (1, 3)
