"""``minikafka broker``: the log of a broker of `minikafka up` that is started by hand."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

import pytest

from minikafka.base.log_lines import RepeatedLines
from minikafka.cli.broker import log_stream
from minikafka.embedded.log_files import ClusterLogs
from minikafka.server.event_log import EventLog


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    """The directory of a cluster with broker 1."""
    (tmp_path / "logs").mkdir()
    (tmp_path / "broker-1").mkdir()
    for name in ("broker-1/meta.properties", "broker-1.properties"):
        (tmp_path / name).touch()
    return tmp_path


def test_broker_started_by_hand_logs_where_the_others_do(
    data_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stream = log_stream(data_dir / "broker-1.properties")
    assert stream is not None
    log = EventLog(RepeatedLines(), stream)
    log.handle(logging.LogRecord("minikafka.a", logging.WARNING, "", 1, "naïve", None, None))
    with ClusterLogs(data_dir) as logs:
        assert [(entry.source, entry.line.partition(" ")[2]) for entry in logs.entries()] == [
            ("broker-1", "WARNING naïve (minikafka.a)")
        ]
    assert capsys.readouterr().err.endswith(" WARNING naïve (minikafka.a)\n")


@pytest.mark.parametrize("name", ["broker-2.properties", "server.properties"])
def test_other_brokers_log_to_standard_error_alone(data_dir: Path, name: str) -> None:
    (data_dir / name).touch()
    assert log_stream(data_dir / name) is None


def test_broker_starts_without_a_directory_for_its_log(data_dir: Path) -> None:
    (data_dir / "logs").rmdir()
    assert log_stream(data_dir / "broker-1.properties") is None


def test_standard_error_that_is_the_log_has_each_line_once(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (data_dir / "logs" / "broker-1.log").open("a") as log:
        monkeypatch.setattr(sys, "stderr", log)
        assert log_stream(data_dir / "broker-1.properties") is None
