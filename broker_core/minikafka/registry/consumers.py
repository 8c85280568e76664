"""The znodes of consumer groups that are managed in ZooKeeper, as by Kafka's consumers of 0.8 to 0.10.

    /consumers/G/ids/ID          ConsumerRegistration, ephemeral: a live consumer
    /consumers/G/owners/T/P      ID-N, ephemeral: the consumer and its thread N that read a partition
    /consumers/G/offsets/T/P     the next offset to read, a bare number

Their parents are persistent and created when needed.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Collection, Iterable, Mapping

from minikafka.base.errors import CoordinationError, GroupInUse, NodeExists, NoNode, SessionExpired
from minikafka.base.ids import TopicPartition
from minikafka.registry import paths
from minikafka.registry.node import number_in
from minikafka.registry.paths import ConsumerRegistration
from minikafka.registry.store import Store, parent_of

_log = logging.getLogger(__name__)

_ATTEMPTS = 4
"""At a conditional write that conflicts with other writers; includes the first one, made without reading."""

StillOwned = Callable[[Collection[TopicPartition]], Collection[TopicPartition]]
"""Return those of the given partitions that are still owned, as read from ZooKeeper now."""


def read_offsets(store: Store, group: str) -> dict[TopicPartition, int]:
    """Return all offsets that ``group`` has committed. A znode that does not hold a number is ignored."""
    paths_to_partitions: dict[str, TopicPartition] = {}
    above = paths.consumer_offsets_path(group)
    for topic in children(store, above):
        for number in children(store, f"{above}/{topic}"):
            if number.isdecimal():
                tp = TopicPartition(topic, int(number))
                paths_to_partitions[paths.consumer_offset_path(group, *tp)] = tp
    found = {}
    for path, (data, _) in store.read_all(paths_to_partitions).items():
        with contextlib.suppress(ValueError):
            found[paths_to_partitions[path]] = int(data)
    return found


def write_offsets(store: Store, group: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Write offsets of ``group``, whoever owns the partitions: for administrators. Consumers commit through
    ``ZookeeperOffsets``. Many requests are in flight at once.
    """
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


def owned_in_session(
    store: Store, group: str, partitions: Iterable[TopicPartition], session_id: int
) -> frozenset[TopicPartition]:
    """Return those of ``partitions`` whose owner znode was created in the session. All are read at once."""
    paths_to_partitions = {paths.consumer_owner_path(group, *tp): tp for tp in partitions}
    return frozenset(
        paths_to_partitions[path]
        for path, (_, stat) in store.read_all(paths_to_partitions).items()
        if stat.ephemeral_owner == session_id
    )


