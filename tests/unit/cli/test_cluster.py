"""``minikafka cluster log-dirs``."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from minikafka.base.errors import BrokerError, ErrorCode
from minikafka.base.ids import TopicPartition
from minikafka.clients.admin.admin import Admin
from minikafka.clients.admin.log_dirs import LogDir, LogDirReplica
from tests.support.broker_harness import BrokerHarness
from tests.support.command_line import CommandLine

HEALTHY = LogDir(0, "/a", None, (LogDirReplica(TopicPartition("t", 3), 70, 2, is_future=False),), 900, 40)
OFFLINE = LogDir(1, "/b", BrokerError(ErrorCode.KAFKA_STORAGE_ERROR, "/b"), ())


@pytest.fixture
def directories(
    monkeypatch: pytest.MonkeyPatch, serve: Callable[[BrokerHarness], BrokerHarness]
) -> list[LogDir]:
    """The directories that the brokers name: at first one, with one log."""
    named = [HEALTHY]
    serve(BrokerHarness(1))
    monkeypatch.setattr(Admin, "describe_log_dirs", lambda admin, brokers: named)
    return named


def test_each_log_is_a_row(directories: list[LogDir], cli: CommandLine) -> None:
    assert cli.run("cluster", "log-dirs", "--format", "json") == 0
    row = json.loads(cli.out)
    assert row == {
        "broker": 0,
        "log_dir": "/a",
        "error": None,
        "disk_size": 900,
        "disk_free": 40,
        "topic": "t",
        "partition": 3,
        "size": 70,
        "offset_lag": 2,
        "future": False,
    }


def test_unknown_broker_error_lists_live_ones_without_advice(
    serve: Callable[[BrokerHarness], BrokerHarness], cli: CommandLine
) -> None:
    serve(BrokerHarness(2))
    assert cli.run("cluster", "log-dirs", "--broker", "7") == 1
    text = cli.err
    assert text.startswith("minikafka: broker 7 is not among the live brokers of the cluster at memory:")
    assert text.endswith(" (live: 1, 2)\n")


def test_a_directory_without_a_wanted_log_is_still_named(directories: list[LogDir], cli: CommandLine) -> None:
    assert cli.run("cluster", "log-dirs", "--topic", "other") == 1
    header, row = cli.lines
    assert row.split()[:5] == ["0", "/a", "900", "40", "-"]
    assert "topic 'other' has no log" in cli.err
    assert "ERROR" not in header


def test_a_directory_that_is_offline_makes_the_status_1(directories: list[LogDir], cli: CommandLine) -> None:
    directories.append(OFFLINE)
    assert cli.run("cluster", "log-dirs") == 1
    assert "KAFKA_STORAGE_ERROR" in cli.out


def test_log_dirs_is_found_where_it_is_looked_for(directories: list[LogDir], cli: CommandLine) -> None:
    assert cli.run("cluster", "log-dirs") == 0
    printed = cli.out
    assert cli.run("log", "dirs") == 0
    assert cli.out == printed


def test_metadata_is_what_clients_learn(
    serve: Callable[[BrokerHarness], BrokerHarness], cli: CommandLine
) -> None:
    brokers = serve(BrokerHarness(2, {"t": 1, "u": 1}))
    leader = brokers.leader(TopicPartition("t", 0))
    assert cli.run("cluster", "metadata", "t", "--format", "json") == 0
    found = json.loads(cli.out)
    assert [broker["broker"] for broker in found["brokers"]] == [1, 2]
    assert found["controller"] in {1, 2}
    (topic,) = found["topics"]
    assert (topic["topic"], topic["internal"]) == ("t", False)
    partition = {"partition": 0, "leader": leader, "replicas": [leader], "in_sync": [leader]}
    assert topic["partitions"] == [partition]
    assert cli.run("cluster", "metadata") == 0
    assert cli.lines[-2].split() == ["t", "0", *[str(leader)] * 3]
    assert cli.run("cluster", "metadata", "nosuch") == 1
