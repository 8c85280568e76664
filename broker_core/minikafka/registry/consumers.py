"""Consumer groups that keep themselves in ZooKeeper, as Kafka's consumers of 0.8 to 0.10 do.

    /consumers/G/ids/ID          ConsumerRegistration, ephemeral: a consumer that lives
    /consumers/G/owners/T/P      ID-N, ephemeral: the consumer that reads a partition, in its thread N
    /consumers/G/offsets/T/P     the next offset to read, a bare number

All that is above them is persistent and made as it is needed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Mapping

from minikafka.base.errors import GroupHeld, NodeExists, NoNode
from minikafka.base.ids import TopicPartition
from minikafka.registry import paths
from minikafka.registry.paths import ConsumerRegistration
from minikafka.registry.store import Store, parent_of


def read_offsets(store: Store, group: str) -> dict[TopicPartition, int]:
    """All that ``group`` has committed; what is no number there counts as nothing."""
    places: dict[str, TopicPartition] = {}
    above = paths.consumer_offsets_path(group)
    for topic in children(store, above):
        for number in children(store, f"{above}/{topic}"):
            if number.isdecimal():
                tp = TopicPartition(topic, int(number))
                places[paths.consumer_offset_path(group, *tp)] = tp
    found = {}
    for path, (data, _) in store.read_all(places).items():
        with contextlib.suppress(ValueError):
            found[places[path]] = int(data)
    return found


def write_offsets(store: Store, group: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Let ``group`` go on there; many znodes are under way at once."""
    nodes = {
        paths.consumer_offset_path(group, *tp): str(offset).encode("ascii") for tp, offset in offsets.items()
    }
    new = store.write_all({path: (data, -1) for path, data in nodes.items()})
    if not new:
        return
    for above in sorted({parent_of(path) for path in new}):
        with contextlib.suppress(NodeExists):
            store.create(above, make_parents=True)
    meanwhile = store.create_all({path: nodes[path] for path in sorted(new)})
    store.write_all({path: (nodes[path], -1) for path in meanwhile})


class SoleConsumer:
    """The one consumer of a group: registered, and the owner of all that it reads, in its first thread.

    Whoever else is registered in the group, or owns one of its partitions, is respected: GroupHeld. After a
    session has expired ``hold`` registers anew. Not thread-safe.
    """

    def __init__(self, store: Store, group: str, consumer_id: str, now_ms: Callable[[], int]) -> None:
        self._store = store
        self._group = group
        self._id = consumer_id
        self._now_ms = now_ms
        self._session = 0
        """The session that what follows was made in."""
        self._topics: frozenset[str] | None = None
        self._owned: set[TopicPartition] = set()

    @property
    def thread_id(self) -> str:
        """What stands in the partitions that it owns."""
        return f"{self._id}-0"

    def hold(self, partitions: Collection[TopicPartition]) -> None:
        """Be registered, for the topics of ``partitions``, and own these and no others.

        Raises GroupHeld with the names of those who were there before.
        """
        if self._session != self._store.session_id:
            self._topics, self._owned = None, set()
        topics = frozenset(tp.topic for tp in partitions)
        if self._topics is None:
            self._register(topics)
        elif topics != self._topics:
            self._store.write(self._path, self._registration(topics))
        self._topics = topics
        for tp in sorted(self._owned - set(partitions)):
            self._give_up(tp)
        for tp in sorted(set(partitions) - self._owned):
            self._own(tp)

    def release(self) -> None:
        """Own nothing, and be registered no more."""
        for tp in sorted(self._owned):
            self._give_up(tp)
        self._topics, self._session = None, 0
        self._delete(self._path)

    @property
    def _path(self) -> str:
        return paths.consumer_id_path(self._group, self._id)

    def _registration(self, topics: Iterable[str]) -> bytes:
        return ConsumerRegistration(dict.fromkeys(sorted(topics), 1), self._now_ms()).to_json()

    def _register(self, topics: Iterable[str]) -> None:
        """Look before and after: of two that come at the same moment at least one sees the other."""
        self._check_alone()
        session = self._store.session_id
        self._create(self._path, self._registration(topics), session)
        try:
            self._check_alone()
        except GroupHeld:
            self._delete(self._path)
            raise
        self._session = session

    def _check_alone(self) -> None:
        others = [
            name for name in children(self._store, paths.consumer_ids_path(self._group)) if name != self._id
        ]
        if others:
            raise GroupHeld(self._group, others)

    def _own(self, tp: TopicPartition) -> None:
        path = paths.consumer_owner_path(self._group, *tp)
        try:
            self._create(path, self.thread_id.encode("utf-8"), self._session)
        except NodeExists:
            with contextlib.suppress(NoNode):
                owner = self._store.read(path)[0].decode("utf-8", "replace")
                raise GroupHeld(self._group, [owner]) from None
            return self._own(tp)  # it has just been given up
        self._owned.add(tp)
        return None

    def _create(self, path: str, data: bytes, session: int) -> None:
        """Make an ephemeral znode, unless a call whose answer was lost has made it."""
        try:
            self._store.create(path, data, ephemeral=True, make_parents=True)
        except NodeExists:
            stat = self._store.exists(path)
            if stat is None or stat.ephemeral_owner != session:
                raise

    def _give_up(self, tp: TopicPartition) -> None:
        self._delete(paths.consumer_owner_path(self._group, *tp))
        self._owned.discard(tp)

    def _delete(self, path: str) -> None:
        with contextlib.suppress(NoNode):
            self._store.delete(path)


def children(store: Store, path: str) -> list[str]:
    """Names of the children, sorted; none where there is no such znode."""
    try:
        return store.children(path)
    except NoNode:
        return []
