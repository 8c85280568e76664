"""A cluster whose ZooKeeper knows its brokers: others may read, and commands have their credentials."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator
from pathlib import Path

import pytest

from minikafka.base.errors import CoordinationError
from minikafka.base.secrets import Password
from minikafka.embedded.cluster import Cluster
from minikafka.embedded.zookeeper import EmbeddedZooKeeper
from minikafka.registry.zookeeper import ZooKeeperStore
from minikafka.registry.zookeeper_security import ZooKeeperSecurity
from tests.support.command_line import CommandLine
from tests.support.tls import authority, key_and_chain
from tests.support.tls_zookeeper import tls_zookeeper

pytestmark = pytest.mark.process

SECURED = {"zookeeper.set.acl": "true", "zookeeper.digest.credentials": "broker:tiger-7"}


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    directory = tmp_path_factory.mktemp("zookeeper")
    embedded = EmbeddedZooKeeper(str(directory))
    try:
        yield embedded.start()
    finally:
        embedded.stop()


@pytest.fixture
def credentials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let commands have the credentials of the brokers."""
    file = tmp_path / "zookeeper.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in SECURED.items()))
    monkeypatch.setenv("MINIKAFKA_CONFIG", str(file))


def test_only_clients_with_the_credentials_change_znodes_of_brokers(
    zookeeper: str, tmp_path: Path, cli: CommandLine, credentials: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = f"{zookeeper}/secured"
    to = ("--zookeeper", address)
    with Cluster(data_dir=tmp_path / "data", zookeeper=address, config=SECURED) as cluster:
        cluster.create_topic("t")
        assert cli.run("user", "add", "alice", "--password", "x", *to) == 0
        with contextlib.closing(ZooKeeperStore(address)) as nobody:
            assert nobody.exists("/brokers/ids/0") is not None
            assert nobody.children("/brokers/topics") == ["t"]
            for path in ("/config/users/alice", "/config/users"):
                with pytest.raises(CoordinationError, match="its ACL does not allow it"):
                    nobody.read(path)
            with pytest.raises(CoordinationError, match="its ACL does not allow it"):
                nobody.delete("/brokers/topics/t", recursive=True)
            nobody.create("/consumers/g")
        monkeypatch.delenv("MINIKAFKA_CONFIG")
        assert cli.run("user", "list", *to) == 1
        assert "its ACL does not allow it to this client; check the credentials" in cli.err
        assert cli.run("config", "set", "client", "c", "producer_byte_rate=5", *to) == 1


def test_a_first_user_makes_the_chroot_of_the_cluster(
    zookeeper: str, cli: CommandLine, credentials: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    to = ("--zookeeper", f"{zookeeper}/new/kafka")
    assert cli.run("user", "passwd", "alice", "--password", "x", *to) == 1
    assert "no Kafka cluster in ZooKeeper" in cli.err
    assert cli.run("user", "add", "alice", "--password", "x", *to) == 0
    assert cli.run("user", "list", *to) == 0
    assert "alice" in cli.out
    monkeypatch.delenv("MINIKAFKA_CONFIG")
    assert cli.run("user", "list", *to) == 1
    assert "zookeeper.digest.credentials in the file of --command-config" in cli.err


def test_a_consumer_of_a_group_in_zookeeper_has_the_credentials(
    zookeeper: str, tmp_path: Path, cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = f"{zookeeper}/private"
    private = {**SECURED, "zookeeper.set.acl": "private"}
    file = tmp_path / "private.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in private.items()))
    to = ("--zookeeper", address)
    with Cluster(data_dir=tmp_path / "data", zookeeper=address, config=private) as cluster:
        cluster.create_topic("t")
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"hello\n")))
        assert cli.run("produce", "t", "--bootstrap", cluster.bootstrap_servers) == 0
        reading = ("consume", "t", "--from", "beginning", "--max", "1", "--group", "g", *to)
        assert cli.run(*reading) == 1
        assert "its ACL does not allow it" in cli.err
        assert cli.run(*reading, "--command-config", str(file)) == 0
        assert "hello" in cli.out
        with pytest.raises(CoordinationError, match="its ACL does not allow it"):
            ZooKeeperStore(address)


