"""The access of one user to the cluster: its client, what administers through it, and the lag it has seen."""

from __future__ import annotations

from functools import cached_property

from minikafka.base.ids import OFFSETS_TOPIC
from minikafka.clients.admin.admin import Admin
from minikafka.clients.admin.group_stores import GroupStores
from minikafka.clients.admin.groups import GroupAdmin
from minikafka.clients.admin.transactions import TransactionAdmin
from minikafka.clients.admin.zookeeper.groups import ZooKeeperGroups
from minikafka.clients.network.cluster import ClusterClient
from minikafka.console.lag_history import LagHistory
from minikafka.registry.paths import topic_path
from minikafka.registry.store import Store


class Access:
    """A client of the cluster with the rights of one user. Thread-safe."""

    def __init__(self, cluster: ClusterClient, store: Store | None = None) -> None:
        self.cluster = cluster
        self.store = store
        self.admin = Admin(cluster)
        self.groups = GroupAdmin(cluster)
        self.transactions = TransactionAdmin(cluster)
        self.lag_history = LagHistory(self.groups)

    @cached_property
    def zookeeper_groups(self) -> ZooKeeperGroups | None:
        """The groups in ZooKeeper; None if its address is not known."""
        return None if self.store is None else ZooKeeperGroups(self.store)

    @property
    def group_stores(self) -> GroupStores:
        """The groups in both storages."""
        kept = self.store is None or self.store.exists(topic_path(OFFSETS_TOPIC)) is not None
        return GroupStores(self.groups, self.zookeeper_groups, keeps_offsets=kept)

    def close(self) -> None:
        """End the look-ups of lag, and close all connections."""
        self.lag_history.close()
        self.cluster.close()
