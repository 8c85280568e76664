"""Topics that are there already, or not, and topics marked for deletion in ZooKeeper."""

from __future__ import annotations

import json

import pytest

from minikafka.cli.commands import run
from minikafka.cli.topic import too_few_for_all
from minikafka.embedded.cluster import Cluster
from minikafka.embedded.process import wait_until

pytestmark = pytest.mark.process

PATIENCE_S = 30


@pytest.fixture
def at(minikafka_cluster: Cluster) -> tuple[str, str]:
    return "--bootstrap", minikafka_cluster.bootstrap_servers


@pytest.fixture
def to(minikafka_cluster: Cluster) -> tuple[str, str]:
    return "--zookeeper", minikafka_cluster.zookeeper_connect


def test_a_topic_that_is_there_stays_as_it_is_where_it_may(
    minikafka_topic: str, at: tuple[str, str], capfd: pytest.CaptureFixture[str]
) -> None:
    create = ["topic", "create", minikafka_topic, "--partitions", "7", *at]
    assert run(create) == 1
    capfd.readouterr()
    assert run([*create, "--if-not-exists", "--format", "json"]) == 0
    out, err = capfd.readouterr()
    assert json.loads(out) == {"topic": minikafka_topic, "created": False}
    assert err == f"minikafka: there is a topic '{minikafka_topic}'; nothing was changed\n"
    assert run(["topic", "describe", minikafka_topic, *at]) == 0
    assert len(capfd.readouterr().out.splitlines()) == 2


def test_what_else_is_wrong_is_an_error_also_where_the_topic_may_be_there(at: tuple[str, str]) -> None:
    assert run(["topic", "create", "new", "--replicas", "9", "--if-not-exists", *at]) == 2


@pytest.mark.parametrize("command", [["alter", "nobody", "--config", "retention.ms=5"], ["delete", "nobody"]])
def test_a_topic_that_is_not_there_is_no_error_where_it_may_be_missing(
    at: tuple[str, str], capfd: pytest.CaptureFixture[str], command: list[str]
) -> None:
    assert run(["topic", *command, *at]) == 1
    assert "there is no topic 'nobody'" in capfd.readouterr().err
    assert run(["topic", *command, "--if-exists", *at]) == 0
    assert capfd.readouterr() == ("", "minikafka: there is no topic 'nobody'; nothing was changed\n")


def test_a_topic_marked_for_deletion_in_zookeeper_goes(
    at: tuple[str, str], to: tuple[str, str], capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(["topic", "create", "marked", *at]) == 0
    capfd.readouterr()
    assert run(["topic", "delete", "marked", *to]) == 0
    assert capfd.readouterr().out.splitlines() == [
        "Topic marked is marked for deletion.",
        "Note: This will have no impact if delete.topic.enable is not set to true.",
    ]
    assert wait_until(lambda: run(["topic", "delete", "marked", *to]) != 0, PATIENCE_S)
    capfd.readouterr()
    assert run(["topic", "delete", "marked", "--if-exists", *to]) == 0
    assert capfd.readouterr().err == "minikafka: there is no topic 'marked'; nothing was changed\n"


@pytest.mark.parametrize("name", ["__consumer_offsets", "__transaction_state"])
def test_an_internal_topic_is_never_marked_for_deletion(
    at: tuple[str, str], to: tuple[str, str], capfd: pytest.CaptureFixture[str], name: str
) -> None:
    for way in (at, to):
        assert run(["topic", "delete", name, "--if-exists", *way]) == 2
        assert "is an internal topic of Kafka and may not be marked for deletion" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("least", "replicas", "warns"), [("2", 1, True), ("3", 2, True), ("2", 2, False), ("", 1, False)]
)
def test_a_topic_with_too_few_replicas_for_acks_all_is_warned_of(
    least: str, replicas: int, warns: bool
) -> None:
    configs = {"min.insync.replicas": least} if least else {}
    told = f"min.insync.replicas={least} and replicas: {replicas}: no write with acks=all can succeed"
    assert too_few_for_all(configs, replicas) == (told if warns else "")
