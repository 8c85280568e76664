"""What finds the leaders of partitions that have none, or whose leader has changed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Protocol

from minikafka.base.errors import CoordinationError, MinikafkaError
from minikafka.base.ids import BrokerAddress, TopicPartition
from minikafka.clients.consumer.runtime import RetryLog, ShutdownableThread
from minikafka.clients.network.cluster import ClusterClient
from minikafka.registry.brokers import plaintext_addresses
from minikafka.registry.paths import BROKER_IDS
from minikafka.registry.store import Store

_IDLE_MS = 60_000
_METADATA_MS = 5_000
"""Longest question; then the brokers that live are looked up again."""


class Fetchers(Protocol):
    """Who has the fetchers: a ``ConsumerFetcherManager``."""

    def partitions_without_leader(self) -> Collection[TopicPartition]:
        """Those to be looked for."""

    def add_fetcher_for_partitions(self, leaders: Mapping[TopicPartition, BrokerAddress]) -> None:
        """Fetch these from there."""

    def shutdown_idle_fetcher_threads(self) -> None:
        """End those that have nothing to fetch."""


class LeaderFinderThread(ShutdownableThread):
    """Finds leaders (``LeaderFinderThread`` of text 004): the live brokers in ZooKeeper, and what they say.

    ``cluster_of`` makes a client of ``host:port,…``.
    """

    def __init__(
        self,
        name: str,
        store: Store,
        fetchers: Fetchers,
        cluster_of: Callable[[str], ClusterClient],
        refresh_leader_backoff_ms: int,
        troubles: RetryLog,
    ) -> None:
        super().__init__(name)
        self._store = store
        self._fetchers = fetchers
        self._cluster_of = cluster_of
        self._troubles = troubles
        self._backoff_ms = refresh_leader_backoff_ms
        self._brokers = ""
        self._cluster: ClusterClient | None = None

    def do_work(self) -> None:
        """Look once for all that have no leader; then leave ``refresh.leader.backoff.ms`` before the next."""
        wanted = self._fetchers.partitions_without_leader()
        if not wanted:
            self.wait_for_work(_IDLE_MS)
            return
        try:
            leaders = self._leaders(wanted)
        except MinikafkaError as error:
            leaders = {}
            if self.running:
                self._troubles.met(self.name, error, f"no leader found for {_some(wanted)}: ")
        else:
            self._troubles.over(self.name)
        if not self.running:
            return
        self._fetchers.add_fetcher_for_partitions(leaders)
        self._fetchers.shutdown_idle_fetcher_threads()
        self.back_off(self._backoff_ms)

    def initiate_shutdown(self) -> None:
        """Let it end soon: what it waits for is cut off."""
        super().initiate_shutdown()
        cluster = self._cluster
        if cluster is not None:
            cluster.close()

    def _leaders(self, wanted: Collection[TopicPartition]) -> dict[TopicPartition, BrokerAddress]:
        topics = sorted({tp.topic for tp in wanted})
        metadata = self._client().metadata(topics, refresh=True, timeout_ms=_METADATA_MS)
        found = {tp: metadata.leader(tp) for tp in wanted}
        return {tp: leader for tp, leader in found.items() if leader is not None}

    def _client(self) -> ClusterClient:
        """A client of the brokers that live; of those that did when ZooKeeper cannot be asked."""
        brokers = self._brokers
        try:
            brokers = ",".join(plaintext_addresses(self._store)) or brokers
        except CoordinationError as error:
            if not brokers:
                raise
            self._troubles.met(f"{self.name}'s ZooKeeper", error, "asking the brokers that are known: ")
        else:
            self._troubles.over(f"{self.name}'s ZooKeeper")
        if not brokers:
            raise CoordinationError(f"{BROKER_IDS} names no broker that can be asked")
        if self._cluster is None or brokers != self._brokers:
            if self._cluster is not None:
                self._cluster.close()
            self._cluster, self._brokers = self._cluster_of(brokers), brokers
        if not self.running:
            # ``initiate_shutdown`` may have come before there was something to close.
            self._cluster.close()
        return self._cluster


def _some(partitions: Collection[TopicPartition]) -> str:
    names = sorted(map(str, partitions))
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
