"""Users in ZooKeeper across releases: each tool reads what the other has written, and each broker uses it."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, ScramCredentialInfo, UserScramCredentialUpsertion
from confluent_kafka.admin import ScramMechanism as ConfluentMechanism

from minikafka.base.errors import CoordinationError
from minikafka.base.secrets import Password
from minikafka.cli.commands import run
from minikafka.clients.admin.zookeeper.users import ZooKeeperUsers
from minikafka.embedded.cluster import Cluster
from minikafka.embedded.process import wait_until
from minikafka.embedded.zookeeper import EmbeddedZooKeeper
from minikafka.net.ports import free_port
from minikafka.net.zookeeper_tls import zookeeper_security
from minikafka.registry import paths
from minikafka.registry.entity_configs import read_config
from minikafka.registry.store import Store
from minikafka.registry.users import ClientEntity, client_entities, sanitize
from minikafka.registry.zookeeper import ZooKeeperStore
from minikafka.security.sasl.scram import ScramCredential, ScramMechanism
from minikafka.security.zookeeper_config import ZooKeeperClientConfig
from tests.interop.releases import KAFKA_0_10, KAFKA_3_9, Release
from tests.support.kafka_broker import KafkaBroker
from tests.support.tls import authority, key_and_chain
from tests.support.tls_zookeeper import tls_zookeeper

pytestmark = [pytest.mark.interop, pytest.mark.timeout(180)]

USERS = ("alice", "a*b c~+", "CN=bob,OU=sales", "ö/1", "100%")
PATIENCE_S = 30
SHA_256, SHA_512 = ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Return the address of the ZooKeeper of a cluster of ours."""
    with Cluster(data_dir=tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster.zookeeper_connect


@pytest.fixture
def store(zookeeper: str) -> Iterator[Store]:
    with contextlib.closing(ZooKeeperStore(zookeeper)) as store:
        yield store


def config_command(release: Release, zookeeper: str, *arguments: str) -> str:
    """Return the output of ``kafka-configs``."""
    release.libs()
    return release.run("kafka.admin.ConfigCommand", "--zookeeper", zookeeper, *arguments).out


def ours(*words: str) -> None:
    """Run a command of ``minikafka``."""
    assert run(list(words)) == 0


def fits(text: str, mechanism: ScramMechanism, password: str, iterations: int) -> bool:
    held = ScramCredential.parse(mechanism, text)
    made = ScramCredential.create(mechanism, Password(password), held.salt, iterations)
    return held == made


def test_user_set_by_librdkafka_through_a_broker_is_stored() -> None:
    upsertion = UserScramCredentialUpsertion(
        "alice", ScramCredentialInfo(ConfluentMechanism.SCRAM_SHA_256, 8192), b"lion", b"salt"
    )
    with Cluster() as cluster, contextlib.closing(ZooKeeperStore(cluster.zookeeper_connect)) as store:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        (changed,) = admin.alter_user_scram_credentials([upsertion]).values()
        changed.result(PATIENCE_S)
        held = read_config(store, paths.USERS, "alice")
    assert fits(held[SHA_256.value], SHA_256, "lion", 8192)


@pytest.mark.parametrize("user", USERS)
def test_a_password_set_by_kafkas_tool_is_read(zookeeper: str, store: Store, user: str) -> None:
    name = f"theirs {user}"
    added = "SCRAM-SHA-256=[iterations=8192,password=pa,s=s],SCRAM-SHA-512=[password=lion]"
    entity = ("--entity-type", "users", "--entity-name", name)
    config_command(KAFKA_3_9, zookeeper, "--alter", *entity, "--add-config", added)
    config = read_config(store, paths.USERS, sanitize(name))
    assert fits(config[SHA_256.value], SHA_256, "pa,s=s", 8192)
    assert fits(config[SHA_512.value], SHA_512, "lion", 4096)
    found = [
        (held.mechanism, held.iterations) for held in ZooKeeperUsers(store).credentials() if held.user == name
    ]
    assert found == [(SHA_256, 8192), (SHA_512, 4096)]


@pytest.mark.parametrize("user", USERS)
def test_a_password_set_by_us_is_read_and_changed_by_kafkas_tool(
    zookeeper: str, store: Store, user: str
) -> None:
    name, to = f"ours {user}", ("--zookeeper", zookeeper)
    ours("user", "add", name, "--password", "tiger", "--iterations", "8192", *to)
    ours("config", "set", "user", name, "producer_byte_rate=1024", *to)
    config = read_config(store, paths.USERS, sanitize(name))
    entity = ("--entity-type", "users", "--entity-name", name)
    described = config_command(KAFKA_3_9, zookeeper, "--describe", *entity)
    assert f"Configs for user-principal '{name}' are " in described
    assert all(f"{key}={value}" in described for key, value in config.items())
    config_command(KAFKA_3_9, zookeeper, "--alter", *entity, "--delete-config", SHA_256.value)
    changed = read_config(store, paths.USERS, sanitize(name))
    assert changed == {key: value for key, value in config.items() if key != SHA_256.value}


@pytest.mark.parametrize(
    ("user", "client"),
    [("a*b c~+", None), ("a*b c~+", "app"), ("", None), ("", ""), ("a*b c~+", ""), ("", "app"), (None, "")],
)
def test_quotas_set_by_the_release_are_found_under_the_same_names(
    zookeeper: str, store: Store, user: str | None, client: str | None
) -> None:
    options = []
    for kind, name in (("users", user), ("clients", client)):
        if name is not None:
            options += ["--entity-type", kind]
            options += ["--entity-name", name] if name else ["--entity-default"]
    config_command(
        KAFKA_0_10,
        zookeeper,
        "--alter",
        *options,
        "--add-config",
        "producer_byte_rate=5,consumer_byte_rate=7",
    )
    entity = ClientEntity.of(
        user="<default>" if user == "" else user, client_id="<default>" if client == "" else client
    )
    assert entity in client_entities(store).values()
    held = read_config(store, *entity.kind_and_name)
    assert held == {"producer_byte_rate": "5", "consumer_byte_rate": "7"}
    config_command(
        KAFKA_0_10, zookeeper, "--alter", *options, "--delete-config", "producer_byte_rate,consumer_byte_rate"
    )
    assert read_config(store, *entity.kind_and_name) == {}


def test_quotas_set_by_us_are_described_by_the_release(zookeeper: str) -> None:
    to = ("--zookeeper", zookeeper)
    ours("config", "set", "user", "d/d", "producer_byte_rate=11", *to)
    ours("config", "set", "user", "<default>", "consumer_byte_rate=12", *to)
    ours("config", "set", "client", "app", "--user", "d/d", "producer_byte_rate=13", *to)
    ours("config", "set", "client", "<default>", "--user", "<default>", "producer_byte_rate=14", *to)
    described = config_command(KAFKA_0_10, zookeeper, "--describe", "--entity-type", "users")
    assert "Configs for user-principal 'd/d' are producer_byte_rate=11" in described
    assert "Configs for default user-principal are consumer_byte_rate=12" in described
    described = config_command(
        KAFKA_0_10, zookeeper, "--describe", "--entity-type", "users", "--entity-type", "clients"
    )
    assert "Configs for user-principal 'd/d', client-id 'app' are producer_byte_rate=13" in described
    assert "Configs for default user-principal, default client-id are producer_byte_rate=14" in described


def logs_in(port: int, mechanism: str, user: str, password: str) -> bool:
    """Return True if librdkafka, with this password, gets an answer before its broker refuses it."""
    refused: list[object] = []
    client = AdminClient(
        {
            "bootstrap.servers": f"127.0.0.1:{port}",
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": mechanism,
            "sasl.username": user,
            "sasl.password": password,
            "error_cb": refused.append,
            "log_level": 0,
        }
    )
    for _ in range(PATIENCE_S):
        try:
            client.list_topics(timeout=1)
        except KafkaException:
            client.poll(0)
            if any("Authentication failed" in str(error) for error in refused):
                return False
        else:
            return True
    raise AssertionError(refused)


def test_a_broker_of_kafka_checks_passwords_that_we_have_set(tmp_path: Path) -> None:
    zookeeper = EmbeddedZooKeeper(str(tmp_path / "zookeeper"))
    to = ("--zookeeper", zookeeper.start())
    port = free_port()
    broker = KafkaBroker(KAFKA_3_9, tmp_path / "kafka", zookeeper.connect)
    login = "listener.name.sasl_plaintext"
    settings = {
        "listeners": f"PLAINTEXT://{broker.bootstrap},SASL_PLAINTEXT://127.0.0.1:{port}",
        "sasl.enabled.mechanisms": f"{SHA_256.value},{SHA_512.value}",
        **{
            f"{login}.{mechanism.value.lower()}.sasl.jaas.config": (
                "org.apache.kafka.common.security.scram.ScramLoginModule required;"
            )
            for mechanism in ScramMechanism
        },
    }
    properties = tmp_path / "kafka" / "server.properties"
    kept = re.sub(r"^listeners=.*\n", "", properties.read_text(), flags=re.MULTILINE)
    properties.write_text(kept + "".join(f"{name}={value}\n" for name, value in settings.items()))
    try:
        ours("user", "add", "al,i=ce", "--password", "tiger", *to)
        broker.start()
        assert logs_in(port, SHA_256.value, "al,i=ce", "tiger")
        assert logs_in(port, SHA_512.value, "al,i=ce", "tiger")
        assert not logs_in(port, SHA_512.value, "al,i=ce", "lion")
        ours("user", "passwd", "al,i=ce", "--password", "lion", *to)
        assert logs_in(port, SHA_512.value, "al,i=ce", "lion")
        ours("user", "delete", "al,i=ce", *to)
        assert not logs_in(port, SHA_512.value, "al,i=ce", "lion")
    finally:
        broker.stop()
        zookeeper.stop()


def test_a_certificate_gives_kafkas_tool_the_znodes_that_we_protect(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ca = authority()
    (tmp_path / "zookeeper").mkdir()
    (tmp_path / "key.pem").write_text(key_and_chain(ca.issue_cert("broker.example.com")))
    settings = {
        "zookeeper.set.acl": "true",
        "zookeeper.ssl.client.enable": "true",
        "zookeeper.ssl.protocol": "TLSv1.3",  # that of this ZooKeeper, which is newer than Kafka's client
        "zookeeper.clientCnxnSocket": "org.apache.zookeeper.ClientCnxnSocketNetty",
        "zookeeper.ssl.keystore.type": "PEM",
        "zookeeper.ssl.keystore.location": str(tmp_path / "key.pem"),
        "zookeeper.ssl.truststore.type": "PEM",
        "zookeeper.ssl.truststore.location": str(tmp_path / "zookeeper" / "ca.pem"),
    }
    file = tmp_path / "zookeeper.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    monkeypatch.setenv("MINIKAFKA_CONFIG", str(file))
    with tls_zookeeper(ca, tmp_path / "zookeeper") as address:
        ours("user", "add", "alice", "--password", "tiger", "--zookeeper", address)
        security = zookeeper_security(ZooKeeperClientConfig.among(settings))
        with contextlib.closing(ZooKeeperStore(address, security=security)) as store:
            theirs = ("--zk-tls-config-file", str(file), "--entity-type", "users", "--entity-name", "alice")
            described = config_command(KAFKA_3_9, address, "--describe", *theirs)
            assert read_config(store, paths.USERS, "alice")[SHA_512.value] in described
            added = "SCRAM-SHA-256=[password=lion]"
            config_command(KAFKA_3_9, address, "--alter", *theirs, "--add-config", added)
            assert fits(read_config(store, paths.USERS, "alice")[SHA_256.value], SHA_256, "lion", 4096)
        (tmp_path / "key.pem").write_text(key_and_chain(ca.issue_cert("other.example.com", common_name="o")))
        other = zookeeper_security(ZooKeeperClientConfig.among(settings))
        with (
            contextlib.closing(ZooKeeperStore(address, security=other)) as store,
            pytest.raises(CoordinationError, match="its ACL does not allow it"),
        ):
            read_config(store, paths.USERS, "alice")


def test_a_password_set_by_kafkas_tool_opens_our_listener_at_once(tmp_path: Path) -> None:
    port = free_port()
    config = {
        "listeners": f"PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:{port}",
        "sasl.enabled.mechanisms": f"{SHA_256.value},{SHA_512.value}",
    }
    with Cluster(data_dir=tmp_path, config=config) as cluster:
        entity = ("--entity-type", "users", "--entity-name", "al,i=ce")

        def alter(*options: str) -> None:
            config_command(KAFKA_3_9, cluster.zookeeper_connect, "--alter", *entity, *options)

        assert wait_until(lambda: not logs_in(port, SHA_512.value, "al,i=ce", "tiger"), PATIENCE_S)
        alter("--add-config", "SCRAM-SHA-256=[password=tiger],SCRAM-SHA-512=[iterations=8192,password=tiger]")
        assert wait_until(lambda: logs_in(port, SHA_256.value, "al,i=ce", "tiger"), PATIENCE_S)
        assert wait_until(lambda: logs_in(port, SHA_512.value, "al,i=ce", "tiger"), PATIENCE_S)
        alter("--add-config", "SCRAM-SHA-512=[password=lion]")
        assert wait_until(lambda: not logs_in(port, SHA_512.value, "al,i=ce", "tiger"), PATIENCE_S)
        assert wait_until(lambda: logs_in(port, SHA_512.value, "al,i=ce", "lion"), PATIENCE_S)
        alter("--delete-config", SHA_512.value)
        assert wait_until(lambda: not logs_in(port, SHA_512.value, "al,i=ce", "lion"), PATIENCE_S)
        assert wait_until(lambda: logs_in(port, SHA_256.value, "al,i=ce", "tiger"), PATIENCE_S)