def test_znodes_of_an_open_cluster_are_protected_by_a_command(
    zookeeper: str, cli: CommandLine, credentials: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = f"{zookeeper}/opened"
    to = ("--zookeeper", address)
    with contextlib.closing(ZooKeeperStore(address)) as nobody:
        nobody.create("/config/changes", make_parents=True)
        nobody.create("/config/users/alice", b"x", make_parents=True)
        nobody.create("/brokers/topics/t", b"x", make_parents=True)
        nobody.create("/consumers/g", make_parents=True)
        assert cli.run("cluster", "protect-zookeeper", *to) == 0
        assert cli.out == "protected 8 znodes\n"
        assert cli.run("cluster", "protect-zookeeper", "--format", "json", *to) == 0
        assert cli.rows == [{"protected": 0}]
        with pytest.raises(CoordinationError):
            nobody.read("/config/users/alice")
        with pytest.raises(CoordinationError):
            nobody.create("/brokers/topics/u")
        assert nobody.read("/brokers/topics/t")[0] == b"x"
        nobody.create("/consumers/g/ids")
    security = ZooKeeperSecurity(Password("broker:tiger-7"))
    with contextlib.closing(ZooKeeperStore(address, security=security)) as broker:
        assert broker.read("/config/users/alice")[0] == b"x"
    monkeypatch.delenv("MINIKAFKA_CONFIG")
    assert cli.run("cluster", "protect-zookeeper", *to) == 2
    assert "must name a file with zookeeper.set.acl" in cli.err


def test_brokers_and_commands_are_known_by_their_certificate(
    tmp_path: Path, cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    ca = authority()
    (tmp_path / "zookeeper").mkdir()
    with tls_zookeeper(ca, tmp_path / "zookeeper") as address:
        (tmp_path / "key.pem").write_text(key_and_chain(ca.issue_cert("broker.example.com")))
        secured = {
            "zookeeper.set.acl": "true",
            "zookeeper.ssl.client.enable": "true",
            "zookeeper.clientCnxnSocket": "org.apache.zookeeper.ClientCnxnSocketNetty",
            "zookeeper.ssl.keystore.type": "PEM",
            "zookeeper.ssl.keystore.location": str(tmp_path / "key.pem"),
            "zookeeper.ssl.truststore.type": "PEM",
            "zookeeper.ssl.truststore.location": str(tmp_path / "zookeeper" / "ca.pem"),
        }
        file = tmp_path / "zookeeper.properties"
        file.write_text("".join(f"{name}={value}\n" for name, value in secured.items()))
        monkeypatch.setenv("MINIKAFKA_CONFIG", str(file))
        with Cluster(data_dir=tmp_path / "data", zookeeper=address, config=secured) as cluster:
            cluster.create_topic("t")
            assert cli.run("user", "add", "alice", "--password", "x", "--zookeeper", address) == 0
            assert cli.run("user", "list", "--zookeeper", address) == 0
            assert "alice  SCRAM-SHA-256" in cli.out


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("zookeeper.set.acl=true\n", "needs a client that ZooKeeper knows"),
        ("zookeeper.digest.credentials=tiger-7\n", "must be USER:PASSWORD"),
        (None, "cannot be read: No such file"),
    ],
)
def test_wrong_settings_for_zookeeper_are_one_line_without_the_secret(
    zookeeper: str,
    cli: CommandLine,
    credentials: None,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    text: str | None,
    said: str,
) -> None:
    file = tmp_path / "wrong.properties"
    if text is not None:
        file.write_text(text)
    monkeypatch.setenv("MINIKAFKA_CONFIG", str(file))
    assert cli.run("user", "list", "--zookeeper", zookeeper) == 2
    assert len(cli.err.splitlines()) == 1
    assert said in cli.err
    assert "tiger-7" not in cli.err
