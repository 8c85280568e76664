"""A cluster of real processes with transactional clients, and the checks after the end of all faults.

The topics have three replicas of which two must be in sync, as have ``__transaction_state`` and
``__consumer_offsets``. The committed records are found in the segments, by their markers alone.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from minikafka.base.ids import TRANSACTION_STATE_TOPIC, TopicPartition
from minikafka.embedded.process import wait_until
from minikafka.records.format.hashes import partition_of_group
from minikafka.registry.topics import read_states
from tests.faults import transaction_anomalies
from tests.faults.anomalies import Rows, shown
from tests.faults.committed_readers import ALL, COPIES, COPIES_PARTITIONS, LIST, LIST_PARTITIONS, LISTS
from tests.faults.transaction_anomalies import committed_rows
from tests.faults.transactional_clients import TransactionalClients
from tests.faults.whole_cluster import CONFIG, PATIENCE_S, WholeCluster

STATE_PARTITIONS = 3
ABORT_EVERY_MS = 300
"""The time between two searches for transactions that are open for too long."""


class TransactionalCluster(WholeCluster):
    """The cluster with its transactional clients. Its coordinators are those of transactions and groups."""

    CONFIG: ClassVar[Mapping[str, str]] = {
        **CONFIG,
        "transaction.state.log.num.partitions": str(STATE_PARTITIONS),
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": str(ABORT_EVERY_MS),
    }
    TOPIC: ClassVar[str] = LIST

    def __init__(self, directory: Path, *, linked: bool = False) -> None:
        super().__init__(directory, linked=linked, partitions=LIST_PARTITIONS)
        self.clients: TransactionalClients
        self._roles = itertools.count()

    def _begin_clients(self) -> TransactionalClients:
        for topic, partitions in ((LIST, LIST_PARTITIONS), (COPIES, COPIES_PARTITIONS)):
            self.cluster.create_topic(topic, partitions, replicas=3, config={"min.insync.replicas": "2"})
        return TransactionalClients(self.cluster.bootstrap_servers)

    def coordinator(self, group: str = "") -> int:
        """Return the coordinator of a writer's transactions, or that of a copier's group; -1 for none."""
        number = next(self._roles)
        if number % 3 == 2:
            copiers = self.clients.copiers
            return super().coordinator(copiers[number % len(copiers)].name)
        name = self.clients.senders[number % len(self.clients.senders)].name
        partition = TopicPartition(TRANSACTION_STATE_TOPIC, partition_of_group(name, STATE_PARTITIONS))
        states = read_states(self.store, [partition])
        return states[partition].leader if partition in states else -1

    def end(self) -> None:
        """Stop the clients when they have copied and read all. Raises AssertionError with all anomalies."""
        self.recover()
        end_clients(self.clients, self._committed)
        wait_until(lambda: self._different() == [], PATIENCE_S, 0.05)
        found = anomalies_of(self.clients, self._committed)
        different = self._different()
        if different:
            found["different replicas"] = different
        assert not found, shown(found)

    def _committed(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, Rows]:
        wait_until(lambda: self._different(*{name.topic for name in partitions}) == [], PATIENCE_S, 0.05)
        return {name: committed_rows(self._records(name)) for name in partitions}


Committed = Callable[[Collection[TopicPartition]], dict[TopicPartition, Rows]]
"""Returns the committed records of partitions."""


def end_clients(clients: TransactionalClients, committed: Committed) -> None:
    """Stop the writers, then the copiers and the readers when they have come to the ends."""
    clients.stop(clients.writers)
    lists = committed(LISTS)
    wait_until(lambda: all(is_at_end(copier.copied, lists) for copier in clients.copiers), PATIENCE_S, 0.05)
    clients.stop(clients.copiers)
    for copier in clients.copiers:
        if not is_at_end(copier.copied, lists):
            clients.history.wrong.append(f"{copier.name} has only come to {copier.copied}")
    logs = committed(ALL)
    wait_until(lambda: all(is_at_end(reader.positions, logs) for reader in clients.readers), PATIENCE_S, 0.05)
    clients.stop(clients.readers)


def is_at_end(positions: Mapping[TopicPartition, int], logs: Mapping[TopicPartition, Rows]) -> bool:
    """Return True if no record is at the positions or after them."""
    return all(not rows or positions.get(name, 0) > rows[-1][0] for name, rows in logs.items())


def anomalies_of(clients: TransactionalClients, committed: Committed) -> dict[str, Sequence[str]]:
    """Return the anomalies of clients that have ended."""
    return {**transaction_anomalies.find(clients.history, committed(ALL), clients.offsets())}
