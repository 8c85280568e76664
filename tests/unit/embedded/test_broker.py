from __future__ import annotations

import os
from pathlib import Path

import pytest

from minikafka.embedded.broker import (
    BrokerFailed,
    BrokerProcess,
    Ready,
    properties_text,
    write_properties,
)
from minikafka.server.config.properties import parse_properties


def test_port_follows_the_last_colon() -> None:
    assert Ready("::1:9093", "x").port == 9093


def test_written_properties_are_read_back_as_they_were() -> None:
    properties = {
        "log.dirs": "/a b/c=d",
        "zookeeper.connect": "h:1/chroot",
        "x": "",
        "metrics": "back\\slash\\n and ends with one\\",
        "lines": " first\nsecond\r\u2028third",
        "no.continuation": "\\\\",
    }
    assert parse_properties(properties_text(properties), "f") == properties


def test_properties_are_written_for_their_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "broker-0.properties"
    path.write_text("from before")
    path.chmod(0o644)
    write_properties(str(path), {"ssl.key.password": "tiger"})
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.read_text() == "ssl.key.password=tiger\n"


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
