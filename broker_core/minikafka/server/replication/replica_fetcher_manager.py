"""The fetchers of a broker, and the assignment of partitions to them."""

from __future__ import annotations

from collections.abc import Callable

from minikafka.base.ids import BrokerAddress, TopicPartition
from minikafka.net.interfaces import Connector
from minikafka.partition.partition import Partition
from minikafka.server.core.broker import Broker
from minikafka.server.inter_broker_connection import InterBrokerConnection, first_due_ms, step_all
from minikafka.server.replication.replica_fetcher import LogOwner, ReplicaFetcher


class ReplicaFetcherManager:
    """All fetchers of a broker. ``spawn`` runs a fetcher on a thread; None if the caller steps them."""

    def __init__(
        self, broker: Broker, connector: Connector, spawn: Callable[[InterBrokerConnection, str], None] | None
    ) -> None:
        self._broker = broker
        self._connector = connector
        self._spawn = spawn
        self._fetchers: dict[tuple[BrokerAddress, int], ReplicaFetcher] = {}
        self._by_partition: dict[TopicPartition, ReplicaFetcher] = {}
        self.owner: LogOwner
        """Must be set before the first ``follow``."""

    def follow(
        self, partition: Partition, leader: BrokerAddress, leader_epoch: int, *, is_ahead: bool = False
    ) -> None:
        """Fetch a partition from ``leader`` and no other broker. ``is_ahead``: see ``FollowerPartition``."""
        self.leave(partition.topic_partition)
        share = partition.topic_partition.partition % self._broker.config.replication.fetchers
        key = leader, share
        fetcher = self._fetchers.get(key)
        if fetcher is None:
            fetcher = ReplicaFetcher(self._broker, leader, self._connector, self.owner)
            self._fetchers[key] = fetcher
            if self._spawn is not None:
                self._spawn(fetcher, f"fetcher-{leader.broker_id}-{share}")
        fetcher.add(partition, leader_epoch, is_ahead=is_ahead)
        self._by_partition[partition.topic_partition] = fetcher

    def leave(self, topic_partition: TopicPartition) -> None:
        """Stop fetching a partition. Once this has returned nothing more is written to it."""
        fetcher = self._by_partition.pop(topic_partition, None)
        if fetcher is not None:
            fetcher.remove(topic_partition)

    def sweep(self) -> None:
        """Stop the fetchers that have no partitions left."""
        for key, fetcher in list(self._fetchers.items()):
            if not len(fetcher):
                fetcher.stop()
                del self._fetchers[key]

    def step(self) -> bool:
        """Run one step of each fetcher. Return True if any had work."""
        return step_all(self._fetchers.values())

    def due_ms(self) -> int:
        """Return the time (monotonic) before which ``step`` has no work if nothing is delivered."""
        return first_due_ms(self._fetchers.values())

    def stop(self) -> None:
        """Stop fetching all partitions."""
        for topic_partition in list(self._by_partition):
            self.leave(topic_partition)
        self.sweep()
