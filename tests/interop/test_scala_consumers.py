"""The high-level consumer of Apache Kafka 0.10.1.1 and ours in one group."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from minikafka.base.errors import NoNode
from minikafka.clients.admin.admin import Admin, NewTopic
from minikafka.clients.consumer.assignment import AssignmentContext, create_assignor
from minikafka.clients.network.cluster import ClusterClient as Client
from minikafka.clients.produce import BatchingProducer
from minikafka.embedded.cluster import Cluster
from minikafka.embedded.java import find_java
from minikafka.embedded.process import wait_until
from minikafka.registry import paths
from minikafka.registry.zookeeper import ZooKeeperStore
from tests.interop.releases import JVM, KAFKA_0_10, java_environment

pytestmark = [pytest.mark.interop, pytest.mark.timeout(180)]

PATIENCE_S = 60
PARTITIONS = 4
PROGRAM = Path(__file__).parent / "programs" / "streams.py"


class Reader:
    """A consumer in a process of its own, and what it has printed."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
        self.lines: list[str] = []
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        self.lines.extend(line.strip() for line in iter(self._process.stdout.readline, ""))

    def stop(self) -> None:
        self._process.terminate()
        self._end()

    def kill(self) -> None:
        self._process.kill()
        self._end()

    def _end(self) -> None:
        self._process.wait(PATIENCE_S)
        self._thread.join()
        assert self._process.stdout is not None
        self._process.stdout.close()


class Group:
    """Consumers of both kinds in one group, on one topic that is filled meanwhile."""

    def __init__(self, cluster: Cluster, client: Client, name: str, topic: str, **settings: str) -> None:
        self.name, self.topic = name, topic
        self.sent: list[str] = []
        self.readers: list[Reader] = []
        self._settings = {
            "group.id": name,
            "auto.commit.interval.ms": "200",
            "rebalance.backoff.ms": "500",
            "rebalance.max.retries": "20",
            "zookeeper.session.timeout.ms": "2000",
            **settings,
        }
        self._cluster = cluster
        self._store = ZooKeeperStore(cluster.zookeeper_connect)
        Admin(client).create_topic(NewTopic(topic, PARTITIONS))
        self._producer = BatchingProducer(client)

    def __enter__(self) -> Group:
        return self

    def __exit__(self, *exc: object) -> None:
        for reader in self.readers:
            reader.kill()
        self._producer.close()
        self._store.close()

    def ours(self, name: str, streams: int = 1) -> Reader:
        settings = {
            **self._settings,
            "consumer.id": name,
            "zookeeper.connect": self._cluster.zookeeper_connect,
            "auto.offset.reset": "smallest",
        }
        given = [f"{key}={value}" for key, value in settings.items()]
        return self._begun([sys.executable, str(PROGRAM), *given, "--", self.topic, str(streams)], None)

    def theirs(self, name: str) -> Reader:
        settings = {**self._settings, "consumer.id": name}
        given = [
            part for key, value in settings.items() for part in ("--consumer-property", f"{key}={value}")
        ]
        at = ("--zookeeper", self._cluster.zookeeper_connect, "--whitelist", self.topic)
        command = [find_java().path, *JVM, "-cp", f"{KAFKA_0_10.libs()}/*", "kafka.tools.ConsoleConsumer"]
        return self._begun([*command, *at, *given], java_environment())

    def _begun(self, command: Sequence[str], environment: Mapping[str, str] | None) -> Reader:
        self.readers.append(Reader(command, environment))
        return self.readers[-1]

    def send(self, count: int = 40) -> list[str]:
        values = [str(len(self.sent) + number) for number in range(count)]
        for value in values:
            self._producer.send(self.topic, value.encode(), partition=int(value) % PARTITIONS)
        self._producer.flush()
        self.sent += values
        return values

    def owners(self) -> dict[int, str]:
        above = f"{paths.CONSUMERS}/{self.name}/owners/{self.topic}"
        found = {}
        with contextlib.suppress(NoNode):
            for number in self._store.children(above):
                found[int(number)] = self._store.read(f"{above}/{number}")[0].decode()
        return found

    def shared_by(self, **threads: int) -> bool:
        """Return True if these consumers, with so many streams, own their assignor's partitions."""
        names = {f"{self.name}_{name}": {self.topic: count} for name, count in threads.items()}
        assigned: dict[int, str] = {}
        for name in names:
            context = AssignmentContext.of(self.name, name, names, {self.topic: range(PARTITIONS)})
            for tp, thread in create_assignor("range").assign(context)[name].items():
                assigned[tp.partition] = str(thread)
        return self.owners() == assigned

    def await_shared_by(self, **threads: int) -> None:
        assert wait_until(lambda: self.shared_by(**threads), PATIENCE_S, every_s=0.05), self.owners()

    def await_read(self, values: list[str], *readers: Reader) -> None:
        def read() -> bool:
            return set(values) <= {line for reader in readers for line in reader.lines}

        assert wait_until(read, PATIENCE_S, every_s=0.05)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    KAFKA_0_10.libs()
    with Cluster() as made:
        yield made


@pytest.mark.slow
@pytest.mark.parametrize("storage", ["zookeeper", pytest.param("kafka", marks=pytest.mark.long)])
def test_both_share_the_partitions_and_each_takes_over_from_the_other(cluster: Cluster, storage: str) -> None:
    topic = f"t-{storage}"
    with (
        Client(cluster.bootstrap_servers) as client,
        Group(cluster, client, f"mixed-{storage}", topic, **{"offsets.storage": storage}) as group,
    ):
        ours = group.ours("a", streams=2)
        group.await_read(group.send(), ours)
        theirs = group.theirs("b")
        group.await_shared_by(a=2, b=1)
        group.await_read(group.send(), ours, theirs)
        assert {int(value) % PARTITIONS for value in theirs.lines} == {3}
        theirs.kill()
        group.await_shared_by(a=2)
        group.await_read(group.send(), ours)
        again = group.theirs("c")
        group.await_shared_by(a=2, c=1)
        group.await_read(group.send(), ours, again)
        ours.kill()
        group.await_shared_by(c=1)
        group.await_read(group.send(), again)
        last = group.ours("d")
        group.await_shared_by(c=1, d=1)
        group.await_read(group.send(), again, last)
        # Who leaves in order leaves nothing to be read twice.
        before = len(again.lines) + len(last.lines)
        last.stop()
        group.await_shared_by(c=1)
        group.await_read(group.send(), again)
        again.stop()
        assert len(again.lines) + len(last.lines) == before + 40
        everything = [line for reader in (ours, theirs, again, last) for line in reader.lines]
        assert set(everything) == set(group.sent)
