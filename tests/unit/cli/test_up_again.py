"""The command line by which ``up`` says that its cluster is started again."""

from __future__ import annotations

import shlex
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from minikafka.cli.options import DEFAULT_DATA_DIR
from minikafka.cli.up import restart_command

ONE: Any = SimpleNamespace(count=1, bootstrap_servers="127.0.0.1:9092")
ON_A_FREE_PORT: Any = SimpleNamespace(count=1, bootstrap_servers="127.0.0.1:21007")
TWO: Any = SimpleNamespace(count=2, bootstrap_servers="h:21000,h:21001")


def test_defaults_are_left_out() -> None:
    assert restart_command(DEFAULT_DATA_DIR, "127.0.0.1", 9092, None, None, {}, ONE) == "minikafka up"


def test_the_port_that_was_free_is_asked_for() -> None:
    assert restart_command(DEFAULT_DATA_DIR, "127.0.0.1", 0, None, None, {}, ON_A_FREE_PORT) == (
        "minikafka up --port 21007"
    )


def test_all_that_was_given_is_given_again_and_quoted_for_a_shell() -> None:
    config = {"broker.rack": "a b", "num.partitions": "4"}
    command = restart_command(Path("my data"), "h", 21000, "z:2181/k", 2, config, TWO)
    assert shlex.split(command)[2:] == [
        *("--data-dir", "my data", "--host", "h", "--port", "21000", "--zookeeper", "z:2181/k"),
        *("--brokers", "2", "--set", "broker.rack=a b", "--set", "num.partitions=4"),
    ]


@pytest.mark.parametrize("name", ["ssl.key.password", "listener.name.x.sasl.jaas.config"])
def test_secrets_are_left_to_whoever_pastes_it(name: str) -> None:
    command = restart_command(DEFAULT_DATA_DIR, "127.0.0.1", 9092, None, None, {name: "tiger"}, ONE)
    assert command == f"minikafka up --set '{name}=***'"
