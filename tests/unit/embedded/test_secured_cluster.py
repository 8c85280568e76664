"""Brokers with the files of ``cluster_security``: users are known, and everything is encrypted."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path

import pytest

from minikafka.base.config.property_files import read_properties
from minikafka.base.errors import AuthenticationFailed, MinikafkaError
from minikafka.base.files import RealFiles
from minikafka.clients.admin.admin import Admin, NewTopic
from minikafka.clients.common_client_configs import ClientSecurity
from minikafka.clients.network.cluster import ClusterClient
from minikafka.clients.network.metadata import TopicMetadata
from minikafka.embedded import zookeeper_access
from minikafka.embedded.cluster import Cluster
from minikafka.embedded.cluster_security import CLIENT, ClusterSecurity, add_users, prepare
from minikafka.net.zookeeper_tls import zookeeper_security
from minikafka.registry.zookeeper import ZooKeeperStore
from minikafka.security.zookeeper_config import ZooKeeperClientConfig
from minikafka.server.config.properties import BrokerConfig
from tests.support.processes import wait_until

LISTENERS = {"listeners": "SASL_SSL://127.0.0.1:0"}
AUTHORIZER = {"authorizer.class.name": "kafka.security.auth.SimpleAclAuthorizer"}


def security_of(directory: Path) -> ClusterSecurity:
    return prepare(RealFiles(), str(directory), [], datetime.now(timezone.utc))


def test_brokers_and_clients_take_the_properties(tmp_path: Path) -> None:
    security = security_of(tmp_path)
    own = {"zookeeper.connect": "localhost:2181", **LISTENERS, **AUTHORIZER}
    config = BrokerConfig.from_properties({**own, **security.broker_properties()})
    assert [mechanism.name for mechanism in config.security["SASL_SSL"].sasl.mechanisms] == [
        "SCRAM-SHA-512",
        "PLAIN",
    ]  # type: ignore[union-attr]
    assert config.inter_broker.listener == "SASL_SSL"
    assert config.unused() == ""
    client = ClientSecurity.from_properties(security.client_properties())
    assert repr(client) == "ClientSecurity(protocol=SASL_SSL, mechanism=SCRAM-SHA-512)"


@pytest.mark.process
def test_secured_brokers_replicate_and_serve_only_known_users(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    security = security_of(data_dir / "security")
    properties = zookeeper_access.protect(data_dir)
    config = {**security.broker_properties(), **AUTHORIZER}
    with Cluster(2, data_dir, config, broker_configs=dict.fromkeys(range(2), LISTENERS)) as cluster:
        access = zookeeper_security(ZooKeeperClientConfig.among(properties))
        store = ZooKeeperStore(cluster.zookeeper_connect, security=access)
        try:
            add_users(store, security)
            add_users(store, security)
        finally:
            store.close()
        given = read_properties(security.path(CLIENT), "file")
        known = ClientSecurity.from_properties(given)
        with ClusterClient(cluster.bootstrap_servers, security=known) as client:
            admin = Admin(client)
            wait_until(lambda: created(admin), "creation")
            wait_until(lambda: in_sync(admin) == 2, "replication")
        jaas = given["sasl.jaas.config"].replace(security.users["admin"].value, "wrong")
        stranger = ClientSecurity.from_properties({**given, "sasl.jaas.config": jaas})
        with (
            ClusterClient(cluster.bootstrap_servers, security=stranger) as client,
            pytest.raises(AuthenticationFailed),
        ):
            Admin(client).create_topic(NewTopic("u"))
    secrets = [password.value for password in security.users.values()]
    logs = "".join(log.read_text() for log in (data_dir / "logs").iterdir())
    assert not any(secret in logs for secret in secrets)


def created(admin: Admin) -> bool:
    try:
        admin.create_topic(NewTopic("t", 1, 2))
    except MinikafkaError:
        return False
    return True


def in_sync(admin: Admin) -> int:
    topic = admin.describe_topics(["t"])["t"]
    return len(topic.partitions[0].in_sync) if isinstance(topic, TopicMetadata) and topic.partitions else 0
