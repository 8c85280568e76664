"""The committed offsets of a group: in ZooKeeper (``offsets.storage=zookeeper``), at its coordinator
(``kafka``), or in both storages.

    /consumers/G/offsets/T/P     the offset of the next message, a bare number

With ``dual.commit.enabled``, both storages are written and the larger offset is read, with either value of
``offsets.storage``. So a group may migrate from one storage to the other, and back, consumer by consumer.
Kafka 0.10.1 does so only with ``kafka``: when a group migrates back, it no longer writes the coordinator's
offsets, which consumers that have not migrated yet still read, and it reads only ZooKeeper.

The storage of ``offsets.storage`` is written first. If a consumer is killed between the two writes, or cannot
reach one storage, the other storage has no larger offset than the configured one; otherwise the next
consumer, which may read only the configured one, would start at an earlier offset.

``registry.consumers.ZookeeperOffsets`` writes the znodes so that a late write does not move an offset back.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Protocol

from minikafka.base.endpoints import SecurityProtocol
from minikafka.base.errors import CoordinationError, CoordinationLost, MinikafkaError, NetworkError
from minikafka.base.ids import TopicPartition
from minikafka.clients.consumer.runtime import Steps, Wait
from minikafka.clients.group.coordinator_client import CoordinatorClient
from minikafka.clients.group.offsets import (
    Committed,
    Committer,
    check_commit,
    commit_request,
    committed_offsets,
)
from minikafka.clients.network.cluster import ClusterClient
from minikafka.registry.brokers import addresses_with
from minikafka.registry.consumer_offsets import StillOwned, ZookeeperOffsets
from minikafka.registry.store import Store
from minikafka.wire.apis.offset_commit import OFFSET_COMMIT

logger = logging.getLogger("minikafka.clients.consumer")

Offsets = Mapping[TopicPartition, int]


def merge_offsets(zookeeper: Offsets, kafka: Offsets) -> dict[TopicPartition, int]:
    """Return the larger offset of each partition, or the only one."""
    return {
        tp: max(zookeeper.get(tp, -1), kafka.get(tp, -1)) for tp in sorted({*zookeeper.keys(), *kafka.keys()})
    }


class ConsumerOffsets:
    """The offsets of one consumer's group, in all storages. Not thread-safe."""

    def __init__(
        self,
        zookeeper: ZookeeperOffsets,
        channel: OffsetsChannel | None,
        *,
        in_zookeeper: bool,
        zookeeper_first: bool,
        still_owned: StillOwned,
        max_retries: int,
        backoff_ms: int,
    ) -> None:
        """``channel`` is None if no offsets are kept at the coordinator. ``zookeeper_first``: ZooKeeper is
        the configured storage, if both are written.
        """
        self.zookeeper = zookeeper
        self._channel = channel
        self._in_zookeeper = in_zookeeper
        self._zookeeper_first = zookeeper_first
        self._still_owned = still_owned
        self._max_retries = max_retries
        self._backoff_ms = backoff_ms

    def commit(
        self, offsets: Offsets, *, with_retries: bool, check: Callable[[], None] | None
    ) -> Steps[frozenset[TopicPartition]]:
        """Commit offsets; ``with_retries``, up to ``offsets.commit.max.retries`` more times after a failure.
        Return the partitions that this consumer no longer owns according to ZooKeeper, whose offsets are not
        committed there.

        ``check`` is called before each attempt, and after the coordinator is found: it raises if other
        consumers may own the partitions. None is for administrators: the offsets are written regardless of
        the owners. A look-up of the coordinator does not count as an attempt. Raises the error of the last
        attempt.
        """
        wanted = {tp: offset for tp, offset in offsets.items() if offset >= 0}
        retries = self._max_retries if with_retries else 0
        while wanted:
            try:
                return self._commit_once(wanted, check)
            except MinikafkaError as failed:
                if retries <= 0 or not _is_retriable(failed):
                    raise
                logger.info("commit of offsets failed, retrying: %s", failed)
            retries -= 1
            yield Wait(self._backoff_ms)
        return frozenset()

    def _commit_once(self, offsets: Offsets, check: Callable[[], None] | None) -> frozenset[TopicPartition]:
        still_owned = _all_owned if check is None else self._still_owned
        check = check or (lambda: None)
        lost: frozenset[TopicPartition] = frozenset()
        check()
        if self._in_zookeeper and self._zookeeper_first:
            lost = self.zookeeper.commit(offsets, still_owned)
        if self._channel is not None:
            self._channel.connect()
            check()  # again, as the look-up may have taken long
            self._channel.commit({tp: offset for tp, offset in offsets.items() if tp not in lost})
        if self._in_zookeeper and not self._zookeeper_first:
            lost = self.zookeeper.commit(offsets, still_owned)
        return lost

    def fetch_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the committed offsets, without partitions that have none.

        Raises CoordinationError, NetworkError or BrokerError if they are not available now.
        """
        wanted = list(partitions)
        kafka = self._channel.fetch(wanted) if self._channel is not None and wanted else {}
        return merge_offsets(self.zookeeper.fetch(wanted) if self._in_zookeeper else {}, kafka)


def _all_owned(partitions: Collection[TopicPartition]) -> Collection[TopicPartition]:
    return partitions


def _is_retriable(error: MinikafkaError) -> bool:
    """Return whether another attempt may succeed: not after the end of the session."""
    return isinstance(error, CoordinationLost) or not isinstance(error, CoordinationError)


class OffsetsChannel(Protocol):
    """A storage of offsets outside ZooKeeper."""

    def connect(self) -> None:
        """Find the coordinator, if it is unknown. Raises NetworkError or BrokerError after the timeout."""

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit in one attempt. Raises NetworkError or BrokerError."""

    def fetch(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the committed offsets, without partitions that have none. Raises NetworkError or
        BrokerError.
        """

    def close(self) -> None:
        """Close the channel, and cancel requests in flight."""


class GroupOffsetsChannel:
    """The channel to the coordinator of ``group`` (in the texts the channel to the offset manager).
    Thread-safe.

    A commit is one attempt, and a fetch one request. The coordinator is looked up again after an error that
    shows that it has moved or does not answer; look-ups are retried until the timeout. ``make_cluster``
    returns a client of the present cluster; it is called again after no broker has answered.
    """

    def __init__(self, make_cluster: Callable[[], ClusterClient], group: str, timeout_ms: int) -> None:
        self._make_cluster = make_cluster
        self._group = group
        self._timeout_ms = timeout_ms
        self._lock = threading.Lock()
        self._coordinator: CoordinatorClient | None = None
        self._closed = False

    def connect(self) -> None:
        """See ``OffsetsChannel.connect``."""
        self._connected_coordinator()

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """See ``OffsetsChannel.commit``. A look-up of the coordinator before it does not count as
        an attempt.
        """
        coordinator = self._connected_coordinator()
        deadline = coordinator.cluster.deadline(self._timeout_ms)
        committed = {tp: Committed(offset) for tp, offset in offsets.items()}
        request = commit_request(self._group, Committer(), committed)
        try:
            reply = coordinator.send(OFFSET_COMMIT, lambda _: request, deadline)
            check_commit(self._group, reply.result(deadline.remaining_ms()))
        except MinikafkaError as error:
            coordinator.forget_if_moved(error)
            raise

    def fetch(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """See ``OffsetsChannel.fetch``."""
        coordinator = self._connected_coordinator()
        deadline = coordinator.cluster.deadline(self._timeout_ms)
        found = committed_offsets(coordinator, partitions, deadline)
        return {tp: committed.offset for tp, committed in found.items()}

    def close(self) -> None:
        """See ``OffsetsChannel.close``."""
        with self._lock:
            self._closed = True
            coordinator, self._coordinator = self._coordinator, None
        if coordinator is not None:
            coordinator.cluster.close()

    def _connected_coordinator(self) -> CoordinatorClient:
        coordinator = self._current_coordinator()
        deadline = coordinator.cluster.deadline(self._timeout_ms)
        action = f"looking up the coordinator of group {self._group!r}"
        try:
            coordinator.cluster.retry(action, deadline, lambda: coordinator.address(deadline))
        except NetworkError:
            with self._lock:
                if self._coordinator is coordinator:
                    self._coordinator = None
            coordinator.cluster.close()
            raise
        return coordinator

    def _current_coordinator(self) -> CoordinatorClient:
        with self._lock:
            if self._closed:
                raise NetworkError(f"the offsets channel of group {self._group!r} is closed")
            if self._coordinator is None:
                self._coordinator = CoordinatorClient(self._make_cluster(), self._group)
            return self._coordinator


def registered_brokers(protocol: SecurityProtocol, store: Store, hint: str) -> str:
    """Return the registered brokers with a listener of ``protocol`` as ``host:port,host:port``. Raises
    NetworkError, with ``hint``, if there are none.
    """
    found = addresses_with(protocol, store)
    if not found:
        raise NetworkError(f"no broker with a listener for {protocol.name} is registered: {hint}")
    return ",".join(found)
