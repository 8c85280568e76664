"""Spark sessions and clusters for the tests against real Spark.

One session with local[2] serves all tests of a process but those that start a Spark in another one.
PySpark's own warnings are none of ours, so in this directory only warnings of our modules are errors.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import textwrap
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from minikafka.base.errors import BrokerError, ErrorCode
from minikafka.base.ids import TopicPartition
from minikafka.clients.admin.admin import Admin, NewTopic
from minikafka.clients.network.cluster import ClusterClient as Client
from minikafka.clients.produce import BatchingConfig, BatchingProducer
from tests.spark import peer
from tests.spark.streams import Streams
from tests.support.managed_services import environment

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from minikafka.embedded.cluster import Cluster

ROOT = Path(__file__).resolve().parents[2]

pyspark = pytest.importorskip("pyspark", reason="PySpark is not installed")

SESSION_CONFIG = {
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.session.timeZone": "UTC",
    "spark.driver.memory": "1g",
}


def pytest_collection_modifyitems(items: Sequence[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.filterwarnings("default"))
            item.add_marker(pytest.mark.filterwarnings("error:::pyspark_minikafka"))
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(180))


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A session with two cores in one JVM."""
    from pyspark.sql import SparkSession

    import pyspark_minikafka  # noqa: F401  # sets PYSPARK_PYTHON, as README's first example does

    scratch = tempfile.mkdtemp(prefix="minikafka-spark-")
    builder = SparkSession.builder.master("local[2]").config("spark.sql.warehouse.dir", scratch)
    builder = builder.config("spark.local.dir", scratch)
    for name, value in {**SESSION_CONFIG, **peer.settings()}.items():
        builder = builder.config(name, value)
    with pytest.MonkeyPatch.context() as patch:  # the workers of the session have it from its JVM
        for name, value in environment(scratch).items():
            patch.setenv(name, value)
        session = builder.getOrCreate()
    session.sparkContext.setLogLevel("FATAL")
    yield session
    gateway = session.sparkContext._gateway
    session.stop()
    if gateway is not None and gateway.proc is not None:
        # Otherwise the JVM lives until this process has ended, and so does its scratch directory.
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait(30)
    shutil.rmtree(scratch, ignore_errors=True)


class Kafka:
    """A cluster, with what tests do to it."""

    def __init__(self, servers: str) -> None:
        self.servers = servers
        self.client = Client(self.servers)
        self.admin = Admin(self.client)

    def topic(
        self, partitions: int = 1, *, prefix: str = "t", config: Mapping[str, str] | None = None
    ) -> str:
        """A new topic."""
        name = f"{prefix}-{uuid.uuid4().hex[:12]}"
        self.admin.create_topic(NewTopic(name, partitions, configs=config or {}))
        return name

    def topic_with(self, values: Sequence[str | None], *, partitions: int = 1, **more: Any) -> str:
        """A new topic with messages (see ``produce``)."""
        topic = self.topic(partitions)
        self.produce(topic, values, **more)
        return topic

    def delete(self, topic: str) -> None:
        """Delete a topic."""
        assert self.admin.delete_topics([topic]) == {topic: None}

    def make_anew(self, topic: str, partitions: int = 1) -> None:
        """Delete a topic and create it again, which Apache Kafka refuses until it has deleted it."""
        self.delete(topic)
        deadline = time.monotonic() + 30
        while True:
            try:
                self.admin.create_topic(NewTopic(topic, partitions))
                return
            except BrokerError as problem:
                if problem.code is not ErrorCode.TOPIC_ALREADY_EXISTS or time.monotonic() > deadline:
                    raise
                time.sleep(0.05)

    def produce(self, topic: str, values: Sequence[str | None], partition: int = 0, **record: Any) -> None:
        """Append one record a value and wait until all are there."""
        with BatchingProducer(self.client, BatchingConfig(acks=-1)) as producer:
            sent = [
                producer.send(topic, None if v is None else v.encode(), partition=partition, **record)
                for v in values
            ]
        for delivery in sent:
            delivery.result()

    def trim(self, topic: str, partition: int, offset: int) -> None:
        """Delete the records before an offset."""
        from confluent_kafka import TopicPartition as Position
        from confluent_kafka.admin import AdminClient

        admin = AdminClient({"bootstrap.servers": self.servers})
        for deleted in admin.delete_records([Position(topic, partition, offset)]).values():
            assert deleted.result().low_watermark == offset

    def groups(self) -> list[str]:
        """All consumer groups."""
        from confluent_kafka.admin import AdminClient

        admin = AdminClient({"bootstrap.servers": self.servers})
        return [group.group_id for group in admin.list_consumer_groups().result().valid]

    def ends(self, topic: str, partitions: int) -> list[int | None]:
        """End offsets."""
        wanted = {TopicPartition(topic, number): -1 for number in range(partitions)}
        return list(self.admin.offsets(wanted).values())


@pytest.fixture(scope="session")
def kafka(minikafka_cluster: Cluster) -> Iterator[Kafka]:
    found = Kafka(minikafka_cluster.bootstrap_servers)
    yield found
    found.client.close()


@pytest.fixture
def streams(spark: SparkSession, kafka: Kafka, tmp_path: Path) -> Iterator[Streams]:
    found = Streams(spark, kafka, tmp_path / "checkpoint")
    yield found
    found.close()


@pytest.fixture
def read(spark: SparkSession, kafka: Kafka) -> Callable[..., DataFrame]:
    """``read(subscribe="t", …)``: a batch read of the cluster; ``__`` in a name stands for a dot."""

    def load(**options: str) -> DataFrame:
        given = {name.replace("__", "."): value for name, value in options.items()}
        given.setdefault("kafka.bootstrap.servers", kafka.servers)
        return spark.read.format("minikafka").options(**given).load()

    return load


@pytest.fixture
def in_python(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """``in_python(source, **environment)``: run a script in a fresh interpreter, in the test's directory."""

    def run(
        source: str, *arguments: str, check: bool = True, timeout: float = 170, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(source), *arguments],
            cwd=tmp_path,
            env={**child_environment(), **environment},
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        if check:
            assert done.returncode == 0, done.stdout[-4_000:] + done.stderr[-6_000:]
        return done

    return run


def child_environment() -> dict[str, str]:
    """For another interpreter: it finds the project, and decides itself which Python Spark starts."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK_")}
    paths = [str(ROOT / "broker_core"), str(ROOT / "spark_source"), str(ROOT)]
    environment["PYTHONPATH"] = os.pathsep.join([*paths, environment.get("PYTHONPATH", "")]).rstrip(
        os.pathsep
    )
    return environment
