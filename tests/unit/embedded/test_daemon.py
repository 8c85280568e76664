"""The reasons for which the daemon of an embedded broker ends. (Its process: ``test_local``.)"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from minikafka.base.config.property_files import write_properties
from minikafka.base.errors import MinikafkaError
from minikafka.base.log_lines import LogFormat
from minikafka.embedded import cluster
from minikafka.embedded.daemon import Daemon
from minikafka.embedded.data_directory import log_format
from minikafka.embedded.live_brokers import LiveBrokers
from minikafka.embedded.local_files import EmbeddedDirectory
from minikafka.embedded.owners import owner_of


@pytest.fixture
def data_dir(tmp_path: Path) -> str:
    return str(tmp_path / "data")


def test_daemon_runs_until_its_last_broker_has_ended(data_dir: str) -> None:
    daemon = Daemon(data_dir)
    brokers = LiveBrokers({0, 1}, dict)
    daemon._on_exit(1, -9)
    daemon._check_brokers(brokers)
    assert daemon._reason == ""
    daemon._on_exit(0, -9)
    daemon._check_brokers(brokers)
    assert daemon._reason == "its broker ended with exit code -9"


def test_daemon_runs_while_a_restarted_broker_is_alive(data_dir: str) -> None:
    daemon = Daemon(data_dir)
    living = True
    brokers = LiveBrokers({0}, lambda: {0: (("h", 1),)}, lambda addresses: living)
    daemon._on_exit(0, -9)
    daemon._check_brokers(brokers)
    assert daemon._reason == ""
    living = False
    daemon._check_brokers(brokers)
    assert daemon._reason == "its broker ended with exit code -9"


def test_session_that_joins_before_the_withdrawal_keeps_the_broker(
    data_dir: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemon = Daemon(data_dir)
    daemon._directory.make()
    joining = owner_of(os.getpid())
    assert joining is not None

    @contextlib.contextmanager
    def starting(timeout_s: float) -> Iterator[bool]:
        daemon._directory.add_owner(joining)
        yield True

    withdrawn: list[bool] = []
    monkeypatch.setattr(daemon._directory, "starting", starting)
    daemon._check_owners(lambda: withdrawn.append(True))
    assert (withdrawn, daemon._reason) == ([], "")


def test_daemon_waits_for_a_joining_session(data_dir: str) -> None:
    daemon = Daemon(data_dir)
    daemon._directory.make()
    withdrawn: list[bool] = []
    with EmbeddedDirectory(data_dir).starting(0):
        daemon._check_owners(lambda: withdrawn.append(True))
        assert (withdrawn, daemon._reason) == ([], "")
    daemon._check_owners(lambda: withdrawn.append(True))
    assert withdrawn == [True]
    assert daemon._reason != ""


def test_logs_keep_the_form_that_the_brokers_of_the_directory_had(tmp_path: Path) -> None:
    assert log_format(tmp_path) is LogFormat.TEXT
    write_properties(str(tmp_path / "broker-0.properties"), {"broker.id": "0"})
    assert log_format(tmp_path) is LogFormat.TEXT
    write_properties(str(tmp_path / "broker-1.properties"), {"log.format": "JSON"})
    (tmp_path / "broker-2.properties").write_bytes(b"a=\\u00zz")
    assert log_format(tmp_path) is LogFormat.JSON


def test_brokers_of_the_daemon_log_in_its_form(data_dir: str, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[Mapping[str, str]] = []

    class Refusing:
        def __init__(self, *, config: Mapping[str, str], **_: object) -> None:
            given.append(config)

        def start(self, _: object) -> None:
            raise MinikafkaError("no")

        def close(self) -> None:
            pass

    monkeypatch.setattr(cluster, "Cluster", Refusing)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    os.mkdir(data_dir)
    for form in LogFormat:
        daemon = Daemon(data_dir, form)
        os.makedirs(os.path.dirname(daemon._directory.failure), exist_ok=True)
        assert daemon.run() == 2
    assert given == [{}, {"log.format": "json"}]
