"""A group's offsets at the broker that coordinates it: the channel to the offset manager, as the texts say
it.

A commit is one attempt and a fetch one answer; who coordinates is looked up again after whatever says that it
is another one, or does not answer, and look-ups are tried until they succeed or the time is up.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from minikafka.base.errors import MinikafkaError, NetworkError
from minikafka.base.ids import TopicPartition
from minikafka.clients.group.coordinator_client import CoordinatorClient
from minikafka.clients.group.offsets import Author, Committed, check_commit, commit_request, committed_offsets
from minikafka.clients.network.cluster import ClusterClient
from minikafka.registry.brokers import plaintext_addresses
from minikafka.registry.store import Store
from minikafka.wire.apis.offset_commit import OFFSET_COMMIT


class OffsetsChannel(Protocol):
    """Where offsets are kept that are not in ZooKeeper."""

    def connect(self) -> None:
        """Find the coordinator, if it is not known. NetworkError or BrokerError once the time is up."""

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """One attempt. NetworkError or BrokerError."""

    def fetch(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """What is committed of them, without those that nothing is. NetworkError or BrokerError."""

    def close(self) -> None:
        """Let go what is under way."""


class GroupOffsetsChannel:
    """To the coordinator of ``group``. ``make_cluster`` gives a client of the cluster as it is now; it is
    asked again after nobody has answered. Thread-safe.
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
        self._connected()

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """See ``OffsetsChannel.commit``; looking for the coordinator before it is no attempt."""
        coordinator = self._connected()
        deadline = coordinator.cluster.deadline(self._timeout_ms)
        committed = {tp: Committed(offset) for tp, offset in offsets.items()}
        request = commit_request(self._group, Author(), committed)
        try:
            reply = coordinator.send(OFFSET_COMMIT, lambda _: request, deadline)
            check_commit(self._group, reply.result(max(1, deadline.remaining_ms())))
        except MinikafkaError as error:
            coordinator.judge(error)
            raise

    def fetch(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """See ``OffsetsChannel.fetch``."""
        coordinator = self._connected()
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

    def _connected(self) -> CoordinatorClient:
        coordinator = self._of_now()
        deadline = coordinator.cluster.deadline(self._timeout_ms)
        what = f"looking for the coordinator of group {self._group!r}"
        try:
            coordinator.cluster.retrying(what, deadline, lambda: coordinator.address(deadline))
        except NetworkError:
            with self._lock:
                if self._coordinator is coordinator:
                    self._coordinator = None
            coordinator.cluster.close()
            raise
        return coordinator

    def _of_now(self) -> CoordinatorClient:
        with self._lock:
            if self._closed:
                raise NetworkError(f"the channel to the offsets of group {self._group!r} is closed")
            if self._coordinator is None:
                self._coordinator = CoordinatorClient(self._make_cluster(), self._group)
            return self._coordinator


def brokers_in(store: Store, if_none: str) -> str:
    """The brokers that are registered, as ``host:port,host:port``. NetworkError where there are none, which
    says ``if_none``.
    """
    found = plaintext_addresses(store)
    if not found:
        raise NetworkError(f"no broker that takes plain text is registered: {if_none}")
    return ",".join(found)
