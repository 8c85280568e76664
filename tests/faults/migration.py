"""A group whose offsets move from ZooKeeper to the brokers and back while it reads.

A producer writes numbered messages throughout. Consumers are restarted one after another with the settings of
the next step, and ``Watcher`` reads the committed offsets in both storages: the smallest offset at which the
next owner of a partition may start, with any of the settings in use, must never decrease.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple, Protocol

from minikafka.base.errors import MinikafkaError
from minikafka.base.ids import TopicPartition
from minikafka.clients.admin.groups import GroupAdmin
from minikafka.clients.consumer.config import ConsumerConfig
from minikafka.clients.consumer.zookeeper_connector import ZookeeperConsumerConnector
from minikafka.clients.network.cluster import ClusterClient as Client
from minikafka.clients.produce import BatchingProducer
from minikafka.embedded.cluster import Cluster
from minikafka.embedded.process import wait_until
from minikafka.registry import paths
from minikafka.registry.consumer_offsets import read_offsets
from minikafka.registry.zookeeper import ZooKeeperStore

GROUP, TOPIC = "g", "t"
BUSY = 5
"""The number of partitions that are written throughout."""
IDLE = TopicPartition(TOPIC, BUSY)
"""One more, with a few messages now and then: its offset does not change during the migration."""
FEW = 10
PARTITIONS = [TopicPartition(TOPIC, number) for number in range(BUSY + 1)]
PATIENCE_S = 60
LOOK_EVERY_S = 0.01

Offsets = Mapping[TopicPartition, int]


class Settings(NamedTuple):
    """The offset settings of a step."""

    storage: str
    dual: bool

    def properties(self) -> dict[str, str]:
        return {"offsets.storage": self.storage, "dual.commit.enabled": str(self.dual).lower()}

    def begins_at(self, zookeeper: int, kafka: int) -> int:
        """Return the start offset of a consumer with these settings (-1: no committed offset)."""
        if self.dual:
            return max(zookeeper, kafka)
        return kafka if self.storage == "kafka" else zookeeper

    def written(self, zookeeper: Offsets, kafka: Offsets) -> bool:
        """Return True if all offsets that these settings require are committed: the next step may start."""
        named, other = (kafka, zookeeper) if self.storage == "kafka" else (zookeeper, kafka)
        return all(
            named.get(tp, -1) >= (max(other.get(tp, -1), 0) if self.dual else 0)
            and (tp in other or not self.dual)
            for tp in PARTITIONS
        )


ZOOKEEPER, ZOOKEEPER_AND_KAFKA = Settings("zookeeper", dual=False), Settings("zookeeper", dual=True)
KAFKA, KAFKA_AND_ZOOKEEPER = Settings("kafka", dual=False), Settings("kafka", dual=True)


class Reader(Protocol):
    """A consumer with the messages that it has read: partition, offset, value."""

    name: str
    settings: Settings
    got: list[tuple[int, int, str]]

    def close(self) -> None:
        """Stop it cleanly."""


class ThreadReader:
    """A consumer in this process."""

    def __init__(self, cluster: Cluster, name: str, settings: Settings, watcher: Watcher) -> None:
        self.name, self.settings = name, settings
        self.got: list[tuple[int, int, str]] = []
        self.behind: list[str] = []
        """Messages below the offset that the group had committed before."""
        self._watcher = watcher
        properties = {
            "group.id": GROUP,
            "zookeeper.connect": cluster.zookeeper_connect,
            "consumer.id": name,
            "auto.offset.reset": "smallest",
            "auto.commit.interval.ms": "100",
            "rebalance.backoff.ms": "200",
            "rebalance.max.retries": "50",
        }
        config = ConsumerConfig.from_properties(properties | settings.properties())
        self._connector = ZookeeperConsumerConnector(config)
        (self._stream,) = self._connector.create_message_streams({TOPIC: 1})[TOPIC]
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        for message in self._stream:
            self.got.append((message.partition, message.offset, bytes(message.message or b"").decode()))
            floor = self._watcher.low.get(TopicPartition(TOPIC, message.partition), -1)
            if message.offset < floor:
                self.behind.append(f"{self.name} got {message.partition}@{message.offset}, below {floor}")

    def close(self) -> None:
        self._connector.shutdown()
        self._thread.join()


class ProcessReader:
    """``minikafka consume`` in a process of its own."""

    def __init__(self, cluster: Cluster, name: str, settings: Settings, _: Watcher) -> None:
        self.name, self.settings = name, settings
        self.got: list[tuple[int, int, str]] = []
        properties = {
            "consumer.id": name,
            "auto.commit.interval.ms": "100",
            "rebalance.backoff.ms": "200",
            "rebalance.max.retries": "50",
            "zookeeper.session.timeout.ms": "1000",
        }
        words = ["consume", TOPIC, "--group", GROUP, "--zookeeper", cluster.zookeeper_connect]
        for key, value in (properties | settings.properties()).items():
            words += ["--property", f"{key}={value}"]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "minikafka.cli.main", *words, "--format", "json"],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in iter(self._process.stdout.readline, ""):
            # The last line of a killed process may be incomplete.
            with contextlib.suppress(json.JSONDecodeError):
                row = json.loads(line)
                self.got.append((row["partition"], row["offset"], row["value"]))

    def close(self) -> None:
        self._process.terminate()
        self._ended()

    def kill(self) -> None:
        """kill -9."""
        self._process.kill()
        self._ended()

    def _ended(self) -> None:
        self._process.wait(PATIENCE_S)
        self._thread.join()
        assert self._process.stdout is not None
        self._process.stdout.close()


class Watcher:
    """Reads the group's committed offsets, again and again."""

    def __init__(self, store: ZooKeeperStore, client: Client) -> None:
        self.low: dict[TopicPartition, int] = {}
        """The smallest offset at which the next owner of a partition may start."""
        self.faults: list[str] = []
        self.looks = 0
        self.in_use: Counter[Settings] = Counter()
        """The settings of running and starting consumers."""
        self._store, self._admin = store, GroupAdmin(client)
        self._seen: dict[tuple[str, TopicPartition], int] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Watcher:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._ended.set()
        self._thread.join()

    def places(self) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
        """Return the committed offsets in ZooKeeper and at the brokers."""
        kafka = {tp: committed.offset for tp, committed in self._admin.offsets(GROUP).items()}
        return read_offsets(self._store, GROUP), kafka

    def _run(self) -> None:
        try:
            while not self._ended.wait(LOOK_EVERY_S):
                self._look()
        except (MinikafkaError, AssertionError) as error:
            self.faults.append(f"the watcher itself: {error!r}")

    def _look(self) -> None:
        in_use = [settings for settings, count in list(self.in_use.items()) if count > 0]
        zookeeper, kafka = self.places()
        self.looks += 1
        for tp in PARTITIONS:
            in_zookeeper, in_kafka = zookeeper.get(tp, -1), kafka.get(tp, -1)
            self._never_back("in ZooKeeper", tp, in_zookeeper)
            self._never_back("at the brokers", tp, in_kafka)
            if in_use:
                low = min(settings.begins_at(in_zookeeper, in_kafka) for settings in in_use)
                self._never_back(f"for {in_use}", tp, low, among="the next owner")
                self.low[tp] = low

    def _never_back(self, where: str, tp: TopicPartition, offset: int, among: str | None = None) -> None:
        place = among or where, tp
        before = self._seen.get(place, -1)
        if offset < before:
            self.faults.append(f"{tp} goes back from {before} to {offset} {where}")
        self._seen[place] = offset


