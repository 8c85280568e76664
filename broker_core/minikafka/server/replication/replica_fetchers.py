"""All fetchers of a broker: who copies which partition."""

from __future__ import annotations

from collections.abc import Callable

from minikafka.base.ids import BrokerAddress, TopicPartition
from minikafka.net.interfaces import Connector
from minikafka.partition.partition import Partition
from minikafka.server.core.broker import Broker
from minikafka.server.inter_broker_connection import InterBrokerConnection
from minikafka.server.replication.replica_fetcher import Owner, ReplicaFetcher


class Fetchers:
    """All fetchers of a broker. ``spawn`` lets one run on a thread; None where somebody else steps them."""

    def __init__(
        self,
        broker: Broker,
        connector: Connector,
        spawn: Callable[[InterBrokerConnection, str], None] | None,
    ) -> None:
        self._broker = broker
        self._connector = connector
        self._spawn = spawn
        self._fetchers: dict[tuple[BrokerAddress, int], ReplicaFetcher] = {}
        self._by_partition: dict[TopicPartition, ReplicaFetcher] = {}
        self.owner: Owner
        """To be set before anything is followed."""

    def follow(
        self, partition: Partition, leader: BrokerAddress, leader_epoch: int, *, is_ahead: bool = False
    ) -> None:
        """Copy a partition from ``leader`` from now on, and from nobody else. ``is_ahead``: see
        ``FollowerFetchUpdate``.
        """
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
        """Copy a partition no longer. Once this has returned nothing more is written to it."""
        fetcher = self._by_partition.pop(topic_partition, None)
        if fetcher is not None:
            fetcher.remove(topic_partition)

    def sweep(self) -> None:
        """End the fetchers that have nothing to copy any more."""
        for key, fetcher in list(self._fetchers.items()):
            if not len(fetcher):
                fetcher.stop()
                del self._fetchers[key]

    def step(self) -> bool:
        """One step of each; whether any had something to do."""
        return any(tuple(fetcher.step() for fetcher in list(self._fetchers.values())))

    def stop(self) -> None:
        """Copy nothing any more."""
        for topic_partition in list(self._by_partition):
            self.leave(topic_partition)
        self.sweep()
