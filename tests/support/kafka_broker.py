"""A broker of Apache Kafka over a data directory; up to 3.9 it uses a ZooKeeper of ours, from 4 on none."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from minikafka.base.config.property_files import properties_text
from minikafka.clients.admin.admin import Admin
from minikafka.clients.network.cluster import ClusterClient
from minikafka.embedded.java import find_java
from minikafka.embedded.process import ChildProcess, wait_until
from minikafka.embedded.zookeeper import EmbeddedZooKeeper
from minikafka.net.ports import can_connect, free_port
from minikafka.registry.zookeeper import ZooKeeperStore
from tests.interop.releases import JVM, KAFKA_0_10, QUIET, Release, java_environment

START_TIMEOUT_S = 60.0
CLUSTER_ID = "7S3AX7H8RguvI3yOiOTuJw"
"""The id of a cluster without a ZooKeeper."""

_ALONE = {
    "offsets.topic.replication.factor": 1,
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
    "transaction.state.log.num.partitions": 1,
}


class KafkaBroker:
    """Broker ``number`` of a release.

    ``directory`` gets its properties and output; ``data`` is its data directory. ``zookeeper`` is not looked
    at by releases that have none. ``jvm``: options of Java. ``listeners``: those beside PLAINTEXT. ``scram``:
    arguments of ``--add-scram``, without a ZooKeeper. ``controller``: that of broker 0, which is this one's
    too, without a ZooKeeper.
    """

    def __init__(
        self,
        release: Release,
        directory: Path,
        zookeeper: str = "",
        *,
        number: int = 0,
        port: int | None = None,
        data: Path | None = None,
        config: Mapping[str, object] | None = None,
        jvm: Sequence[str] = (),
        listeners: Sequence[str] = (),
        scram: Sequence[str] = (),
        controller: str = "",
    ) -> None:
        self._jvm = jvm
        self._listeners = listeners
        self._scram = scram
        self._has_own_controller = not controller
        self.controller = controller or f"127.0.0.1:{free_port()}"
        self.port = free_port() if port is None else port
        self.bootstrap = f"127.0.0.1:{self.port}"
        self.number = number
        self.log = directory / "broker.log"
        self.release = release
        self.zookeeper = zookeeper
        self._directory = directory
        self._process: ChildProcess | None = None
        directory.mkdir(parents=True)
        (directory / "log4j.properties").write_text(QUIET)
        settings = {
            "log.dirs": data or directory / "data",
            "num.network.threads": 2,
            "num.io.threads": 2,
            "log.index.size.max.bytes": 10240,
            "log.retention.ms": -1,
            "log.cleaner.dedupe.buffer.size": 4194304,
            "delete.topic.enable": "true",
            "auto.create.topics.enable": "false",
            **({} if release is KAFKA_0_10 else _ALONE),
            **self._place(zookeeper),
            **(config or {}),
        }
        text = properties_text({name: str(value) for name, value in settings.items()})
        (directory / "server.properties").write_text(text)

    def _place(self, zookeeper: str) -> dict[str, object]:
        """The settings of where it is in its cluster."""
        listeners = ",".join((f"PLAINTEXT://{self.bootstrap}", *self._listeners))
        if self.release.has_zookeeper:
            return {
                "broker.id": self.number,
                "listeners": listeners,
                "zookeeper.connect": zookeeper,
                "zookeeper.session.timeout.ms": 2000,
            }
        own = self._has_own_controller
        return {
            "node.id": self.number,
            "process.roles": "broker,controller" if own else "broker",
            "listeners": f"{listeners},CONTROLLER://{self.controller}" if own else listeners,
            "advertised.listeners": listeners,
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": f"{self.number if own else 0}@{self.controller}",
        }

    def start(self) -> None:
        """Return when it serves; does nothing while it runs."""
        if self._process is not None and self._process.exit_code is None:
            return
        properties = str(self._directory / "server.properties")
        if self.release.has_zookeeper:
            await_free_id(self.zookeeper, self.number)
        else:
            users = [word for user in self._scram for word in ("--add-scram", user)]
            options = ("--ignore-formatted", "-t", CLUSTER_ID, "-c", properties)
            self.release.run("kafka.tools.StorageTool", "format", *options, *users)
        command = [
            find_java().path,
            *JVM,
            *self._jvm,
            f"-Dlog4j.configuration=file:{self._directory / 'log4j.properties'}",
            *("-cp", f"{self.release.libs()}/*", "kafka.Kafka", properties),
        ]
        self._process = process = ChildProcess(
            command, name="kafka", log=str(self.log), environment=java_environment(), grace_s=30.0
        )

        def settled() -> bool:
            return process.exit_code is not None or can_connect("127.0.0.1", self.port)

        if not wait_until(settled, START_TIMEOUT_S) or process.exit_code is not None:
            raise process.failure("does not accept connections")
        # It accepts connections before it knows of any broker, itself included.
        with ClusterClient(self.bootstrap) as cluster:
            if not wait_until(lambda: bool(Admin(cluster).describe_cluster().brokers), START_TIMEOUT_S):
                raise process.failure("does not know itself")

    def stop(self) -> None:
        """Stop it cleanly."""
        process, self._process = self._process, None
        if process is not None and process.stop() not in {0, 143}:
            raise process.failure("does not stop")

    def kill(self) -> None:
        """SIGKILL, as in a crash."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()


@contextlib.contextmanager
def running(release: Release, directory: Path, **options: Any) -> Iterator[KafkaBroker]:
    """A broker of that release, with a ZooKeeper where it needs one; ``options`` go to ``KafkaBroker``."""
    release.libs()
    with contextlib.ExitStack() as stack:
        zookeeper = ""
        if release.has_zookeeper:
            zookeeper = f"{stack.enter_context(EmbeddedZooKeeper(str(directory))).connect}/kafka"
        broker = KafkaBroker(release, directory / "broker", zookeeper, **options)
        stack.callback(broker.kill)
        broker.start()
        yield broker


def await_free_id(zookeeper: str, number: int = 0) -> None:
    """Wait until no broker ``number`` is registered.

    A killed broker's registration outlives it for two seconds. Its successor of another kind ends when it
    finds it.
    """
    store = ZooKeeperStore(zookeeper)
    try:
        if not wait_until(lambda: store.exists(f"/brokers/ids/{number}") is None, START_TIMEOUT_S):
            raise AssertionError("the registration of the killed broker stays")
    finally:
        store.close()
