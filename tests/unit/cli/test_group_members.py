"""Members and single offsets of groups: shown, removed and deleted by commands, on brokers in memory."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from minikafka.base.ids import TopicPartition
from minikafka.clients.group.config import GroupConsumerConfig
from minikafka.clients.group.consumer import GroupConsumer
from minikafka.wire.api import ApiKey
from tests.support.broker_harness import BrokerHarness
from tests.support.command_line import CommandLine

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)


@pytest.fixture
def brokers(serve: Callable[[BrokerHarness], BrokerHarness]) -> BrokerHarness:
    brokers = serve(BrokerHarness(2, {"t": 2, "u": 1}))
    brokers.commit("g", {T0: 0, T1: 0, U0: 0})
    return brokers


def join(brokers: BrokerHarness, instance_id: str) -> GroupConsumer:
    """Return the static member of the group that reads topic t."""
    config = GroupConsumerConfig("g", auto_commit=False, group_instance_id=instance_id)
    consumer = GroupConsumer(brokers.client(client_id="app"), config, threads=False)
    consumer.subscribe(["t"])
    for _ in range(10):
        consumer.poll(50)
    return consumer


def test_members_are_shown_with_their_instance_ids(brokers: BrokerHarness, cli: CommandLine) -> None:
    assert cli.run("group", "describe", "g", "--members") == 0
    assert cli.err == "minikafka: group 'g' has no members\n"
    join(brokers, "one")
    assert cli.run("group", "describe", "g", "--members", "--format", "json") == 0
    (row,) = cli.rows
    assert (row["instance"], row["client"], row["partitions"]) == ("one", "app", 2)
    assert row["assigned"] == ["t-0", "t-1"]
    assert cli.run("group", "describe", "g", "--format", "json") == 0
    assert [row["instance"] for row in cli.rows if row["topic"] == "t"] == ["one", "one"]


def test_a_static_member_is_removed_by_its_instance_id(brokers: BrokerHarness, cli: CommandLine) -> None:
    join(brokers, "one")
    wanted = ("--instance-id", "one", "--instance-id", "two", "--reason", "broken")
    assert cli.run("group", "remove-members", "g", *wanted) == 1
    assert cli.out == "removed one of g\n"
    assert cli.err == "minikafka: group 'g' has no static member 'two', and no others\n"
    assert cli.run("group", "describe", "g", "--members") == 0
    assert "has no members" in cli.err


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (("gg", "--instance-id", "one"), 1, "there is no group 'gg'"),
        (("g",), 2, "Missing option '--instance-id'"),
    ],
)
def test_a_removal_of_nobody_is_one_line(
    brokers: BrokerHarness, cli: CommandLine, words: tuple[str, ...], status: int, said: str
) -> None:
    assert cli.run("group", "remove-members", *words) == status
    assert said in cli.err
    assert len(cli.err.splitlines()) == 1


def test_offsets_of_one_topic_are_deleted(brokers: BrokerHarness, cli: CommandLine) -> None:
    assert cli.run("group", "delete", "g", "--topic", "t:1") == 0
    assert cli.out == "deleted t:1 of g\n"
    assert brokers.committed("g") == {T0: 0, U0: 0}
    assert cli.run("group", "delete", "--topic", "t", "--all-groups", "--format", "json") == 0
    assert cli.rows == [{"group": "g", "topic": "t", "deleted": True, "stores": ["kafka"]}]
    assert brokers.committed("g") == {U0: 0}


def test_offsets_that_a_member_reads_stay(brokers: BrokerHarness, cli: CommandLine) -> None:
    join(brokers, "one")
    assert cli.run("group", "delete", "g", "--topic", "t") == 1
    assert "group 'g' has members: the offsets of topic 't' cannot be deleted before all" in cli.err
    assert cli.run("group", "delete", "g", "--topic", "u") == 0
    assert brokers.committed("g") == {T0: 0, T1: 0}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("g", "--topic", "x"), "group 'g' has no such offsets of topic 'x'; it has offsets of t, u"),
        (("g", "--topic", "t:7"), "group 'g' has no such offsets of topic 't'; it has offsets of t, u"),
        (("gg", "--topic", "t"), "there is no group 'gg'"),
    ],
)
def test_offsets_that_there_are_not_are_one_line(
    brokers: BrokerHarness, cli: CommandLine, words: tuple[str, ...], said: str
) -> None:
    assert cli.run("group", "delete", *words) == 1
    assert said in cli.err
    assert len(cli.err.splitlines()) == 1


def test_brokers_before_2_4_delete_no_single_offsets(brokers: BrokerHarness, cli: CommandLine) -> None:
    brokers.unknown.add(ApiKey.OFFSET_DELETE)
    assert cli.run("group", "delete", "g", "--topic", "t") == 1
    assert "deleting single offsets needs Kafka 2.4 or newer" in cli.err
    assert brokers.committed("g") == {T0: 0, T1: 0, U0: 0}
