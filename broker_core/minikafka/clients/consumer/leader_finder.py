"""The thread that looks up the leaders of partitions whose leader is unknown."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

from minikafka.base.endpoints import SecurityProtocol
from minikafka.base.errors import AuthenticationFailed, CoordinationError, MinikafkaError
from minikafka.base.ids import BrokerAddress, TopicPartition
from minikafka.base.text import first_of
from minikafka.clients.consumer.runtime import ShutdownableThread
from minikafka.clients.network.cluster import ClusterClient
from minikafka.clients.network.outage_log import FailureLog
from minikafka.registry.brokers import addresses_with
from minikafka.registry.paths import BROKER_IDS
from minikafka.registry.store import Store
from minikafka.wire.fields import ZERO_UUID

_IDLE_MS = 60_000
_METADATA_TIMEOUT_MS = 5_000
"""Timeout of one metadata request; after it the live brokers are looked up again."""


class Leader(NamedTuple):
    """The leader of a partition, its leader epoch (-1: unknown), and the id of the topic (zero: unknown)."""

    broker: BrokerAddress
    epoch: int
    topic_id: bytes = ZERO_UUID


class LeaderFinderThread(ShutdownableThread):
    """Looks up leaders with metadata requests to the brokers that are registered in ZooKeeper
    (``LeaderFinderThread`` of text 004).

    ``without_leader`` returns the partitions to look up, ``on_leaders`` gets the leaders found in each round,
    and ``make_cluster`` returns a client for ``host:port,…``, which are listeners with ``protocol``.
    ``on_refused`` gets the partitions that cannot be looked up as the brokers refuse the login of the client.
    """

    def __init__(
        self,
        name: str,
        store: Store,
        without_leader: Callable[[], Collection[TopicPartition]],
        on_leaders: Callable[[Mapping[TopicPartition, Leader]], None],
        make_cluster: Callable[[str], ClusterClient],
        on_refused: Callable[[Collection[TopicPartition], AuthenticationFailed], None],
        protocol: SecurityProtocol,
        refresh_leader_backoff_ms: int,
        failure_log: FailureLog,
    ) -> None:
        super().__init__(name)
        self._store = store
        self._without_leader = without_leader
        self._on_leaders = on_leaders
        self._make_cluster = make_cluster
        self._on_refused = on_refused
        self._protocol = protocol
        self._failure_log = failure_log
        self._backoff_ms = refresh_leader_backoff_ms
        self._brokers = ""
        self._cluster: ClusterClient | None = None

    def do_work(self) -> None:
        """Look up all partitions without a leader once, then wait for ``refresh.leader.backoff.ms``."""
        wanted = self._without_leader()
        if not wanted:
            self.wait_for_work(_IDLE_MS)
            return
        try:
            leaders = self._leaders(wanted)
        except AuthenticationFailed as error:
            leaders = {}
            self._on_refused(wanted, error)
        except MinikafkaError as error:
            leaders = {}
            if self.is_running:
                self._failure_log.record_failure(
                    self.name, error, f"no leader found for {first_of(sorted(map(str, wanted)), 3)}: "
                )
        else:
            self._failure_log.record_recovery(self.name)
        if self.is_running:
            self._on_leaders(leaders)
            self.back_off(self._backoff_ms)

    def initiate_shutdown(self) -> None:
        """Let the thread end soon: cancel the request that it waits for."""
        super().initiate_shutdown()
        cluster = self._cluster
        if cluster is not None:
            cluster.close()

    def _leaders(self, wanted: Collection[TopicPartition]) -> dict[TopicPartition, Leader]:
        topics = sorted({tp.topic for tp in wanted})
        metadata = self._client().metadata(topics, refresh=True, timeout_ms=_METADATA_TIMEOUT_MS)
        found = {tp: metadata.leader(tp) for tp in wanted}
        return {
            tp: Leader(leader, metadata.leader_epoch(tp), metadata.topic_id(tp.topic))
            for tp, leader in found.items()
            if leader is not None
        }

    def _client(self) -> ClusterClient:
        """Return a client of the live brokers, or of the last known ones if ZooKeeper does not answer."""
        brokers = self._brokers
        try:
            brokers = ",".join(addresses_with(self._protocol, self._store)) or brokers
        except CoordinationError as error:
            if not brokers:
                raise
            self._failure_log.record_failure(
                f"{self.name}'s ZooKeeper", error, "using the last known brokers: "
            )
        else:
            self._failure_log.record_recovery(f"{self.name}'s ZooKeeper")
        if not brokers:
            raise CoordinationError(f"{BROKER_IDS} has no broker with a listener for {self._protocol.name}")
        if self._cluster is None or brokers != self._brokers:
            if self._cluster is not None:
                self._cluster.close()
            self._cluster, self._brokers = self._make_cluster(brokers), brokers
        if not self.is_running:
            # ``initiate_shutdown`` may have run before this client existed.
            self._cluster.close()
        return self._cluster
