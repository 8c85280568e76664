"""The session of one consumer in a group: its registration, and the owners of its partitions.

    /consumers/G/ids/ID       the registration, ephemeral
    /consumers/G/owners/T/P   the owner of a partition, ephemeral

The registration is the proof of the session: it ends with the session, and only the consumer creates it
again. So nothing is deleted unless the registration is there in the same transaction. After the end of the
session an owner's znode may be another consumer's.

Only the znodes say what a consumer has: if the response to a request is lost, the next attempt sees what the
request has done.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from dataclasses import dataclass

from minikafka.base.errors import NodeExists, NoNode, SessionExpired
from minikafka.base.ids import TopicPartition
from minikafka.registry import paths
from minikafka.registry.store import Stat, Store


@dataclass(frozen=True, slots=True)
class PartitionOwner:
    """The content of ``/consumers/G/owners/T/P``."""

    thread: str
    """The consumer and its thread, ``ID-N``."""
    session_id: int
    """The session that owns the ephemeral znode."""


class ConsumerSession:
    """The registration of one consumer, and its partitions. Not thread-safe."""

    def __init__(self, store: Store, group: str, consumer_id: str) -> None:
        self.group = group
        self.consumer_id = consumer_id
        self.path = paths.consumer_id_path(group, consumer_id)
        """The path of the registration."""
        self.session_id = 0
        """The session in which the consumer is registered; 0 for none."""
        self._store = store

    def register(self, data: bytes) -> bool:
        """Register in the present session. Return False if it ended meanwhile: register again.

        Raises NodeExists while another session has a consumer of this id.
        """
        session_id = self._store.session_id
        present = self._create(self.path, data)
        if present is not None and present[1].ephemeral_owner != session_id:
            raise NodeExists(f"{self.path} exists: another consumer is registered with this consumer.id")
        if self._store.session_id != session_id:
            return False
        self.session_id = session_id
        return True

    def unregister(self) -> None:
        """Delete the registration, if it is still there."""
        session_id, self.session_id = self.session_id, 0
        stat = self._store.exists(self.path)
        if stat is not None and stat.ephemeral_owner == session_id != 0:
            with contextlib.suppress(NoNode):
                self._store.delete(self.path)

    def owners(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, PartitionOwner]:
        """Return the owners of those of ``partitions`` that have one. All are read at once."""
        places = {self._owner_path(tp): tp for tp in sorted(partitions)}
        return {
            places[path]: PartitionOwner(data.decode("utf-8", "replace"), stat.ephemeral_owner)
            for path, (data, stat) in self._store.read_all(places).items()
        }

    def still_owned(self, partitions: Iterable[TopicPartition]) -> frozenset[TopicPartition]:
        """Return the partitions that this consumer owns, according to ZooKeeper."""
        owners = self.owners(partitions)
        return frozenset(tp for tp, owner in owners.items() if owner.session_id == self.session_id)

    def claim(self, tp: TopicPartition, thread: str) -> str | None:
        """Claim one partition for ``thread``. Return None, or the owner if another consumer owns it.

        Raises SessionExpired if the session has ended meanwhile.
        """
        path, data = self._owner_path(tp), thread.encode("utf-8")
        while True:
            present = self._create(path, data)
            if present is None:
                break
            held, stat = present
            if stat.ephemeral_owner != self.session_id:
                return held.decode("utf-8", "replace")
            if held == data:
                break
            self._delete(path)
        if self._store.session_id != self.session_id:
            raise SessionExpired(f"{self.consumer_id}: the session ended during the claim of {tp}")
        return None

    def delete_partition_ownership_from_zk(self, tp: TopicPartition) -> None:
        """Delete the owner's znode, if it belongs to this session.

        Raises SessionExpired if the session has ended meanwhile: then the znode may be another consumer's,
        and stays.
        """
        if self.still_owned([tp]):
            self._delete(self._owner_path(tp))

    def _owner_path(self, tp: TopicPartition) -> str:
        return paths.consumer_owner_path(self.group, *tp)

    def _create(self, path: str, data: bytes) -> tuple[bytes, Stat] | None:
        """Create an ephemeral znode. Return None, or data and stat of the one that exists."""
        while True:
            try:
                self._store.create(path, data, ephemeral=True, make_parents=True)
            except NodeExists:
                with contextlib.suppress(NoNode):  # it has just been deleted
                    return self._store.read(path)
            else:
                return None

    def _delete(self, path: str) -> None:
        try:
            self._store.delete_if_exists(path, self.path)
        except NoNode:
            if self._store.exists(self.path) is None:
                raise SessionExpired(
                    f"{self.path} no longer exists: another consumer may own {path}"
                ) from None
