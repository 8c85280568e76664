from __future__ import annotations

import os
from pathlib import Path

import pytest

from minikafka.embedded.broker import BrokerFailed, BrokerProcess, Ready


def test_port_follows_the_last_colon() -> None:
    assert Ready("::1:9093", "x").port == 9093


def test_refused_property_is_reported_with_the_exit_code(tmp_path: Path) -> None:
    properties = {"zookeeper.connect": "127.0.0.1:1", "log.dirs": str(tmp_path / "log"), "log.layout": "odd"}
    broker = BrokerProcess(0, str(tmp_path), properties)
    with pytest.raises(BrokerFailed, match=r"^broker 0: log\.layout='odd'") as caught:
        broker.wait_ready()
    assert caught.value.exit_code == 2
    assert broker.exit_code == 2


def test_end_of_the_broker_calls_on_exit(tmp_path: Path) -> None:
    codes: list[int] = []
    broker = BrokerProcess(0, str(tmp_path), {"zookeeper.connect": "127.0.0.1:1"}, on_exit=codes.append)
    broker.kill()
    assert codes == [-9]


def test_killed_broker_has_no_process(tmp_path: Path) -> None:
    broker = BrokerProcess(0, str(tmp_path), {"zookeeper.connect": "127.0.0.1:1"})
    pid = broker.pid
    assert broker.kill() == -9
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
