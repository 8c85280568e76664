"""A secured cluster: users are known, everything is encrypted, and it stays so."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing
from datetime import datetime, timezone
from pathlib import Path

import pytest

from minikafka.base.config.property_files import properties_text
from minikafka.base.errors import AuthenticationFailed, ConfigError, MinikafkaError, SslAuthenticationFailed
from minikafka.base.files import RealFiles
from minikafka.base.secrets import Password
from minikafka.cli.broker import check_stays_secured
from minikafka.clients.admin.admin import Admin, NewTopic
from minikafka.clients.admin.users import NewPassword, add_user
from minikafka.clients.admin.zookeeper.users import ZooKeeperUsers
from minikafka.clients.common_client_configs import ClientSecurity
from minikafka.clients.network.cluster import ClusterClient
from minikafka.clients.network.metadata import TopicMetadata
from minikafka.embedded import secured_directory
from minikafka.embedded.cluster import Cluster
from minikafka.embedded.cluster_security import ClusterSecurity, prepare
from minikafka.embedded.zookeeper import EmbeddedZooKeeper
from minikafka.registry.zookeeper import ZooKeeperStore
from minikafka.security.sasl.mechanism import SaslClient
from tests.support.processes import wait_until

HOST = "127.0.0.1"


def security_of(directory: Path) -> ClusterSecurity:
    return prepare(RealFiles(), str(directory), [], datetime.now(timezone.utc))


def checked(config: dict[str, str]) -> str:
    return secured_directory.checked_config("/d", HOST, 0, config, secured=True).unused()


def test_brokers_and_clients_take_the_properties(tmp_path: Path) -> None:
    config = secured_directory.checked_config(tmp_path, HOST, 0, {}, secured=True)
    sasl = config.security["SASL_SSL"].sasl
    assert sasl is not None
    assert [mechanism.name for mechanism in sasl.mechanisms] == ["SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN"]
    assert config.inter_broker.listener == "SASL_SSL"
    assert config.unused() == ""
    client = ClientSecurity.from_properties(security_of(tmp_path).client_properties())
    assert repr(client) == "ClientSecurity(protocol=SASL_SSL, mechanism=SCRAM-SHA-512)"


@pytest.mark.parametrize(
    "listeners", ["PLAINTEXT://:0", "SASL_SSL://:0,SSL://:0", "SASL_SSL://:0,SASL_PLAINTEXT://:0"]
)
def test_listener_without_login_or_encryption_is_refused(listeners: str) -> None:
    with pytest.raises(ConfigError, match="must have the protocol SASL_SSL"):
        checked({"listeners": listeners})


@pytest.mark.parametrize("value", ["", "com.example.Authorizer"])
def test_another_authorizer_is_refused(value: str) -> None:
    with pytest.raises(ConfigError, match=r"^authorizer\.class\.name=.*must be kafka.*every user may"):
        checked({"authorizer.class.name": value})


@pytest.mark.parametrize("value", ["false", "true"])
def test_acl_that_opens_its_zookeeper_is_refused(tmp_path: Path, value: str) -> None:
    with pytest.raises(ConfigError, match=r"^zookeeper\.set\.acl=.*must be private"):
        Cluster(data_dir=tmp_path, config={"zookeeper.set.acl": value}, secure=True).start()
    assert not secured_directory.is_secured(tmp_path)


@pytest.mark.parametrize(
    ("name", "value", "missing"),
    [
        ("sasl.enabled.mechanisms", "PLAIN", "SCRAM-SHA-512"),
        ("listener.name.sasl_ssl.sasl.enabled.mechanisms", "PLAIN", "SCRAM-SHA-512"),
        ("listener.name.sasl_ssl.sasl.enabled.mechanisms", "SCRAM-SHA-512", "PLAIN"),
    ],
)
def test_mechanisms_without_the_clusters_own_are_refused(name: str, value: str, missing: str) -> None:
    with pytest.raises(ConfigError, match=f"{value}.*must have {missing}, by which .* log in; add it"):
        checked({name: value})


def test_mechanisms_of_users_are_those_given_and_the_brokers_too() -> None:
    given = {"sasl.enabled.mechanisms": "SCRAM-SHA-512"}
    config = secured_directory.checked_config("/d", HOST, 0, given, secured=True)
    sasl = config.security["SASL_SSL"].sasl
    assert sasl is not None
    assert [mechanism.name for mechanism in sasl.mechanisms] == ["SCRAM-SHA-512", "PLAIN"]


@pytest.mark.parametrize("changed", ["authorizer.class.name=", "zookeeper.set.acl=false"])
def test_broker_started_alone_stays_closed(tmp_path: Path, changed: str) -> None:
    made = security_of(tmp_path / "security").broker_properties()
    file = tmp_path / "broker-0.properties"
    listeners = {"listeners": "SASL_SSL://:0", "zookeeper.set.acl": "private"}
    file.write_text(properties_text({**made, **listeners}))
    check_stays_secured(file, {})
    with pytest.raises(ConfigError, match="in a secured cluster"):
        check_stays_secured(file, dict([changed.split("=")]))


@pytest.mark.parametrize("name", ["", "security", "zookeeper"])
def test_no_secret_is_written_where_other_users_can_write(tmp_path: Path, name: str) -> None:
    planted = tmp_path / name
    planted.mkdir(exist_ok=True)
    planted.chmod(0o777)
    with pytest.raises(ConfigError, match=f"other users can write it.*run `chmod go-w {planted}`"):
        Cluster(data_dir=tmp_path, secure=True).start()
    assert not [*tmp_path.rglob("*.key"), *tmp_path.rglob("*.properties")]


def test_no_secret_is_written_where_another_user_is_the_owner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "security"
    folder.mkdir()
    if os.getuid() == 0:
        os.chown(folder, 12_345, -1)
    else:
        monkeypatch.setattr(os, "getuid", lambda: 12_345)
    with pytest.raises(ConfigError, match="belongs to another user"):
        secured_directory.secure(tmp_path, HOST, [{}], datetime.now(timezone.utc), own_zookeeper=True)
    assert not [*folder.iterdir()]


def test_another_listener_with_login_is_accepted() -> None:
    protocols = "EXTERNAL:SASL_SSL,SASL_SSL:SASL_SSL"
    listeners = "SASL_SSL://127.0.0.1:0,EXTERNAL://127.0.0.2:0"
    assert checked({"listeners": listeners, "listener.security.protocol.map": protocols}) == ""


def test_super_users_are_added(tmp_path: Path) -> None:
    made = secured_directory.broker_properties(security_of(tmp_path), {"super.users": "User:bob"})
    assert made["super.users"] == "User:broker;User:admin;User:bob"


def test_failed_login_names_the_file_with_the_password() -> None:
    failed = AuthenticationFailed(f"h:1: the broker refuses the login; {SaslClient.ADVICE}")
    text = str(secured_directory.login_failure("/d", failed))
    assert "the password of admin is that in /d/security/users.properties" in text
    assert "sasl.jaas.config" not in text
    other = SslAuthenticationFailed("h:1: the listener has no TLS")
    assert secured_directory.login_failure("/d", other) is other


def test_interrupted_security_counts(tmp_path: Path) -> None:
    assert not secured_directory.is_secured(tmp_path)
    assert secured_directory.client_security(tmp_path) is None
    (tmp_path / "security").mkdir()
    assert secured_directory.is_secured(tmp_path)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(2, tmp_path_factory.mktemp("secured"), secure=True) as running:
        yield running


@pytest.mark.process
@pytest.mark.timeout(180)
def test_secured_brokers_replicate(cluster: Cluster) -> None:
    cluster.create_topic("t", 1, 2)
    security = secured_directory.client_security(cluster.data_dir)
    assert security is not None
    with ClusterClient(cluster.bootstrap_servers, security=security) as client:
        admin = Admin(client)
        wait_until(lambda: in_sync(admin) == 2, "replication")


@pytest.mark.process
@pytest.mark.timeout(180)
def test_wrong_password_and_plain_client_are_refused(cluster: Cluster) -> None:
    given = cluster.client_properties
    jaas = given["sasl.jaas.config"].replace('password="', 'password="x')
    stranger = ClientSecurity.from_properties({**given, "sasl.jaas.config": jaas})
    with (
        ClusterClient(cluster.bootstrap_servers, security=stranger) as client,
        pytest.raises(AuthenticationFailed),
    ):
        Admin(client).create_topic(NewTopic("u"))
    with (
        ClusterClient(cluster.bootstrap_servers, request_timeout_ms=3_000) as client,
        pytest.raises(MinikafkaError, match="set security\\.protocol"),
    ):
        client.metadata(timeout_ms=3_000)


@pytest.mark.process
@pytest.mark.timeout(180)
def test_it_stays_secured_and_logs_have_no_password(tmp_path: Path) -> None:
    with Cluster(1, tmp_path, secure=True) as cluster:
        cluster.create_topic("t")
    (tmp_path / "security" / "users.properties").unlink()
    with Cluster(1, tmp_path) as cluster:
        assert cluster.client_properties["security.protocol"] == "SASL_SSL"
        assert "SASL_SSL://" in cluster.command_to_start(0)
        cluster.kill(0)
        cluster.restart(0)
        cluster.create_topic("u")
    secrets = [password.value for password in security_of(tmp_path / "security").users.values()]
    logs = "".join(log.read_text() for log in (tmp_path / "logs").iterdir())
    assert not any(secret in logs for secret in secrets)


@pytest.mark.process
@pytest.mark.timeout(180)
def test_open_cluster_is_secured_without_users_of_strangers(tmp_path: Path) -> None:
    with Cluster(1, tmp_path) as cluster:
        cluster.create_topic("t")
        with closing(ZooKeeperStore(cluster.zookeeper_connect)) as store:
            for user in ("admin", "broker"):
                add_user(ZooKeeperUsers(store), user, NewPassword(Password("a stranger's")), os.urandom)
    for _ in range(2):
        with Cluster(1, tmp_path, secure=True) as cluster:
            assert topics_of(cluster, cluster.client_properties) == ["t"]
            for user in ("admin", "broker"):
                with pytest.raises(AuthenticationFailed):
                    topics_of(cluster, stranger(cluster, user))


@pytest.mark.process
@pytest.mark.timeout(180)
def test_moved_folder_opens_the_cluster_and_a_new_one_secures_it(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    with Cluster(1, data_dir, secure=True) as cluster:
        cluster.create_topic("t")
        before = cluster.client_properties
    (data_dir / "security").rename(tmp_path / "away")
    with Cluster(1, data_dir) as cluster:
        assert topics_of(cluster, {}) == ["t"]
    with Cluster(1, data_dir, secure=True) as cluster:
        assert topics_of(cluster, cluster.client_properties) == ["t"]
        jaas = {"sasl.jaas.config": before["sasl.jaas.config"]}
        with pytest.raises(AuthenticationFailed):
            topics_of(cluster, {**cluster.client_properties, **jaas})


@pytest.mark.process
@pytest.mark.timeout(180)
def test_given_zookeeper_gets_the_first_user(tmp_path: Path) -> None:
    access = {"zookeeper.set.acl": "private", "zookeeper.digest.credentials": "kafka:secret"}
    with (
        EmbeddedZooKeeper(str(tmp_path / "zookeeper")) as zookeeper,
        Cluster(1, tmp_path / "data", access, f"{zookeeper.connect}/kafka", secure=True) as cluster,
    ):
        assert topics_of(cluster, cluster.client_properties) == []


def stranger(cluster: Cluster, user: str) -> dict[str, str]:
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    jaas = f'{module} required username="{user}" password="a stranger\'s";'
    return {**cluster.client_properties, "sasl.jaas.config": jaas}


def topics_of(cluster: Cluster, properties: dict[str, str]) -> list[str]:
    security = ClientSecurity.from_properties(properties)
    with ClusterClient(cluster.bootstrap_servers, security=security) as client:
        return [name for name in client.metadata().topics if not name.startswith("__")]


def in_sync(admin: Admin) -> int:
    topic = admin.describe_topics(["t"])["t"]
    return len(topic.partitions[0].in_sync) if isinstance(topic, TopicMetadata) and topic.partitions else 0
