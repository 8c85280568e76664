"""The owners of a group's partitions: ``/consumers/G/owners/T/P``, one ephemeral znode for each.

Only the znodes say who owns a partition: if the response to a request is lost, the next attempt sees what the
request has done. Nothing is deleted unless this consumer's registration, which ends with the session, is
there in the same transaction.
"""

from __future__ import annotations

from collections.abc import Iterable

from minikafka.base.errors import NodeExists, NoNode, SessionExpired
from minikafka.base.ids import TopicPartition
from minikafka.clients.consumer.assignment import ConsumerThreadId, PartitionOwner
from minikafka.clients.consumer.registration import GroupRegistration
from minikafka.registry import paths
from minikafka.registry.consumers import owned_in_session
from minikafka.registry.store import Store


class PartitionOwnership:
    """Claims and releases partitions for the consumer of ``registration``."""

    def __init__(self, store: Store, registration: GroupRegistration) -> None:
        self._store = store
        self._registration = registration

    def _path(self, tp: TopicPartition) -> str:
        return paths.consumer_owner_path(self._registration.group, *tp)

    def owners(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, PartitionOwner]:
        """Return the owners of those of ``partitions`` that have one. All are read at once."""
        places = {self._path(tp): tp for tp in sorted(partitions)}
        return {
            places[path]: PartitionOwner(data.decode("utf-8", "replace"), stat.ephemeral_owner)
            for path, (data, stat) in self._store.read_all(places).items()
        }

    def still_owned(self, partitions: Iterable[TopicPartition]) -> frozenset[TopicPartition]:
        """Return the partitions that this consumer owns, according to ZooKeeper."""
        registration = self._registration
        return owned_in_session(self._store, registration.group, partitions, registration.session_id)

    def claim(self, tp: TopicPartition, thread: ConsumerThreadId) -> str | None:
        """Claim one partition for ``thread``. Return None, or the owner if another consumer owns it."""
        store, session_id = self._store, self._registration.session_id
        path, data = self._path(tp), str(thread).encode("utf-8")
        while True:
            try:
                store.create(path, data, ephemeral=True, make_parents=True)
            except NodeExists:
                try:
                    present, stat = store.read(path)
                except NoNode:
                    continue  # the owner has just released it
                if stat.ephemeral_owner != session_id:
                    return present.decode("utf-8", "replace")
                if present != data:
                    self._delete(path)
                    continue
            if store.session_id != session_id:
                consumer = self._registration.consumer_id
                raise SessionExpired(f"{consumer}: the session ended during the claim of {tp}")
            return None

    def delete_partition_ownership_from_zk(self, tp: TopicPartition) -> None:
        """Delete the owner's znode, if it belongs to this session.

        Raises SessionExpired if the session has ended meanwhile: then the znode may be another consumer's,
        and stays.
        """
        if self.still_owned([tp]):
            self._delete(self._path(tp))

    def _delete(self, path: str) -> None:
        registration = self._registration.path
        try:
            # The registration ends with the session, and only this thread creates it again.
            self._store.delete_if_exists(path, registration)
        except NoNode:
            if self._store.exists(registration) is None:
                raise SessionExpired(
                    f"{registration} no longer exists: another consumer may own {path}"
                ) from None
