"""``minikafka container``: a broker by environment variables, as in an image."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from minikafka.base.config.property_files import read_properties
from minikafka.cli.container import container_properties
from minikafka.embedded.process import wait_until
from minikafka.log.layout import CLEAN_SHUTDOWN_FILE
from minikafka.server.config.properties import BrokerConfig
from tests.support.command_line import CommandLine
from tests.support.network import notifications

DATA = Path("data")
CONTAINERFILE = Path(__file__).resolve().parents[3] / "deploy" / "Containerfile"


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


def is_healthy(log: Path) -> bool:
    """Return True if the image's HEALTHCHECK, at the address that the broker has logged, finds it ready."""
    (check,) = re.findall(r"^    CMD (\[.*\])$", CONTAINERFILE.read_text("utf-8"), re.MULTILINE)
    (address,) = re.findall(r"metrics at (\S+)/metrics", log.read_text("utf-8"))
    program = json.loads(check)[2].replace("http://127.0.0.1:9308", address)
    return subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=30).returncode == 0


@pytest.mark.process
def test_it_serves_stops_on_sigterm_and_keeps_its_id(tmp_path: Path) -> None:
    data_dir, log = tmp_path / "data", tmp_path / "log"
    variables = {
        "KAFKA_LISTENERS": "PLAINTEXT://127.0.0.1:0",
        "KAFKA_METRICS_LISTENERS": "http://127.0.0.1:0",
        "KAFKA_HEAP_OPTS": "-Xmx1G",
        "KAFKA_LOG_FORMAT": "json",
        "KAFKA_BROKER_ID": "4",
        "NOTIFY_SOCKET": str(tmp_path / "notify"),
    }
    with (
        notifications(tmp_path / "notify") as received,
        log.open("wb") as errors,
        subprocess.Popen(
            command(data_dir), env=environment(variables), stdout=subprocess.PIPE, stderr=errors, text=True
        ) as process,
    ):
        assert process.stdout is not None
        try:
            ready = process.stdout.readline()
            assert ready.startswith("ready 127.0.0.1:"), log.read_text()
            assert wait_until(lambda: is_healthy(log), 10)
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0, log.read_text()
        finally:
            process.kill()
        assert received() == [f"READY=1\nSTATUS=serving {ready.split()[1]}", "STOPPING=1\nSTATUS=stopping"]
    lines = log.read_text().splitlines()
    assert all(line.startswith('{"ts":') for line in lines)
    assert any("ignored KAFKA_HEAP_OPTS" in line for line in lines)
    assert (data_dir / "data" / CLEAN_SHUTDOWN_FILE).is_file()
    assert read_properties(str(data_dir / "server.properties"), "")["zookeeper.connect"] == ready.split()[3]
    assert (data_dir / "server.properties").stat().st_mode & 0o077 == 0
    other = run(data_dir, variables | {"KAFKA_BROKER_ID": "5"})
    assert other.returncode == 2
    assert "belongs to broker 4, not to broker 5" in other.stderr
