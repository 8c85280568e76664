"""Topics that are there already, or not, and topics marked for deletion in ZooKeeper."""

from __future__ import annotations

import json

import pytest

from minikafka.base.text import counted
from minikafka.cli.commands import run
from minikafka.cli.config import warn_of_too_few_replicas
from minikafka.embedded.cluster import Cluster
from minikafka.embedded.process import wait_until
from tests.support.command_line import CommandLine

pytestmark = pytest.mark.process

PATIENCE_S = 30


@pytest.fixture
def at(minikafka_cluster: Cluster) -> tuple[str, str]:
    return "--bootstrap", minikafka_cluster.bootstrap_servers


@pytest.fixture
def to(minikafka_cluster: Cluster) -> tuple[str, str]:
    return "--zookeeper", minikafka_cluster.zookeeper_connect


def test_a_topic_that_is_there_stays_as_it_is_where_it_may(
    minikafka_topic: str, at: tuple[str, str], cli: CommandLine
) -> None:
    create = ["topic", "create", minikafka_topic, "--partitions", "7", *at]
    assert cli.run(*create) == 1
    assert cli.run(*create, "--if-not-exists", "--format", "json") == 0
    assert json.loads(cli.out) == {"topic": minikafka_topic, "created": False}
    assert cli.err == f"minikafka: topic '{minikafka_topic}' already exists; nothing was changed\n"
    assert cli.run("topic", "describe", minikafka_topic, *at) == 0
    assert len(cli.lines) == 2


def test_what_else_is_wrong_is_an_error_also_where_the_topic_may_be_there(at: tuple[str, str]) -> None:
    assert run(["topic", "create", "new", "--replicas", "9", "--if-not-exists", *at]) == 2


@pytest.mark.parametrize("command", [["alter", "nobody", "--config", "retention.ms=5"], ["delete", "nobody"]])
def test_a_topic_that_is_not_there_is_no_error_where_it_may_be_missing(
    at: tuple[str, str], cli: CommandLine, command: list[str]
) -> None:
    assert cli.run("topic", *command, *at) == 1
    assert "there is no topic 'nobody'" in cli.err
    assert cli.run("topic", *command, "--if-exists", *at) == 0
    assert (cli.out, cli.err) == ("", "minikafka: topic 'nobody' does not exist; nothing was changed\n")


def test_a_topic_marked_for_deletion_in_zookeeper_goes(
    at: tuple[str, str], to: tuple[str, str], cli: CommandLine
) -> None:
    assert cli.run("topic", "create", "marked", *at) == 0
    assert cli.run("topic", "delete", "marked", *to) == 0
    assert cli.lines == [
        "Topic marked is marked for deletion.",
        "Note: This will have no impact if delete.topic.enable is not set to true.",
    ]
    assert wait_until(lambda: cli.run("topic", "delete", "marked", *to) != 0, PATIENCE_S)
    assert cli.run("topic", "delete", "marked", "--if-exists", *to) == 0
    assert cli.err == "minikafka: topic 'marked' does not exist; nothing was changed\n"


@pytest.mark.parametrize("name", ["__consumer_offsets", "__transaction_state"])
def test_an_internal_topic_is_never_marked_for_deletion(
    at: tuple[str, str], to: tuple[str, str], cli: CommandLine, name: str
) -> None:
    for way in (at, to):
        assert cli.run("topic", "delete", name, "--if-exists", *way) == 2
        assert "is an internal topic of Kafka and may not be deleted" in cli.err


@pytest.mark.parametrize(
    ("least", "replicas", "warns"), [("2", 1, True), ("3", 2, True), ("2", 2, False), (None, 1, False)]
)
def test_a_topic_with_too_few_replicas_for_acks_all_is_warned_of(
    least: str | None, replicas: int, warns: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    warn_of_too_few_replicas("t", {"min.insync.replicas": least}, replicas)
    begin = (
        f"minikafka: min.insync.replicas={least} is more than t has ({counted(replicas, 'replica')} of each"
    )
    assert capsys.readouterr().err.startswith(begin) is warns


@pytest.mark.parametrize(
    ("command", "option"),
    [
        (["topic", "create"], ["--config"]),
        (["topic", "alter"], ["--config"]),
        (["config", "set", "topic"], []),
    ],
)
def test_more_in_sync_replicas_than_there_are_is_taken_and_warned_of(
    minikafka_topic: str, at: tuple[str, str], cli: CommandLine, command: list[str], option: list[str]
) -> None:
    name = f"{minikafka_topic}-{command[1]}"
    if "create" not in command:
        assert cli.run("topic", "create", name, *at) == 0
    assert cli.run(*command, name, *option, "min.insync.replicas=2", *at) == 0
    assert f"min.insync.replicas=2 is more than {name} has (1 replica of" in cli.err


def test_new_topic_is_printed_with_its_id_and_numbers(
    minikafka_topic: str, at: tuple[str, str], cli: CommandLine
) -> None:
    name = f"{minikafka_topic}-made"
    assert cli.run("topic", "create", name, "--partitions", "2", "--format", "json", *at) == 0
    (made,) = cli.rows
    assert made == {"topic": name, "topic_id": made["topic_id"], "partitions": 2, "replicas": 1, "config": {}}
    assert cli.run("topic", "list", "--format", "json", *at) == 0
    assert {row["topic"]: row["topic_id"] for row in cli.rows}[name] == made["topic_id"]


@pytest.mark.parametrize("setting", ["retention.ms=-5", "cleanup.policy=Compact"])
def test_a_value_that_kafka_refuses_is_refused_with_it_and_what_is_allowed(
    minikafka_topic: str, at: tuple[str, str], cli: CommandLine, setting: str
) -> None:
    name, _, value = setting.partition("=")
    assert cli.run("topic", "create", f"{minikafka_topic}-other", "--config", setting, *at) == 2
    assert f"{name}='{value}': " in cli.err
    assert cli.run("config", "set", "topic", minikafka_topic, setting, *at) == 2
    assert f"{name}='{value}': " in cli.err
