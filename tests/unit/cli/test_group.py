"""``minikafka group`` on brokers in memory."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from minikafka.base.errors import ErrorCode
from minikafka.base.ids import TopicPartition
from minikafka.base.text import counted
from minikafka.clients.group.config import GroupConsumerConfig, Reset
from minikafka.clients.group.consumer import GroupConsumer
from minikafka.clients.network.cluster import ClusterClient
from minikafka.wire.api import ApiKey
from minikafka.wire.apis.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from tests.support.broker_harness import OFFSETS, BrokerHarness, commit_error
from tests.support.command_line import CommandLine

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def client(brokers: BrokerHarness) -> ClusterClient:
    return brokers.client(creates_topics=False, unknown_topic_timeout_ms=100)


def members(brokers: BrokerHarness, count: int, group: str = "g") -> list[GroupConsumer]:
    config = GroupConsumerConfig(group, auto_commit=False, auto_offset_reset=Reset.LATEST)
    found = [GroupConsumer(client(brokers), config, threads=False) for _ in range(count)]
    for consumer in found:
        consumer.subscribe(["t"])
    for _ in range(10 * count):
        for consumer in found:
            consumer.poll(50)
    return found


def join(brokers: BrokerHarness, group: str = "g") -> GroupConsumer:
    (consumer,) = members(brokers, 1, group)
    assert consumer.assignment
    return consumer


def offsets_of(brokers: BrokerHarness) -> dict[TopicPartition, int]:
    return brokers.committed("g")


def rows(cli: CommandLine, *arguments: str) -> list[dict[str, Any]]:
    assert cli.run("group", *arguments, "--format", "json") == 0
    return cli.rows


def failed(cli: CommandLine, *arguments: str) -> tuple[int, str]:
    status = cli.run("group", *arguments)
    assert cli.out == ""
    return status, cli.err


def test_the_list_names_groups_of_all_brokers_with_their_states(
    brokers: BrokerHarness, cli: CommandLine
) -> None:
    with join(brokers, "active"):
        assert cli.run("group", "list") == 0
    assert cli.lines == [
        "GROUP   KIND   STATE   MEMBERS  ASSIGNOR  COORDINATOR",
        "active  kafka  Stable        1  range               1",
        "g       kafka  Empty         0  -                   1",
    ]


def test_a_description_tells_the_lag_and_who_reads(brokers: BrokerHarness, cli: CommandLine) -> None:
    with join(brokers):
        (member,) = brokers.group("g").members
        assert cli.run("group", "describe", "g") == 0
    first, *table = cli.lines
    assert first == "g: Stable, 1 member, range, coordinated by broker 1 at memory:9001, total lag 3"
    who = [member.member_id, member.client_id, member.client_host.lstrip("/")]
    assert [line.split() for line in table] == [
        ["TOPIC", "PARTITION", "OFFSET", "END", "OFFSET", "LAG", "MEMBER", "CLIENT", "HOST"],
        ["t", "0", "2", "5", "3", *who],
        ["t", "1", "-", "5", "-", *who],
    ]


def test_a_member_without_partitions_is_told_too(brokers: BrokerHarness, cli: CommandLine) -> None:
    consumers = members(brokers, 3)
    (idle,) = (consumer.member_id for consumer in consumers if not consumer.assignment)
    found = rows(cli, "describe", "g")
    assert [row["topic"] for row in found] == ["t", "t", None]
    assert found[-1]["member"] == idle


def test_an_offset_of_a_topic_that_was_deleted_has_no_lag(brokers: BrokerHarness, cli: CommandLine) -> None:
    gone = OffsetFetchResponseTopic("gone", (OffsetFetchResponsePartition(0, 7, -1, "", 0),))

    def kept(broker_id: int, request: OffsetFetchRequest) -> OffsetFetchResponse:
        """The answer of a coordinator that keeps offsets of deleted topics, as Kafka before 0.10.1."""
        served = brokers.serve(broker_id, request)
        (group,) = served.groups
        return replace(served, groups=(replace(group, topics=(*group.topics, gone)),))

    brokers.always(ApiKey.OFFSET_FETCH, kept)
    found = rows(cli, "describe", "g")
    assert [(row["topic"], row["offset"], row["end_offset"], row["lag"]) for row in found] == [
        ("gone", 7, None, None),
        ("t", 2, 5, 3),
    ]


def test_lag_of_an_offset_beyond_the_end_of_the_log_is_unknown(
    brokers: BrokerHarness, cli: CommandLine
) -> None:
    brokers.commit("g", {T0: 9})
    found = rows(cli, "describe", "g")
    assert [(row["offset"], row["end_offset"], row["lag"]) for row in found] == [(9, 5, None)]


def test_a_group_that_has_nothing_still_has_a_state(brokers: BrokerHarness, cli: CommandLine) -> None:
    join(brokers, "idle").close()
    assert cli.run("group", "describe", "idle") == 0
    assert cli.out == "idle: Empty, 0 members, coordinated by broker 1 at memory:9001\n"
    (row,) = rows(cli, "describe", "idle")
    assert (row["state"], row["topic"], row["member"]) == ("Empty", None, None)


def test_unknown_group_error_has_similar_name_and_zookeeper_hint(
    brokers: BrokerHarness, cli: CommandLine
) -> None:
    brokers.commit("billing", {T0: 1})
    for command in ("describe", "delete"):
        status, printed = failed(cli, command, "biling")
        assert status == 1
        assert printed.startswith(
            "minikafka: GROUP_ID_NOT_FOUND: there is no group 'biling'; there is 'billing' at "
        )
        assert printed.endswith("at the brokers; for a group in ZooKeeper use --zookeeper HOST:PORT/CHROOT\n")


def test_a_reset_is_only_shown_until_it_is_to_be_executed(brokers: BrokerHarness, cli: CommandLine) -> None:
    assert cli.run("group", "reset", "g", "--to-latest") == 0
    assert cli.lines == ["TOPIC  PARTITION  OFFSET  NEW OFFSET", "t              0       2           5"]
    assert cli.err == "minikafka: nothing was changed; add --execute to set the offsets\n"
    assert brokers.committed("g") == {T0: 2}


@pytest.mark.parametrize(
    ("options", "offsets"),
    [
        (["--to-earliest"], {T0: 0}),
        (["--to-latest", "--topic", "t"], {T0: 5, T1: 5}),
        (["--to-offset", "4", "--topic", "t:1"], {T0: 2, T1: 4}),
        (["--to-time", "1970-01-01T00:00:01.003Z", "--topic", "t:0,1"], {T0: 3, T1: 3}),
        (["--to-datetime", "1970-01-02"], {T0: 5}),
        (["--to-current", "--topic", "t"], {T0: 2, T1: 5}),
        (["--by-duration", "P1D", "--all-topics"], {T0: 5}),
        (["--by-duration", "P99999D"], {T0: 0}),
        (["--shift-by", "-1"], {T0: 1}),
    ],
)
def test_an_executed_reset_is_where_the_group_goes_on(
    brokers: BrokerHarness, cli: CommandLine, options: list[str], offsets: dict[TopicPartition, int]
) -> None:
    assert cli.run("group", "reset", "g", *options, "--format", "json", "--execute") == 0
    found = cli.rows
    assert cli.err == f"minikafka: set the offsets of {counted(len(found), 'partition')} at the brokers\n"
    assert all(row["executed"] and row["group"] == "g" for row in found)
    assert brokers.committed("g") == offsets


@pytest.mark.parametrize(
    ("options", "printed"),
    [
        (["--to-offset", "9", "--topic", "t"], "t-0 at 9 (0 to 5), t-1 at 9 (0 to 5)"),
        (["--shift-by", "-3"], "t-0 at -1 (0 to 5)"),
    ],
)
def test_an_offset_that_a_log_does_not_have_is_told(
    brokers: BrokerHarness, cli: CommandLine, options: list[str], printed: str
) -> None:
    assert cli.run("group", "reset", "g", *options, "--execute") == 0
    assert cli.err.splitlines() == [
        f"minikafka: out of range: {printed}; using the nearer end of the log",
        f"minikafka: set the offsets of {counted(printed.count(' at '), 'partition')} at the brokers",
    ]


def test_a_reset_makes_a_group_that_was_not_there(brokers: BrokerHarness, cli: CommandLine) -> None:
    rows(cli, "reset", "new", "--to-offset", "3", "--topic", "t:1", "--execute")
    assert brokers.committed("new") == {T1: 3}
    assert failed(cli, "reset", "other", "--to-latest") == (
        2,
        "minikafka: --topic: required, as group 'other' has no committed offsets\n",
    )


@pytest.mark.parametrize("arguments", [["reset", "g", "--to-earliest", "--execute"], ["delete", "g"]])
def test_a_group_with_members_is_left_alone(
    brokers: BrokerHarness, cli: CommandLine, arguments: list[str]
) -> None:
    with join(brokers):
        status, err = failed(cli, *arguments)
    assert status == 1
    assert "NON_EMPTY_GROUP: group 'g' has members: " in err
    assert "before all of them have stopped" in err
    assert brokers.committed("g") == {T0: 2}


def test_a_member_that_joins_meanwhile_keeps_its_offsets(brokers: BrokerHarness, cli: CommandLine) -> None:
    code = ErrorCode.UNKNOWN_MEMBER_ID
    brokers.script(ApiKey.OFFSET_COMMIT, commit_error(code))
    status, err = failed(cli, "reset", "g", "--to-earliest", "--execute")
    assert (status, "NON_EMPTY_GROUP" in err) == (1, True)


@pytest.mark.parametrize(
    ("topic", "message"),
    [
        ("tt", "there is no topic 'tt', or this client may not describe it; there is 't'"),
        ("t:2", "t-2: topic 't' has 2 partitions, 0 to 1"),
    ],
)
def test_an_unknown_topic_or_partition_is_told(
    brokers: BrokerHarness, cli: CommandLine, topic: str, message: str
) -> None:
    assert failed(cli, "reset", "g", "--to-latest", "--topic", topic) == (
        1,
        f"minikafka: UNKNOWN_TOPIC_OR_PARTITION: {message}\n",
    )


def test_a_deleted_group_is_gone_with_its_offsets(brokers: BrokerHarness, cli: CommandLine) -> None:
    assert cli.run("group", "delete", "g") == 0
    assert cli.out == "deleted g\n"
    assert cli.err == (
        "minikafka: deleted only at the brokers; for a group of this name in ZooKeeper add --zookeeper "
        "HOST:PORT/CHROOT\n"
    )
    assert brokers.groups() == []


def test_brokers_that_cannot_delete_groups_are_told_apart(brokers: BrokerHarness, cli: CommandLine) -> None:
    brokers.unknown.add(ApiKey.DELETE_GROUPS)
    status, err = failed(cli, "delete", "g")
    assert (status, "deleting a group needs Kafka 1.1 or newer" in err) == (1, True)


def test_brokers_with_offset_fetch_v1_are_asked_every_partition(
    brokers: BrokerHarness, cli: CommandLine
) -> None:
    brokers.newest[ApiKey.OFFSET_FETCH] = 1
    assert [(row["partition"], row["offset"]) for row in rows(cli, "describe", "g")] == [(0, 2)]
    (request,) = brokers.asked(ApiKey.OFFSET_FETCH)
    assert [(topic.name, topic.partition_indexes) for topic in request.topics] == [
        ("__consumer_offsets", (0,)),
        ("t", (0, 1)),
    ]


# group seek, and deletion of offsets


@pytest.mark.parametrize(
    ("to", "offsets"),
    [
        ("start", {T0: 0, T1: 0}),
        ("end", {T0: 5, T1: 5}),
        ("1970-01-01", {T0: 0, T1: 0}),
        ("-1s", {T0: 5, T1: 5}),
        ("30000d", {T0: 0, T1: 0}),
    ],
)
def test_a_group_is_set_at_once_to_where_rpk_says(
    brokers: BrokerHarness, cli: CommandLine, to: str, offsets: dict[TopicPartition, int]
) -> None:
    assert cli.run("group", "seek", "g", "--to", to, "--topics", "t") == 0, cli.err
    assert offsets_of(brokers) == offsets


@pytest.mark.parametrize(
    ("words", "advice"),
    [
        (("seek", "g", "--to", "@2100-01-01"), "use end"),
        (("reset", "g", "--to-time", "4102444800000", "--execute"), "use --to-latest"),
    ],
)
def test_a_time_in_the_future_sets_no_offsets(
    brokers: BrokerHarness, cli: CommandLine, words: tuple[str, ...], advice: str
) -> None:
    assert cli.run("group", *words) == 2
    assert f"{words[2]}={words[3]!r}: is in the future; it is " in cli.err
    assert cli.err.endswith(f"; to skip all messages, {advice}\n")


def test_a_seek_can_be_only_shown_and_needs_a_place(brokers: BrokerHarness, cli: CommandLine) -> None:
    assert cli.run("group", "seek", "g", "--to", "end", "--dry-run") == 0
    assert cli.err == "minikafka: nothing was changed; leave out --dry-run to set the offsets\n"
    assert offsets_of(brokers) == {T0: 2}
    for word in ("47", "-1h:end", "noon", ""):
        assert cli.run("group", "seek", "g", "--to", word) == 2
        assert f"--to={word!r}: must be start, end, a time" in cli.err


def test_only_the_offsets_of_a_group_are_deleted(brokers: BrokerHarness, cli: CommandLine) -> None:
    brokers.add_topic("u", 1)
    brokers.commit("g", {T1: 1, TopicPartition("u", 0): 0})
    assert cli.run("group", "delete", "g", "--offsets", "--topic", "u") == 0
    assert offsets_of(brokers) == {T0: 2, T1: 1}
    assert cli.run("group", "delete", "g", "--offsets") == 0
    assert cli.out == "deleted t of g\n"
    assert offsets_of(brokers) == {}
    assert failed(cli, "delete", "g", "--offsets")[0] == 1


def test_a_summary_is_one_row_with_the_total_lag(brokers: BrokerHarness, cli: CommandLine) -> None:
    with join(brokers):
        assert rows(cli, "describe", "g", "--summary") == [
            {
                "group": "g",
                "kind": "kafka",
                "state": "Stable",
                "coordinator": 1,
                "assignor": "range",
                "members": 1,
                "partitions": 2,
                "total_lag": 3,
            }
        ]


def test_a_cluster_without_groups_or_topics_says_so_and_prints_nothing(
    brokers: BrokerHarness, cli: CommandLine
) -> None:
    assert cli.run("group", "delete", "g") == 0
    assert cli.run("group", "list") == 0
    assert (cli.out, cli.err) == ("", "minikafka: there are no groups at the brokers\n")
    brokers.delete_topic("t")
    brokers.delete_topic(OFFSETS.topic)
    assert cli.run("topic", "list") == 0
    assert (cli.out, cli.err) == ("", "minikafka: there are no topics\n")
