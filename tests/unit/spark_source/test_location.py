"""Named servers and the embedded broker."""

from __future__ import annotations

import pickle
import shutil
from datetime import datetime, timezone
from pathlib import Path

import pytest

from minikafka.base.endpoints import SecurityProtocol
from minikafka.base.files import RealFiles
from minikafka.embedded import local
from minikafka.embedded.cluster_security import prepare
from minikafka.embedded.local_files import LocalCluster
from minikafka.embedded.owners import host_boot_id
from pyspark_minikafka.location import Target, WrongHost, check_reachable, locate
from pyspark_minikafka.options.kafka_options import ConnectionOptions
from pyspark_minikafka.options.options import Location


def test_named_servers_start_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "ensure", None)
    assert locate(Location("a:1,b:2", None)) == Target("a:1,b:2")
    check_reachable(Target("a:1,b:2"))


def test_the_embedded_brokers_address_travels_with_the_host_that_it_serves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    here = LocalCluster("127.0.0.1:5", "127.0.0.1:6", "id", host_boot_id(), "d", 1, "now")
    monkeypatch.setattr(local, "running", lambda data_dir: here)
    monkeypatch.setattr(local, "ensure", lambda data_dir, **_: here)
    target = pickle.loads(pickle.dumps(locate(Location(None, "d"))))
    assert target == Target("127.0.0.1:5", "d", host_boot_id(), "id", "127.0.0.1:6", "d")
    check_reachable(target)


def test_login_of_a_secured_directory_travels_without_its_files(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    security = prepare(RealFiles(), str(tmp_path / "security"), [], datetime.now(timezone.utc))
    here = LocalCluster("127.0.0.1:5", "127.0.0.1:6", "id", host_boot_id(), str(tmp_path), 1, "now")
    monkeypatch.setattr(local, "running", lambda data_dir: here)
    monkeypatch.setattr(local, "ensure", lambda data_dir, **_: here)
    target = pickle.loads(pickle.dumps(locate(Location(None, str(tmp_path)))))
    shutil.rmtree(tmp_path / "security")
    connection = target.connection(ConnectionOptions())
    assert connection.security.protocol is SecurityProtocol.SASL_SSL
    connection.security.connector(client_id="c")
    secrets = [password.value for password in security.users.values()]
    assert not any(secret in repr(target) + repr(connection) for secret in secrets)


def test_cluster_start_is_reported_and_running_one_used_silently(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    here = LocalCluster("127.0.0.1:5", "127.0.0.1:6", "id", host_boot_id(), "d", 1, "now")
    runs: dict[str, LocalCluster] = {}
    monkeypatch.setattr(local, "running", runs.get)
    monkeypatch.setattr(local, "ensure", lambda data_dir, **_: runs.setdefault(data_dir, here))
    for _ in range(3):
        locate(Location(None, "d"))
    assert [record.getMessage() for record in caplog.records] == [
        "minikafka: starting a local Kafka cluster in d …"
    ]
    assert capsys.readouterr().err == "minikafka: the local Kafka cluster is ready at 127.0.0.1:5\n"


def test_a_task_on_another_host_says_what_to_do() -> None:
    with pytest.raises(WrongHost, match=r"kafka\.bootstrap\.servers"):
        check_reachable(Target("127.0.0.1:5", "d", "another host's boot", "id"))
