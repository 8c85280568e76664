"""``minikafka container``: a broker by environment variables, as in an image."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from minikafka.base.config.property_files import read_properties
from minikafka.cli.container import container_properties
from minikafka.log.layout import CLEAN_SHUTDOWN_FILE
from minikafka.server.config.properties import BrokerConfig
from tests.support.command_line import CommandLine

DATA = Path("data")


def merged(variables: dict[str, str], mounted: dict[str, str] | None = None) -> dict[str, str]:
    return container_properties(variables, mounted or {}, DATA)


def test_without_variables_it_serves_this_host_with_its_own_zookeeper() -> None:
    properties = merged({})
    assert properties["listeners"] == "PLAINTEXT://0.0.0.0:9092"
    assert properties["advertised.listeners"] == "PLAINTEXT://localhost:9092"
    assert (properties["broker.id"], properties["log.dirs"]) == ("0", str(DATA / "data"))
    assert BrokerConfig.from_properties({"zookeeper.connect": "z:2181", **properties}).unknown == ()


def test_a_variable_beats_the_file_which_beats_the_defaults() -> None:
    properties = merged(
        {"num.partitions": "3", "zookeeper.connect": "z:2181"},
        {"num.partitions": "2", "zookeeper.connection.timeout.ms": "5"},
    )
    assert properties["num.partitions"] == "3"
    assert properties["zookeeper.connection.timeout.ms"] == "5"
    assert "broker.id" not in properties


def test_listeners_of_variables_replace_those_of_the_file() -> None:
    mounted = {"listeners": "A://:1", "advertised.listeners": "A://a:1"}
    assert merged({"advertised.listeners": "B://b:2"}, mounted)["listeners"] == "B://0.0.0.0:2"
    assert merged({}, mounted)["listeners"] == "A://:1"


def test_default_listeners_are_not_mixed_with_others() -> None:
    assert "advertised.listeners" not in merged({"listeners": "A://h:1"})
    assert "listeners" not in merged({"port": "9093"})
    assert "log.dirs" not in merged({"log.dir": "other"})


@pytest.mark.parametrize(
    ("variable", "message"),
    [("KAFKA_LOG____DIRS", "stands for no property"), ("KAFKA_SSL_KEY_CREDENTIALS", "cannot be read")],
)
def test_bad_variables_are_one_line(
    tmp_path: Path, cli: CommandLine, monkeypatch: pytest.MonkeyPatch, variable: str, message: str
) -> None:
    monkeypatch.setenv(variable, "x")
    assert cli.run("container", "--data-dir", str(tmp_path)) == 2
    assert message in cli.err
    assert len(cli.err.splitlines()) == 1


def test_directory_of_a_cluster_of_up_is_refused(tmp_path: Path, cli: CommandLine) -> None:
    (tmp_path / "broker-0").mkdir()
    (tmp_path / "broker-0" / "meta.properties").touch()
    assert cli.run("container", "--data-dir", str(tmp_path)) == 2
    assert "has a cluster of `minikafka up`" in cli.err


def command(data_dir: Path) -> list[str]:
    return [sys.executable, "-m", "minikafka", "container", "--data-dir", str(data_dir)]


def environment(variables: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("KAFKA_")} | variables


def run(data_dir: Path, variables: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(data_dir), env=environment(variables), capture_output=True, text=True, timeout=60
    )


@pytest.mark.process
def test_it_serves_stops_on_sigterm_and_keeps_its_id(tmp_path: Path) -> None:
    variables = {
        "KAFKA_LISTENERS": "PLAINTEXT://127.0.0.1:0",
        "KAFKA_METRICS_LISTENERS": "http://127.0.0.1:0",
        "KAFKA_HEAP_OPTS": "-Xmx1G",
        "KAFKA_LOG_FORMAT": "json",
        "KAFKA_BROKER_ID": "4",
    }
    with subprocess.Popen(
        command(tmp_path),
        env=environment(variables),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        try:
            ready = process.stdout.readline()
            zookeeper = ready.split()[3] if ready else ""
            process.send_signal(signal.SIGTERM)
            _, log = process.communicate(timeout=60)
        finally:
            process.kill()
    assert ready.startswith("ready 127.0.0.1:"), log
    assert process.returncode == 0, log
    assert all(line.startswith('{"ts":') for line in log.splitlines())
    assert "ignored KAFKA_HEAP_OPTS" in log
    assert (tmp_path / "data" / CLEAN_SHUTDOWN_FILE).is_file()
    assert read_properties(str(tmp_path / "server.properties"), "")["zookeeper.connect"] == zookeeper
    assert (tmp_path / "server.properties").stat().st_mode & 0o077 == 0
    other = run(tmp_path, variables | {"KAFKA_BROKER_ID": "5"})
    assert other.returncode == 2
    assert "belongs to broker 4, not to broker 5" in other.stderr
