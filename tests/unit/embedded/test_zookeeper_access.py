"""A data directory whose ZooKeeper is closed to the other users of the machine."""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path

import pytest

from minikafka.base.errors import ConfigError, CoordinationError
from minikafka.embedded.cluster import Cluster
from minikafka.embedded.zookeeper import EmbeddedZooKeeper
from minikafka.embedded.zookeeper_access import properties_of, protect
from minikafka.registry.zookeeper import ZooKeeperStore
from tests.support.command_line import CommandLine


def test_the_password_is_generated_once_and_its_file_is_private(tmp_path: Path) -> None:
    assert properties_of(tmp_path) == {}
    made = protect(tmp_path)
    assert made["zookeeper.set.acl"] == "private"
    assert len(made["zookeeper.digest.credentials"]) > 40
    assert protect(tmp_path) == properties_of(tmp_path) == made
    file = tmp_path / "zookeeper" / "client.properties"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert protect(tmp_path / "other") != made


@pytest.mark.parametrize("wrong", ["mode", "text"])
def test_a_file_that_cannot_be_trusted_is_an_error(tmp_path: Path, wrong: str) -> None:
    protect(tmp_path)
    file = tmp_path / "zookeeper" / "client.properties"
    if wrong == "mode":
        file.chmod(0o622)
    else:
        file.write_bytes(b"\xff")
    with pytest.raises(ConfigError, match=r"client\.properties'?: cannot be read: "):
        properties_of(tmp_path)


@pytest.mark.process
def test_others_can_neither_read_nor_write_any_znode(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    cli = CommandLine(capfd)
    with Cluster(data_dir=tmp_path) as cluster:
        cluster.create_topic("before")
        with contextlib.closing(ZooKeeperStore(cluster.zookeeper_connect)) as anybody:
            anybody.create("/consumers/g")
            assert anybody.children("/brokers/topics") == ["before"]
    password = protect(tmp_path)["zookeeper.digest.credentials"].partition(":")[2]
    for _ in range(2):
        with Cluster(2, data_dir=tmp_path) as cluster:
            with contextlib.closing(ZooKeeperStore(cluster.zookeeper_connect)) as anybody:
                for path in (
                    "/",
                    "/brokers/ids",
                    "/brokers/topics/before",
                    "/consumers/g",
                    "/config/changes",
                    "/zookeeper",
                    "/zookeeper/quota",
                ):
                    with pytest.raises(CoordinationError, match="its ACL does not allow it"):
                        anybody.read(path)
                    with pytest.raises(CoordinationError, match="its ACL does not allow it"):
                        anybody.create(f"{path.rstrip('/')}/theirs")
            registered = cluster.registered_brokers()
            assert set(registered.read() or ()) == {0, 1}
            registered.close()
            cluster.create_topic(f"after-{os.urandom(4).hex()}", replicas=2)
            cluster.kill(1)
            cluster.restart(1)
    for log in (tmp_path / "logs").iterdir():
        assert password not in log.read_text(errors="replace")
    assert cli.run("config", "set", "client", "c", "producer_byte_rate=5", "--data-dir", str(tmp_path)) == 0
    assert cli.run("config", "get", "client", "c", "--data-dir", str(tmp_path)) == 0
    assert "producer_byte_rate" in cli.out
    assert cli.run("stop", str(tmp_path)) == 0


@pytest.mark.process
def test_a_new_zookeeper_that_somebody_has_written_to_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = EmbeddedZooKeeper.start

    def written_to(zookeeper: EmbeddedZooKeeper) -> str:
        connect = start(zookeeper)
        with contextlib.closing(ZooKeeperStore(connect)) as anybody:
            anybody.create("/config/users/admin", make_parents=True)
        return connect

    protect(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(EmbeddedZooKeeper, "start", written_to)
        with pytest.raises(CoordinationError, match="has created znodes in the new ZooKeeper: config;"):
            Cluster(data_dir=tmp_path).__enter__()
    with Cluster(data_dir=tmp_path) as cluster:
        cluster.create_topic("t")
