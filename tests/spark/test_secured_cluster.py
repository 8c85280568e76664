"""Reads, streams and writes over TLS and SASL: each listener demands a login or a certificate."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from minikafka.base.errors import MinikafkaError
from minikafka.base.secrets import Password
from minikafka.clients.admin.admin import Admin, NewTopic
from minikafka.clients.admin.users import NewPassword, add_user
from minikafka.clients.admin.zookeeper.users import ZooKeeperUsers
from minikafka.clients.common_client_configs import ClientSecurity
from minikafka.clients.network.cluster import ClusterClient
from minikafka.embedded import local
from minikafka.embedded.cluster import Cluster
from minikafka.net.ports import free_port
from minikafka.registry.brokers import live_brokers
from minikafka.registry.zookeeper import ZooKeeperStore
from tests.support.secured_kafka import as_options, jaas, login_of, quoted
from tests.support.tls import authority, broker_properties, client_properties

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.process

USER, PASSWORD = "alice", "won;der=land"
PASSWORDS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
"""The mechanisms with a user and a password."""
LISTENERS = ("SSL", "SASL_SSL", "SASL_PLAINTEXT")
ACCESSES = [("SSL", None), ("SASL_PLAINTEXT", "PLAIN"), *(("SASL_SSL", mechanism) for mechanism in PASSWORDS)]


@dataclass(frozen=True, slots=True)
class Secured:
    """A broker without a plain listener."""

    addresses: Mapping[str, str]
    """Listener -> host and port."""
    directory: Path

    def client(
        self, listener: str, mechanism: str | None, password: str = PASSWORD, **tls: str
    ) -> dict[str, str]:
        """Return the properties of a client; those of ``tls`` with ``_`` for ``.``."""
        own = {"bootstrap.servers": self.addresses[listener], "security.protocol": listener}
        if listener.endswith("SSL"):
            own |= client_properties("carol" if listener == "SSL" else None, **tls)
        if mechanism is not None:
            own |= login_of(mechanism, USER, password)
        return own

    def new_topic(self) -> str:
        name = f"t-{uuid.uuid4().hex[:8]}"
        security = ClientSecurity.from_properties(self.client("SSL", None))
        with ClusterClient(self.addresses["SSL"], security=security) as client:
            Admin(client).create_topic(NewTopic(name, partitions=2))
        return name


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    users = jaas("PLAIN", f"user_{USER}={quoted(PASSWORD)}")
    config = {
        "listeners": ",".join(f"{name}://localhost:0" for name in LISTENERS),
        "security.inter.broker.protocol": "SSL",
        "sasl.enabled.mechanisms": ",".join(PASSWORDS),
        "listener.name.sasl_ssl.plain.sasl.jaas.config": users,
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": users,
        "listener.name.ssl.ssl.client.auth": "required",
        **broker_properties("localhost"),
    }
    directory = tmp_path_factory.mktemp("secured")
    with Cluster(config=config, data_dir=str(directory)) as cluster:
        store = ZooKeeperStore(cluster.zookeeper_connect)
        try:
            add_user(ZooKeeperUsers(store), USER, NewPassword(Password(PASSWORD)), os.urandom)
            (registration,) = live_brokers(store).values()
        finally:
            store.close()
        endpoints = registration.broker.endpoints
        yield Secured({found.listener: f"localhost:{found.port}" for found in endpoints}, directory)


def write(spark: SparkSession, options: Mapping[str, str], rows: int, topic: str) -> None:
    frame = spark.range(rows).selectExpr("cast(id as string) as value")
    frame.write.format("minikafka").mode("append").options(**options).option("topic", topic).save()


@pytest.mark.parametrize(("listener", "mechanism"), ACCESSES)
def test_rows_are_written_and_read_over_a_secured_listener(
    spark: SparkSession, secured: Secured, listener: str, mechanism: str | None
) -> None:
    options, topic = as_options(secured.client(listener, mechanism)), secured.new_topic()
    write(spark, options, 100, topic)
    found = spark.read.format("minikafka").options(**options).option("subscribe", topic).load()
    assert sorted(int(row[0]) for row in found.selectExpr("cast(value as string)").collect()) == [*range(100)]


def test_secrets_are_in_no_file_of_a_stream_that_logs_in(
    spark: SparkSession, secured: Secured, tmp_path: Path
) -> None:
    options, topic = as_options(secured.client("SASL_SSL", "SCRAM-SHA-512")), secured.new_topic()
    write(spark, options, 10, topic)
    stream = spark.readStream.format("minikafka").options(**options)
    query = (
        stream.option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .load()
        .writeStream.format("parquet")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(tmp_path / "rows"))
    )
    assert query.awaitTermination(90)
    assert spark.read.parquet(str(tmp_path / "rows")).count() == 10
    files = [*tmp_path.rglob("*"), *(secured.directory / "logs").rglob("*")]
    texts = [path.read_bytes() for path in files if path.is_file()]
    assert any(b"offset" in text for text in texts)
    assert not any(PASSWORD.encode() in text for text in texts)
    assert PASSWORD not in str(query.lastProgress)


def wrong_access(secured: Secured, fault: str) -> dict[str, str]:
    """Return the options of a client that has one of them wrong."""
    sasl_ssl = secured.client("SASL_SSL", "SCRAM-SHA-256")
    if fault == "password":
        return secured.client("SASL_SSL", "SCRAM-SHA-256", password="wrong-one")
    if fault == "CA":
        return sasl_ssl | client_properties(ca=authority("others"))
    if fault == "host name":
        return sasl_ssl | {
            "bootstrap.servers": sasl_ssl["bootstrap.servers"].replace("localhost", "127.0.0.1")
        }
    if fault == "no TLS":
        return {"bootstrap.servers": secured.addresses["SSL"]}
    return sasl_ssl | {"bootstrap.servers": secured.addresses["SASL_PLAINTEXT"]}


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("password", "kafka.sasl.jaas.config"),
        ("CA", "kafka.ssl.truststore"),
        ("host name", "127.0.0.1"),
        ("no TLS", "set kafka.security.protocol to SSL or SASL_SSL"),
        ("no TLS there", "kafka.security.protocol"),
    ],
)
def test_load_says_at_once_which_setting_is_wrong(
    spark: SparkSession, secured: Secured, fault: str, said: str
) -> None:
    from pyspark.errors import AnalysisException

    options = as_options(wrong_access(secured, fault))
    with pytest.raises(AnalysisException) as refused:
        spark.read.format("minikafka").options(**options).option("subscribe", "t").load()
    assert said in str(refused.value)
    assert PASSWORD not in str(refused.value)


def test_a_write_with_a_wrong_password_ends_before_its_tasks(spark: SparkSession, secured: Secured) -> None:
    options = as_options(secured.client("SASL_SSL", "PLAIN", password="wrong-one"))
    with pytest.raises(Exception, match=r"kafka\.sasl\.jaas\.config") as refused:
        write(spark, options, 1, "t")
    assert "wrong-one" not in str(refused.value)


def test_embedded_cluster_of_a_secured_directory_needs_no_login_options(
    spark: SparkSession, tmp_path: Path
) -> None:
    data_dir = tmp_path / "data"
    with Cluster(1, data_dir, secure=True) as cluster:
        jaas = cluster.client_properties["sasl.jaas.config"]
    secret = jaas.partition('password="')[2].partition('"')[0]
    options = {"minikafka.data.dir": str(data_dir)}
    try:
        write(spark, options, 100, "t")
        read = spark.read.format("minikafka").options(**options).option("subscribe", "t").load()
        assert read.count() == 100
        stream = spark.readStream.format("minikafka").options(**options).option("subscribe", "t")
        group = {"minikafka.commit.group": "g", "offsets.storage": "zookeeper"}
        query = (
            stream.options(startingOffsets="earliest", **group)
            .load()
            .writeStream.format("noop")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(90)
        kept = [path for path in (tmp_path / "checkpoint").rglob("*") if path.is_file()]
        logs = list((data_dir / "logs").iterdir())
        assert not any(secret.encode() in path.read_bytes() for path in kept + logs)
        running = local.running(str(data_dir))
        assert running is not None
        with ClusterClient(running.bootstrap_servers) as plain, pytest.raises(MinikafkaError):
            plain.metadata(timeout_ms=3_000)
    finally:
        local.stop(str(data_dir))


def test_brokers_that_are_away_do_not_fail_load(spark: SparkSession) -> None:
    address = f"127.0.0.1:{free_port()}"
    loaded = (
        spark.read.format("minikafka").option("kafka.bootstrap.servers", address).option("subscribe", "t")
    )
    assert "value" in loaded.load().columns
