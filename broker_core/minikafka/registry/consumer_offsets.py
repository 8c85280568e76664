"""The offsets that consumer groups have committed to ZooKeeper: ``/consumers/G/offsets/T/P``.

Kafka's consumers of 0.8 to 0.10 write them, version 0 of OffsetCommit, and administrators.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping

from minikafka.base.errors import CoordinationError
from minikafka.base.ids import TopicPartition
from minikafka.registry import paths
from minikafka.registry.consumers import partitions_below
from minikafka.registry.node import invalid, number_in
from minikafka.registry.store import Store, parent_of
from minikafka.registry.znodes import Kind, Znodes, make, read_values

_log = logging.getLogger(__name__)

_ATTEMPTS = 4
"""At a conditional write that conflicts with other writers; includes the first one, made without reading."""

StillOwned = Callable[[Collection[TopicPartition]], Collection[TopicPartition]]
"""Return those of the given partitions that are still owned, as read from ZooKeeper now."""


def _decode_offset(data: bytes, path: str) -> int:
    offset = number_in(data.strip())
    if offset is None or not 0 <= offset < 1 << 63:
        raise invalid(path, "expected an offset", data)
    return offset


def _encode_offset(offset: int) -> bytes:
    return b"%d" % offset


OFFSET = Kind(
    f"{paths.CONSUMERS}/G/offsets/T/P",
    "the next offset that a group reads of a partition; a bare number, written at the version last read",
    "0.10.1",
    _decode_offset,
    _encode_offset,
    "the group has no offset of the partition until it commits one, and starts there by auto.offset.reset; "
    "to choose another start, stop its consumers and run `minikafka group reset`",
)


def read_offsets(
    store: Store, group: str, partitions: Iterable[TopicPartition] | None = None
) -> dict[TopicPartition, int]:
    """Return the offsets that ``group`` has committed (None: of all partitions), without partitions that have
    none. Raises BrokerError INVALID_GROUP_ID.
    """
    if partitions is None:
        partitions = partitions_below(store, paths.consumer_offsets_path(group))
    by_path = {paths.consumer_offset_path(group, *tp): tp for tp in partitions}
    return read_values(store, by_path, OFFSET)


def write_offsets(store: Store, group: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Write offsets of ``group``, whoever owns the partitions: for administrators. Consumers commit through
    ``ZookeeperOffsets``. Many requests are in flight at once.
    """
    nodes = {paths.consumer_offset_path(group, *tp): _encode_offset(offset) for tp, offset in offsets.items()}
    new = store.write_all({path: (data, -1) for path, data in nodes.items()})
    if not new:
        return
    for above in sorted({parent_of(path) for path in new}):
        make(store, above)
    meanwhile = store.create_all({path: nodes[path] for path in sorted(new)})
    store.write_all({path: (nodes[path], -1) for path in meanwhile})


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
        """Return the stored offsets, without partitions that have none."""
        wanted = {paths.consumer_offset_path(self._group, *tp): tp for tp in partitions}
        self.forget(wanted.values())
        found = {}
        for path, (offset, stat) in Znodes(self._store).read_all(wanted, OFFSET).items():
            found[wanted[path]] = offset
            self._note_stored(wanted[path], offset, stat.version)
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
        nodes = {path: (_encode_offset(offsets[tp]), self._versions[tp]) for path, tp in known.items()}
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
            paths.consumer_offset_path(self._group, *tp): _encode_offset(offset)
            for tp, offset in offsets.items()
        }
        for above in sorted({parent_of(path) for path in nodes}):
            make(self._store, above)
        refused = self._store.create_all(nodes) if nodes else frozenset()
        for path, (tp, offset) in zip(nodes, offsets.items(), strict=True):
            if path not in refused:
                self._note_stored(tp, offset, 0)

    def _note_stored(self, tp: TopicPartition, offset: int, version: int) -> None:
        self.checkpointed_zk_offsets[tp], self._versions[tp] = offset, version
