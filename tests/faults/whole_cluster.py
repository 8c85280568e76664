"""A cluster of real processes with recording clients, and the checks after the end of all faults.

Three brokers, and three replicas of which two must be in sync; the same for the offsets of groups.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import ClassVar

from minikafka.base.errors import BrokerError, ErrorCode, MinikafkaError
from minikafka.base.files import RealFiles
from minikafka.base.ids import OFFSETS_TOPIC, TopicPartition
from minikafka.clients import zookeeper_metadata
from minikafka.embedded.cluster import Cluster
from minikafka.embedded.process import wait_until
from minikafka.embedded.zookeeper import EmbeddedZooKeeper
from minikafka.log.layout import Layout
from minikafka.log.tools.dump import dump_records
from minikafka.net.ports import free_port
from minikafka.records.format.hashes import partition_of_group
from minikafka.records.format.record import StoredRecord
from minikafka.registry.brokers import live_brokers
from minikafka.registry.controller import ControllerRegistration
from minikafka.registry.paths import CONTROLLER
from minikafka.registry.topics import read_states
from minikafka.registry.zookeeper import ZooKeeperStore
from tests.faults import anomalies
from tests.faults.links import Links
from tests.faults.watched_clients import CONFIG as TOPIC_CONFIG
from tests.faults.watched_clients import CONFLUENT, TOPIC, Clients

PARTITIONS = 3
OFFSETS_PARTITIONS = 3
PATIENCE_S = 90.0
"""The limit of time from the end of all faults until the cluster has recovered."""
LEAVING_S = 5.0
SESSION_MS = 2_000
ZOOKEEPER = "zookeeper"
CONFIG = {
    # The time until a killed broker counts as dead.
    "zookeeper.session.timeout.ms": str(SESSION_MS),
    "zookeeper.connection.timeout.ms": "60000",
    "replica.lag.time.max.ms": "3000",
    "min.insync.replicas": "2",
    "offsets.topic.num.partitions": str(OFFSETS_PARTITIONS),
}


class WholeCluster:
    """ZooKeeper, brokers, relays between them (``linked``), and the clients. A context manager."""

    CONFIG: ClassVar[Mapping[str, str]] = CONFIG
    TOPIC: ClassVar[str] = TOPIC

    def __init__(
        self, directory: Path, *, brokers: int = 3, linked: bool = False, partitions: int = PARTITIONS
    ) -> None:
        self.directory = directory
        self.count = brokers
        self.partitions = partitions
        self.linked = linked
        self._open = ExitStack()
        self.links: Links
        self.zookeeper: EmbeddedZooKeeper
        self.cluster: Cluster
        self.store: ZooKeeperStore
        self.clients: Clients

    def __enter__(self) -> WholeCluster:
        with ExitStack() as opened:
            self.zookeeper = opened.enter_context(EmbeddedZooKeeper(str(self.directory / "zk")))
            self.links = opened.enter_context(Links(self.pids))
            own = {number: self._addresses(number) for number in range(self.count if self.linked else 0)}
            self.cluster = Cluster(
                self.count,
                self.directory / "data",
                self.CONFIG,
                zookeeper=self.zookeeper.connect,
                broker_configs=own,
            )
            opened.enter_context(self.cluster)
            self.store = opened.enter_context(contextlib.closing(ZooKeeperStore(self.zookeeper.connect)))
            self.clients = self._begin_clients()
            opened.callback(self._stop_clients)
            self._open = opened.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def _begin_clients(self) -> Clients:
        try:
            self.cluster.create_topic(TOPIC, self.partitions, replicas=3, config=TOPIC_CONFIG)
        except BrokerError as error:
            # On a busy machine the controller may lose its session before it answers; the next one has it.
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
        return Clients(self.cluster.bootstrap_servers, self.partitions)

    def _stop_clients(self) -> None:
        """Stop clients that still run after a failure, without their results."""
        clients = (*self.clients.senders, *self.clients.readers)
        for client in clients:
            client.stopping.set()
        for client in clients:
            client.join(LEAVING_S)

    def _addresses(self, number: int) -> dict[str, str]:
        port = free_port()
        relay = self.links.add(str(number), port)
        zookeeper = self.links.add(ZOOKEEPER, self.zookeeper.port, str(number))
        return {
            "zookeeper.connect": f"127.0.0.1:{zookeeper}",
            "listeners": f"PLAINTEXT://127.0.0.1:{port}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{relay}",
        }

    def pids(self) -> Mapping[str, int]:
        """Return the running broker processes."""
        found = {}
        for number in range(self.count):
            with contextlib.suppress(KeyError, AttributeError, MinikafkaError):
                found[str(number)] = self.cluster.broker(number).pid
        return found

    # --- roles ----------------------------------------------------------------------------------------------

    def leader(self, partition: int) -> int:
        """Return the leader of a partition of the topic; -1 for none."""
        name = TopicPartition(self.TOPIC, partition)
        return read_states(self.store, [name])[name].leader

    def controller(self) -> int:
        """Return the id of the controller."""
        return ControllerRegistration.from_json(self.store.read(CONTROLLER)[0]).broker_id

    def coordinator(self, group: str = CONFLUENT) -> int:
        """Return the leader of a group's offsets partition; -1 for none."""
        partition = TopicPartition(OFFSETS_TOPIC, partition_of_group(group, OFFSETS_PARTITIONS))
        found = read_states(self.store, [partition])
        return found[partition].leader if partition in found else -1

    def in_sync(self, count: int) -> bool:
        """Return True if all partitions have a live leader and ``count`` in-sync replicas."""
        live = live_brokers(self.store)
        found = read_states(self.store, zookeeper_metadata.assigned(self.store))
        return all(state.leader in live and len(state.isr) == count for state in found.values())

    # --- recovery -------------------------------------------------------------------------------------------

    def wait_for_progress(self) -> str:
        """Wait until each client has made progress. Return the slowest clients and their time."""
        mark, began = self.clients.mark(), time.monotonic()
        slowest = ""

        def all_made_progress() -> bool:
            nonlocal slowest
            if self.clients.history.wrong:
                raise AssertionError(f"reported by a client: {self.clients.history.wrong[:3]}")
            waiting = [
                name
                for name, now, before in zip(self.clients.names, self.clients.progress(), mark, strict=True)
                if now <= before
            ]
            if waiting:
                slowest = f"{', '.join(waiting)} after {time.monotonic() - began:.1f} s"
            return not waiting

        if not wait_until(all_made_progress, PATIENCE_S, 0.05):
            raise AssertionError(f"not all clients make progress: {slowest}")
        return slowest

    def recover(self) -> tuple[float, str]:
        """Wait until all clients make progress, all brokers are alive, and all replicas in sync. Return the
        seconds that it took, and a summary. Raises AssertionError with what is missing.
        """
        began = time.monotonic()
        last = self.wait_for_progress()

        def whole() -> bool:
            with contextlib.suppress(MinikafkaError):
                return len(live_brokers(self.store)) == self.count and self.in_sync(3)
            return False

        if not wait_until(whole, PATIENCE_S, 0.05):
            found = read_states(self.store, zookeeper_metadata.assigned(self.store))
            raise AssertionError(f"not all replicas are in sync: {found}")
        took = time.monotonic() - began
        assert self.clients.forgotten() == []
        return took, f"{took:.1f} s, of the clients {last}"

    def end(self) -> None:
        """Stop the clients when they have read all. Raises AssertionError with all anomalies."""
        self.recover()
        self.clients.stop_sending()
        wait_until(lambda: self._different(TOPIC) == [], PATIENCE_S, 0.05)
        logs = {number: self._rows(number) for number in range(self.partitions)}

        def all_read() -> bool:
            return all(
                reader.positions.get(number, 0) > rows[-1][0]
                for reader in self.clients.readers
                for number, rows in logs.items()
            )

        wait_until(all_read, PATIENCE_S, 0.05)
        self.clients.stop_reading()
        forgotten = self.clients.forgotten()
        wait_until(lambda: self._different() == [], PATIENCE_S, 0.05)
        different = self._different()
        found = anomalies.find(self.clients.history, logs)
        if different:
            found["different replicas"] = different
        if forgotten:
            found["commits that went back"] = forgotten
        assert not found, anomalies.shown(found)

    def _different(self, *topics: str) -> list[str]:
        """Return the partitions of ``topics`` (default: all) whose replicas have different bytes."""
        assigned = zookeeper_metadata.assigned(self.store, topics or None)
        return [
            f"{partition}: {sizes}"
            for partition, replicas in sorted(assigned.items())
            if len(set(found := [self._bytes(number, partition) for number in replicas])) > 1
            and (sizes := dict(zip(replicas, map(len, found), strict=True)))
        ]

    def _bytes(self, number: int, partition: TopicPartition) -> bytes:
        return b"".join(path.read_bytes() for path in self._segments(number, partition))

    def _segments(self, number: int, partition: TopicPartition) -> list[Path]:
        directory = self.directory / "data" / f"broker-{number}" / Layout.CLASSIC.directory_name(partition)
        return sorted(directory.glob(f"*{Layout.CLASSIC.segment_suffix}"))

    def _rows(self, number: int) -> list[tuple[int, bytes]]:
        return [
            (record.offset, record.value or b"") for record in self._records(TopicPartition(TOPIC, number))
        ]

    def _records(self, partition: TopicPartition) -> Iterator[StoredRecord]:
        """Yield the records of a partition's first replica."""
        replica = zookeeper_metadata.assigned(self.store)[partition][0]
        return records_in(self._segments(replica, partition))


def records_in(segments: Iterable[Path]) -> Iterator[StoredRecord]:
    """Yield the records of a log. Raises AssertionError for damage."""
    for path in segments:
        for record in dump_records(RealFiles(), os.fspath(path)):
            assert isinstance(record, StoredRecord), str(record)
            yield record


def until(condition: Callable[[], bool], what: str) -> None:
    """Wait for ``condition``. Raises AssertionError with ``what`` after the time-out."""
    assert wait_until(condition, PATIENCE_S, 0.05), what