class Load:
    """Writes numbered messages to the busy partitions throughout."""

    def __init__(self, client: Client) -> None:
        self.sent: set[str] = set()
        self._producer = BatchingProducer(client)
        self._numbers = itertools.count()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Load:
        self.idle_gets_a_few()
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()
        self._producer.close()

    def stop(self) -> None:
        self._ended.set()
        self._thread.join()

    def idle_gets_a_few(self) -> None:
        for _ in range(FEW):
            self._send(IDLE)
        self._producer.flush()

    def _run(self) -> None:
        while not self._ended.wait(0.01):
            for tp in PARTITIONS[:BUSY]:
                self._send(tp)
            self._producer.flush()

    def _send(self, tp: TopicPartition) -> None:
        value = str(next(self._numbers))
        self._producer.send(tp.topic, value.encode(), partition=tp.partition)
        self.sent.add(value)


class Migration:
    """Three consumers, restarted one after another."""

    def __init__(
        self,
        cluster: Cluster,
        store: ZooKeeperStore,
        watcher: Watcher,
        load: Load,
        kind: type[ThreadReader] | type[ProcessReader],
    ) -> None:
        self.load = load
        self.watcher = watcher
        self.all: list[Reader] = []
        self.alive: list[Reader] = []
        self._cluster, self._store, self._kind = cluster, store, kind

    def begin(self, settings: Settings) -> None:
        for name in ("a", "b", "c"):
            self.joins(name, settings)
        self.wait_until_shared()

    def joins(self, name: str, settings: Settings) -> None:
        self.watcher.in_use[settings] += 1
        reader = self._kind(self._cluster, name, settings, self.watcher)
        self.alive.append(reader)
        self.all.append(reader)

    def leaves(self, reader: Reader, *, killed: bool = False) -> None:
        self.alive.remove(reader)
        if killed:
            assert isinstance(reader, ProcessReader)
            reader.kill()
            name = f"{GROUP}_{reader.name}-0"
            # Else znodes of its old session would count for the next consumer of its name.
            assert wait_until(lambda: self.owners()[name] == 0, PATIENCE_S)
        else:
            reader.close()
        self.watcher.in_use[reader.settings] -= 1

    def restarts(self, reader: Reader, settings: Settings, *, killed: bool = False) -> None:
        self.leaves(reader, killed=killed)
        self.joins(reader.name, settings)
        self.wait_until_shared()

    def owners(self) -> Counter[str]:
        """Return the number of partitions of each consumer."""
        path = f"{paths.CONSUMERS}/{GROUP}/owners/{TOPIC}"
        found = (f"{path}/{tp.partition}" for tp in PARTITIONS)
        return Counter(data.decode() for data, _ in self._store.read_all(found).values())

    def wait_until_shared(self) -> None:
        """Wait until every consumer has its partitions."""
        expected = Counter({f"{GROUP}_{name}-0": 2 for name in ("a", "b", "c")})
        assert wait_until(lambda: self.owners() == expected, PATIENCE_S), self.owners()

    def wait_until_written(self, settings: Settings) -> None:
        """Wait until all offsets of a step are committed.

        While consumers commit only to the brokers, the idle partition gets a few more messages: then only the
        migration can bring its offset to ZooKeeper.
        """
        if settings == KAFKA:
            _, kafka = self.watcher.places()
            self.load.idle_gets_a_few()
            assert wait_until(lambda: self.watcher.places()[1][IDLE] == kafka[IDLE] + FEW, PATIENCE_S)
        assert wait_until(lambda: settings.written(*self.watcher.places()), PATIENCE_S), settings

    def wait_until_all_is_read(self) -> None:
        def read() -> bool:
            return self.load.sent <= {value for reader in self.all for _, _, value in reader.got}

        assert wait_until(read, PATIENCE_S, every_s=0.05), "messages are missing"

    def close(self) -> None:
        for reader in list(self.alive):
            self.leaves(reader)

    def times(self) -> Counter[str]:
        """Return the number of times that each message was read."""
        return Counter(value for reader in self.all for _, _, value in reader.got)


@contextlib.contextmanager
def migrating(
    data_dir: Path, kind: type[ThreadReader] | type[ProcessReader] = ThreadReader
) -> Iterator[Migration]:
    """Run a cluster under load with the group, and close its consumers at the end."""
    with (
        Cluster(data_dir=data_dir, config={"offsets.topic.num.partitions": "1"}) as cluster,
        Client(cluster.bootstrap_servers) as client,
        contextlib.closing(ZooKeeperStore(cluster.zookeeper_connect)) as store,
    ):
        cluster.create_topic(TOPIC, partitions=len(PARTITIONS))
        with Load(client) as load, Watcher(store, client) as watcher:
            migration = Migration(cluster, store, watcher, load, kind)
            try:
                yield migration
            finally:
                migration.close()