class ZookeeperOffsets:
    """Commits offsets of owned partitions to ZooKeeper. Not thread-safe.

    A znode is written conditionally on the version that was read or written last. So a late write of a
    consumer that has lost its partition fails, and cannot move the offset back. The owner then retries: it
    reads first the version and then the ownership, so that the next owner of the partition writes a later
    version.
    """

    def __init__(self, store: Store, group: str) -> None:
        self._store = store
        self._group = group
        self.checkpointed_zk_offsets: dict[TopicPartition, int] = {}
        """The offsets that are known to be stored: they are not written again."""
        self._versions: dict[TopicPartition, int] = {}
        """The known versions of the znodes."""

    def forget(self, partitions: Iterable[TopicPartition] | None = None) -> None:
        """Forget the stored offsets and versions of these partitions (None: of all)."""
        for tp in list(self._versions if partitions is None else partitions):
            self.checkpointed_zk_offsets.pop(tp, None)
            self._versions.pop(tp, None)

    def fetch(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the stored offsets. Raises CoordinationError, with the path, if one is not a number."""
        wanted = {paths.consumer_offset_path(self._group, *tp): tp for tp in partitions}
        self.forget(wanted.values())
        found = {}
        for path, (data, stat) in self._store.read_all(wanted).items():
            offset = number_in(data.strip())
            if offset is None:
                raise CoordinationError(f"{path}: expected an offset, got {data[:200]!r}")
            tp = wanted[path]
            found[tp] = offset
            self._note_stored(tp, offset, stat.version)
        return found

    def commit(
        self, offsets: Mapping[TopicPartition, int], still_owned: StillOwned
    ) -> frozenset[TopicPartition]:
        """Write the offsets that are not stored yet. Return the partitions that are not owned any more.

        ``still_owned`` is asked about znodes that others have written, and those that were never read.
        """
        left = changed = self._uncommitted(offsets)
        lost: frozenset[TopicPartition] = frozenset()
        try:
            for _ in range(_ATTEMPTS):
                self._write(left)
                left = self._uncommitted(left)
                if not left:
                    return lost
                self._read_versions(left)
                owned = frozenset(still_owned(left))
                newly_lost = left.keys() - owned
                for tp in sorted(newly_lost):
                    _log.warning(
                        "offset %d of %s was not committed: the partition is no longer owned", left[tp], tp
                    )
                self.forget(newly_lost)
                lost |= newly_lost
                left = {tp: offset for tp, offset in left.items() if tp in owned}
                self._create({tp: offset for tp, offset in left.items() if tp not in self._versions})
                left = self._uncommitted(left)
        except CoordinationError:
            # It is not known which of them were written.
            self.forget(changed)
            raise
        if left:
            path = paths.consumer_offset_path(self._group, *min(left))
            raise CoordinationError(
                f"failed to commit to {path}: it was changed concurrently in each of {_ATTEMPTS} attempts"
            )
        return lost

    def _uncommitted(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return the offsets that are not known to be stored."""
        return {
            tp: offset for tp, offset in offsets.items() if self.checkpointed_zk_offsets.get(tp) != offset
        }

    def _write(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Write the offsets whose versions are known; forget those that others have written meanwhile."""
        known = {paths.consumer_offset_path(self._group, *tp): tp for tp in offsets if tp in self._versions}
        if not known:
            return
        nodes = {path: (b"%d" % offsets[tp], self._versions[tp]) for path, tp in known.items()}
        refused = self._store.write_all(nodes)
        for path, tp in known.items():
            if path in refused:
                self.forget([tp])
            else:
                self._note_stored(tp, offsets[tp], self._versions[tp] + 1)

    def _read_versions(self, partitions: Iterable[TopicPartition]) -> None:
        wanted = {paths.consumer_offset_path(self._group, *tp): tp for tp in partitions}
        for path, (_, stat) in self._store.read_all(wanted).items():
            self._versions[wanted[path]] = stat.version

    def _create(self, offsets: Mapping[TopicPartition, int]) -> None:
        nodes = {
            paths.consumer_offset_path(self._group, *tp): b"%d" % offset for tp, offset in offsets.items()
        }
        for above in sorted({parent_of(path) for path in nodes}):
            with contextlib.suppress(NodeExists):
                self._store.create(above, make_parents=True)
        refused = self._store.create_all(nodes) if nodes else frozenset()
        for path, (tp, offset) in zip(nodes, offsets.items(), strict=True):
            if path not in refused:
                self._note_stored(tp, offset, 0)

    def _note_stored(self, tp: TopicPartition, offset: int, version: int) -> None:
        self.checkpointed_zk_offsets[tp], self._versions[tp] = offset, version


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
        self._session = 0
        """The session in which the registration and the owner znodes were created."""
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
        if self._session != self._store.session_id:
            self._topics, self._owned = None, set()
            self._offsets.forget()
        topics = frozenset(tp.topic for tp in partitions)
        if self._topics is None:
            self._register(topics)
        elif topics != self._topics:
            self._store.write(self._path, self._registration(topics))
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
        lost = self._offsets.commit(offsets, self._still_owned)
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
        session, self._topics, self._session = self._session, None, 0
        stat = self._store.exists(self._path)
        if stat is not None and stat.ephemeral_owner == session:
            with contextlib.suppress(NoNode):
                self._store.delete(self._path)

    @property
    def _path(self) -> str:
        return paths.consumer_id_path(self._group, self._id)

    def _registration(self, topics: Iterable[str]) -> bytes:
        return ConsumerRegistration(dict.fromkeys(sorted(topics), 1), self._now_ms()).to_json()

    def _register(self, topics: Iterable[str]) -> None:
        """Check before and after: of two consumers that register at once at least one sees the other."""
        self._check_alone()
        session = self._store.session_id
        self._create(self._path, self._registration(topics), session)
        try:
            self._check_alone()
        except GroupInUse:
            with contextlib.suppress(NoNode):
                self._store.delete(self._path)
            raise
        self._session = session

    def _check_alone(self) -> None:
        others = [
            name for name in children(self._store, paths.consumer_ids_path(self._group)) if name != self._id
        ]
        if others:
            raise GroupInUse(self._group, others)

    def _own(self, tp: TopicPartition) -> None:
        path = paths.consumer_owner_path(self._group, *tp)
        try:
            self._create(path, self.thread_id.encode("utf-8"), self._session)
        except NodeExists:
            with contextlib.suppress(NoNode):
                owner = self._store.read(path)[0].decode("utf-8", "replace")
                raise GroupInUse(self._group, [owner]) from None
            return self._own(tp)  # it has just been given up
        self._owned.add(tp)
        return None

    def _create(self, path: str, data: bytes, session: int) -> None:
        """Create an ephemeral znode, unless an earlier call, whose answer was lost, has created it."""
        try:
            self._store.create(path, data, ephemeral=True, make_parents=True)
        except NodeExists:
            stat = self._store.exists(path)
            if stat is None or stat.ephemeral_owner != session:
                raise

    def _still_owned(self, partitions: Iterable[TopicPartition]) -> frozenset[TopicPartition]:
        return owned_in_session(self._store, self._group, partitions, self._session)

    def _disown(self, tp: TopicPartition) -> None:
        # The registration proves the session: after its end the owner znode may be of another consumer, and
        # stays.
        with contextlib.suppress(NoNode):
            self._store.delete_if_exists(paths.consumer_owner_path(self._group, *tp), self._path)
        self._owned.discard(tp)
        self._offsets.forget([tp])


def children(store: Store, path: str) -> list[str]:
    """Return the names of the children, sorted; none if the znode does not exist."""
    try:
        return store.children(path)
    except NoNode:
        return []
