"""The only consumer of a group in ZooKeeper."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Mapping

from minikafka.base.errors import GroupInUse, SessionExpired
from minikafka.base.ids import TopicPartition
from minikafka.registry import paths
from minikafka.registry.consumer_offsets import ZookeeperOffsets
from minikafka.registry.consumer_session import ConsumerSession
from minikafka.registry.consumers import ConsumerRegistration
from minikafka.registry.store import Store
from minikafka.registry.znodes import children


class SoleConsumer:
    """The only consumer of a group: it is registered, and its first thread owns all partitions that it reads.

    Raises GroupInUse if another consumer is registered in the group or owns one of the partitions. After the
    session has expired, ``hold`` registers again. Not thread-safe.
    """

    def __init__(self, store: Store, group: str, consumer_id: str, now_ms: Callable[[], int]) -> None:
        self._store = store
        self._group = group
        self._id = consumer_id
        self._now_ms = now_ms
        self._offsets = ZookeeperOffsets(store, group)
        self._session = ConsumerSession(store, group, consumer_id)
        self._topics: frozenset[str] | None = None
        self._owned: set[TopicPartition] = set()

    @property
    def thread_id(self) -> str:
        """The data of the owner znodes."""
        return f"{self._id}-0"

    def hold(self, partitions: Collection[TopicPartition]) -> None:
        """Register for the topics of ``partitions``, and own exactly these partitions.

        Raises GroupInUse with the names of the present members.
        """
        if self._session.session_id != self._store.session_id:
            self._topics, self._owned = None, set()
            self._offsets.forget()
        topics = frozenset(tp.topic for tp in partitions)
        if self._topics is None:
            self._register(topics)
        elif topics != self._topics:
            self._store.write(self._session.path, self._registration(topics))
        self._topics = topics
        for tp in sorted(self._owned - set(partitions)):
            self._disown(tp)
        for tp in sorted(set(partitions) - self._owned):
            self._own(tp)

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit offsets of the group.

        Raises SessionExpired if a partition is not owned, or no longer owned, in the session in which
        ``hold`` registered; the others are committed.
        """
        lost = self._offsets.commit(offsets, self._session.still_owned)
        if lost:
            self._owned -= lost  # the next ``hold`` owns them again, or raises GroupInUse
            names = ", ".join(map(str, sorted(lost)))
            raise SessionExpired(
                f"failed to commit offsets of {names}: consumer {self._id} does not own them"
            )

    def release(self) -> None:
        """Give up all partitions and the registration. Znodes of other sessions stay."""
        for tp in sorted(self._owned):
            self._disown(tp)
        self._topics = None
        self._session.unregister()

    def _registration(self, topics: Iterable[str]) -> bytes:
        return ConsumerRegistration(dict.fromkeys(sorted(topics), 1), self._now_ms()).to_json()

    def _register(self, topics: Iterable[str]) -> None:
        """Check before and after: of two consumers that register at once at least one sees the other."""
        self._check_alone()
        while not self._session.register(self._registration(topics)):
            pass
        try:
            self._check_alone()
        except GroupInUse:
            self._session.unregister()
            raise

    def _check_alone(self) -> None:
        others = [
            name for name in children(self._store, paths.consumer_ids_path(self._group)) if name != self._id
        ]
        if others:
            raise GroupInUse(self._group, others)

    def _own(self, tp: TopicPartition) -> None:
        owner = self._session.claim(tp, self.thread_id)
        if owner is not None:
            raise GroupInUse(self._group, [owner])
        self._owned.add(tp)

    def _disown(self, tp: TopicPartition) -> None:
        with contextlib.suppress(SessionExpired):
            self._session.delete_partition_ownership_from_zk(tp)
        self._owned.discard(tp)
        self._offsets.forget([tp])
