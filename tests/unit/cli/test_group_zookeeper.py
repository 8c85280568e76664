"""``minikafka group`` of groups that live in ZooKeeper, at brokers in memory, or in both."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from minikafka.base.endpoints import LiveBroker
from minikafka.base.errors import CoordinationError, NetworkError
from minikafka.base.ids import OFFSETS_TOPIC, TopicPartition
from minikafka.cli.connection.connect import GroupAccess, group_access
from minikafka.clients.group.config import GroupConsumerConfig
from minikafka.clients.group.consumer import GroupConsumer
from minikafka.clients.network.cluster import ClusterClient
from minikafka.registry import paths
from minikafka.registry.brokers import BrokerRegistration
from minikafka.registry.consumer_offsets import read_offsets, write_offsets
from minikafka.registry.consumers import ConsumerRegistration
from minikafka.registry.memory import MemoryStore
from minikafka.registry.znodes import children
from minikafka.wire.api import ApiKey
from tests.support.broker_harness import BrokerHarness
from tests.support.command_line import CommandLine
from tests.support.raising import raising
from tests.support.zookeeper_with_topics import cluster

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
AT = ("--zookeeper", "z:2181")


class GroupsHarness:
    """Brokers with five messages in each partition, and their ZooKeeper."""

    def __init__(self, cli: CommandLine) -> None:
        self.cli = cli
        self.brokers = BrokerHarness(2, {"t": 2, "u": 1, OFFSETS_TOPIC: 1})
        for tp in (T0, T1, U0):
            self.brokers.fill(tp, *(b"%d" % number for number in range(5)))
        self.store: MemoryStore = self.brokers.zookeeper.connect()
        self.answers = True

    def client(self) -> ClusterClient:
        return self.brokers.client(creates_topics=False, unknown_topic_timeout_ms=100)

    def in_zookeeper(self, group: str = "g", offsets: dict[TopicPartition, int] | None = None) -> None:
        """A group that has read, and whose consumers have stopped."""
        self.store.create(paths.consumer_ids_path(group), make_parents=True)
        write_offsets(self.store, group, offsets or {T0: 2, T1: 5})

    def in_kafka(self, group: str = "g", offsets: dict[TopicPartition, int] | None = None) -> None:
        self.brokers.commit(group, offsets or {T0: 3})

    def consumer(self, name: str, subscription: dict[str, int], *owned: TopicPartition) -> None:
        data = ConsumerRegistration(subscription, 1_795_241_013_651).to_json()
        self.store.create(paths.consumer_id_path("g", name), data, ephemeral=True, make_parents=True)
        for thread, tp in enumerate(owned):
            path = paths.consumer_owner_path("g", *tp)
            self.store.create(path, f"{name}-{thread}".encode(), ephemeral=True, make_parents=True)

    def rows(self, *arguments: str, status: int = 0) -> list[dict[str, Any]]:
        """What a command prints as JSON."""
        assert self.cli.run("group", *arguments, *AT, "--format", "json") == status
        return self.cli.rows

    def lines(self, *arguments: str) -> list[str]:
        """What a command prints."""
        assert self.cli.run("group", *arguments, *AT) == 0
        return self.cli.lines

    def failed(self, *arguments: str) -> tuple[int, str]:
        """Status and messages of a command."""
        return self.cli.run("group", *arguments), self.cli.err

    def offsets(self, group: str = "g") -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
        """In ZooKeeper and at the brokers."""
        return read_offsets(self.store, group), self.brokers.committed(group)


@pytest.fixture
def harness(monkeypatch: pytest.MonkeyPatch, cli: CommandLine) -> GroupsHarness:
    made = GroupsHarness(cli)

    @contextlib.contextmanager
    def group_access(zookeeper: str | None, *_: object) -> Iterator[GroupAccess]:
        store = made.store if zookeeper else None
        yield (
            GroupAccess(made.client(), store)
            if made.answers
            else GroupAccess(None, store, "none is registered")
        )

    monkeypatch.setattr("minikafka.cli.connection.connect.group_access", group_access)
    return made


# Which brokers are asked


@pytest.fixture
def named(monkeypatch: pytest.MonkeyPatch) -> tuple[MemoryStore, list[str | None]]:
    """A ZooKeeper in which brokers 0 to 2 are registered, and the addresses that were connected to."""
    store, asked = cluster({}), []

    @contextlib.contextmanager
    def connected(bootstrap: str | None, *_: object) -> Iterator[str | None]:
        asked.append(bootstrap)
        if bootstrap == "away:1":
            raise NetworkError("nobody is there")
        yield bootstrap

    monkeypatch.setattr(
        "minikafka.cli.connection.connect.zookeeper_store", lambda *_, **__: contextlib.nullcontext(store)
    )
    monkeypatch.setattr("minikafka.cli.connection.connect.cluster_client", connected)
    monkeypatch.setenv("MINIKAFKA_BOOTSTRAP", "env:1")
    return store, asked


def test_the_brokers_are_those_that_are_registered_unless_some_are_named(
    named: tuple[MemoryStore, list[str | None]],
) -> None:
    store, asked = named
    for bootstrap in ("env:1", "typed:1"):
        with group_access("z:2181", bootstrap, None) as found:
            assert (found.store, found.why) == (store, "")
    with group_access(None, "env:1", None) as found:
        assert found.store is None
    assert asked == ["h:9000,h:9001,h:9002", "typed:1", "env:1"]


def test_brokers_that_cannot_be_reached_leave_what_zookeeper_knows(
    named: tuple[MemoryStore, list[str | None]],
) -> None:
    store, asked = named
    store.delete(paths.BROKER_IDS, recursive=True)
    with group_access("z:2181", None, None) as found:
        assert (found.cluster, found.why) == (
            None,
            "no broker with a listener for PLAINTEXT is registered at z:2181",
        )
    away = BrokerRegistration(LiveBroker.plaintext(5, "away", 1), 1)
    store.create(paths.broker_path(5), away.to_json(), make_parents=True)
    with group_access("z:2181", None, None) as found:
        assert (found.cluster, found.why) == (None, "nobody is there")
    with pytest.raises(NetworkError), group_access("z:2181", "away:1", None):
        pass
    assert asked == ["away:1", "away:1"]


# list and describe


def test_the_list_has_groups_of_both_kinds(harness: GroupsHarness) -> None:
    harness.in_zookeeper()
    harness.in_kafka()
    harness.in_kafka("new")
    harness.consumer("g_a", {"t": 1})
    assert harness.lines("list") == [
        "GROUP  KIND       STATE   MEMBERS  ASSIGNOR  COORDINATOR",
        "g      kafka      Empty         0  -         1",
        "g      zookeeper  Active        1  -         -",
        "new    kafka      Empty         0  -         1",
    ]


def test_a_description_tells_owners_streams_and_who_and_what_is_left_over(harness: GroupsHarness) -> None:
    harness.in_zookeeper(offsets={T0: 2})
    harness.consumer("g_a", {"t": 2}, T0)
    harness.consumer("g_b", {"t": 1})
    assert harness.lines("describe", "g") == [
        "g: Active, 2 consumers in ZooKeeper with 3 streams, 1 partition without an owner",
        "TOPIC  PARTITION  OFFSET  END OFFSET  LAG  OWNER",
        "t              0  2                5  3    g_a-0",
        "t              1  -                5  -    -",
        "",
        "CONSUMER  PATTERN  SUBSCRIPTION  STREAMS  PARTITIONS  SINCE",
        "g_a       static   t                   2           1  2026-11-21T06:03:33.651Z",
        "g_b       static   t                   1           0  2026-11-21T06:03:33.651Z",
    ]
    found = harness.rows("describe", "g")
    assert [(row["topic"], row["owner"], row["consumer"], row["streams"]) for row in found] == [
        ("t", "g_a-0", "g_a", 2),
        ("t", None, None, None),
        (None, None, "g_b", 1),
    ]


def test_offsets_in_both_storages_are_shown_and_larger_counts(harness: GroupsHarness) -> None:
    harness.in_zookeeper(offsets={T0: 2, T1: 5})
    harness.in_kafka(offsets={T0: 3, U0: 1})
    assert harness.lines("describe", "g") == [
        "g: Empty, 0 consumers in ZooKeeper",
        "TOPIC  PARTITION  OFFSET ZOOKEEPER  OFFSET KAFKA  END OFFSET  LAG  OWNER",
        "t              0  2                 3                      5    2  -",
        "t              1  5                 -                      5    0  -",
        "u              0  -                 1                      5    4  -",
    ]


def test_a_group_that_only_the_brokers_have_is_described_as_ever(harness: GroupsHarness) -> None:
    harness.in_kafka("a/b")
    assert (
        harness.lines("describe", "a/b")[0]
        == "a/b: Empty, 0 members, coordinated by broker 1 at memory:9001, total lag 2"
    )


def test_a_group_with_members_in_both_places_is_described_in_both(harness: GroupsHarness) -> None:
    harness.in_zookeeper(offsets={T0: 2})
    harness.consumer("g_a", {"t": 1}, T0, T1)
    harness.in_kafka(offsets={T0: 3})
    member = GroupConsumer(harness.client(), GroupConsumerConfig("g", auto_commit=False), threads=False)
    member.subscribe(["t"])
    for _ in range(10):
        member.poll(50)
    printed = harness.lines("describe", "g")
    assert printed[0] == "g: Active, 1 consumer in ZooKeeper with 1 stream"
    assert any(line.startswith("g: Stable, 1 member, range, coordinated by broker 1") for line in printed)
    assert {row["kind"] for row in harness.rows("describe", "g")} == {"zookeeper", "kafka"}


def test_a_group_that_is_nowhere_is_named_with_what_is_much_like_it(harness: GroupsHarness) -> None:
    harness.in_zookeeper("billing")
    harness.in_kafka("filing")
    printed = "there is no group 'biling'; there is 'billing' and 'filing'"
    assert harness.failed("describe", "biling", *AT) == (1, f"minikafka: GROUP_ID_NOT_FOUND: {printed}\n")
    assert harness.failed("delete", "biling", *AT) == (1, f"minikafka: GROUP_ID_NOT_FOUND: {printed}\n")


def test_without_brokers_what_zookeeper_knows_is_shown_with_status_1(harness: GroupsHarness) -> None:
    harness.in_zookeeper()
    harness.answers = False
    found = harness.rows("describe", "g", status=1)
    assert [(row["offset"], row["end_offset"], row["lag"]) for row in found] == [
        (2, None, None),
        (5, None, None),
    ]
    status, printed = harness.failed("list", *AT)
    assert (status, "cannot reach the brokers: none is registered" in printed) == (1, True)
    status, printed = harness.failed("reset", "g", "--to-latest", *AT)
    assert (status, "cannot reach the brokers" in printed) == (1, True)


def test_brokers_without_a_topic_for_offsets_are_not_asked_for_any(harness: GroupsHarness) -> None:
    harness.in_zookeeper()
    harness.store.delete(paths.topic_path(OFFSETS_TOPIC), recursive=True)
    assert [row["lag"] for row in harness.rows("describe", "g")] == [3, 0]
    assert harness.brokers.asked(ApiKey.FIND_COORDINATOR) == []


# reset


def test_a_reset_writes_wherever_the_group_is(harness: GroupsHarness) -> None:
    harness.in_zookeeper()
    harness.in_kafka()
    found = harness.rows("reset", "g", "--to-earliest")
    assert [(row["offset"], row["new_offset"], row["stores"]) for row in found] == [
        (3, 0, ["zookeeper", "kafka"]),
        (5, 0, ["zookeeper", "kafka"]),
    ]
    assert harness.offsets() == ({T0: 2, T1: 5}, {T0: 3})
    status, printed = harness.failed("reset", "g", "--to-earliest", "--execute", *AT)
    assert (status, printed) == (
        0,
        "minikafka: set the offsets of 2 partitions in ZooKeeper and at the brokers\n",
    )
    assert harness.offsets() == ({T0: 0, T1: 0}, {T0: 0, T1: 0})


def test_a_reset_to_where_it_is_writes_the_larger_offset_to_both(harness: GroupsHarness) -> None:
    harness.in_zookeeper(offsets={T0: 2, T1: 5})
    harness.in_kafka(offsets={T0: 4, T1: 1, U0: 3})
    harness.rows("reset", "g", "--to-current", "--execute")
    assert harness.offsets() == ({T0: 4, T1: 5, U0: 3}, {T0: 4, T1: 5, U0: 3})


def test_a_reset_that_ends_half_way_tells_what_was_set(
    harness: GroupsHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness.in_zookeeper()
    harness.in_kafka()
    monkeypatch.setattr(
        "minikafka.clients.admin.zookeeper.groups.write_offsets", raising(CoordinationError("away"))
    )
    printed = "away; its offsets at the brokers were set, those in ZooKeeper may not be: repeat the command"
    assert harness.failed("reset", "g", "--to-latest", "--execute", *AT) == (1, f"minikafka: {printed}\n")
    assert harness.offsets() == ({T0: 2, T1: 5}, {T0: 5, T1: 5})


def test_a_reset_writes_nowhere_else(harness: GroupsHarness) -> None:
    harness.in_zookeeper()
    harness.in_kafka("new")
    harness.rows("reset", "g", "--shift-by", "-1", "--execute")
    harness.rows("reset", "new", "--to-latest", "--execute")
    assert harness.offsets() == ({T0: 1, T1: 4}, {})
    assert harness.offsets("new") == ({}, {T0: 5})


def test_a_new_group_is_made_in_zookeeper_where_that_was_named(harness: GroupsHarness) -> None:
    harness.rows("reset", "new", "--to-offset", "3", "--topic", "t:1", "--execute")
    assert harness.offsets("new") == ({T1: 3}, {})
    status, printed = harness.failed("reset", "a/b", "--to-latest", "--topic", "t", *AT)
    assert (status, "'a/b' cannot be a znode name" in printed) == (2, True)


@pytest.mark.parametrize("form", ["table", "json"])
def test_what_export_prints_can_be_read_from_a_file(
    harness: GroupsHarness, tmp_path: Path, form: str
) -> None:
    harness.in_zookeeper()
    assert harness.cli.run("group", "reset", "g", "--to-current", "--export", "--format", form, *AT) == 0
    assert harness.cli.err == ""
    plan = tmp_path / "plan"
    plan.write_text(harness.cli.out)
    harness.rows("reset", "g", "--to-latest", "--execute")
    found = harness.rows("reset", "g", "--from-file", str(plan), "--execute")
    assert [row["new_offset"] for row in found] == [2, 5]
    assert harness.offsets() == ({T0: 2, T1: 5}, {})


def test_an_offset_of_a_file_that_a_log_does_not_have_is_told(harness: GroupsHarness, tmp_path: Path) -> None:
    harness.in_zookeeper()
    plan = tmp_path / "plan"
    plan.write_text("t,0,99\n")
    assert (
        "t-0 at 99 (0 to 5); using the nearer end of the log"
        in harness.failed("reset", "g", "--from-file", str(plan), *AT)[1]
    )
    plan.write_text("t,0,1\nx,1,5\n")
    status, printed = harness.failed("reset", "g", "--from-file", str(plan), *AT)
    assert (status, "there is no topic 'x'" in printed) == (1, True)


# delete


def test_a_deleted_group_is_gone_in_both_places(harness: GroupsHarness) -> None:
    harness.in_zookeeper()
    harness.in_kafka()
    assert harness.lines("delete", "g") == ["deleted g in ZooKeeper and at the brokers"]
    assert harness.brokers.groups() == []
    assert children(harness.store, paths.CONSUMERS) == []


def test_several_groups_are_deleted_and_those_that_cannot_be_are_told(harness: GroupsHarness) -> None:
    harness.in_zookeeper()
    harness.consumer("g_a", {"t": 1})
    harness.in_zookeeper("old")
    status, printed = harness.failed("delete", "g", "old", "none", *AT)
    assert status == 1
    assert "there is no group 'none'" in printed
    assert "group 'g' has members: it cannot be deleted" in printed
    assert children(harness.store, paths.CONSUMERS) == ["g"]


def test_a_group_with_members_in_one_place_keeps_what_it_has_in_the_other(harness: GroupsHarness) -> None:
    harness.in_zookeeper()
    harness.in_kafka()
    harness.consumer("g_a", {"t": 1})
    for command in (["delete", "g"], ["reset", "g", "--to-earliest", "--execute"]):
        status, printed = harness.failed(*command, *AT)
        assert (status, "NON_EMPTY_GROUP: group 'g' has members" in printed) == (1, True)
    assert harness.offsets() == ({T0: 2, T1: 5}, {T0: 3})


def test_brokers_that_cannot_delete_groups_are_told_after_zookeeper_has(harness: GroupsHarness) -> None:
    harness.in_zookeeper()
    harness.in_kafka()
    harness.brokers.unknown.add(ApiKey.DELETE_GROUPS)
    status, printed = harness.failed("delete", "g", *AT)
    assert (status, "is deleted in ZooKeeper, its offsets at the brokers stay" in printed) == (1, True)
    assert harness.offsets() == ({}, {T0: 3})


def test_one_topic_of_a_group_is_deleted_in_both_places(harness: GroupsHarness) -> None:
    harness.in_zookeeper(offsets={T0: 1, U0: 2})
    harness.in_kafka(offsets={T0: 3, U0: 2})
    status, printed = harness.failed("delete", "g", "--topic", "u:0", *AT)
    assert (status, "where only whole topics are deleted; leave out the partitions" in printed) == (1, True)
    assert harness.lines("delete", "g", "--topic", "u") == ["deleted u of g in ZooKeeper and at the brokers"]
    assert harness.offsets() == ({T0: 1}, {T0: 3})


def test_brokers_that_delete_no_single_offsets_are_told(harness: GroupsHarness) -> None:
    harness.in_zookeeper(offsets={T0: 1, U0: 2})
    harness.in_kafka(offsets={U0: 2})
    harness.brokers.unknown.add(ApiKey.OFFSET_DELETE)
    status, printed = harness.failed("delete", "g", "--topic", "u", *AT)
    assert (status, "needs Kafka 2.4 or newer" in printed) == (1, True)
    assert "topic 'u' of group 'g' is deleted in ZooKeeper, its offsets at the brokers stay" in printed
    assert harness.offsets() == ({T0: 1}, {U0: 2})


def test_topic_is_deleted_of_all_groups_without_live_consumers(harness: GroupsHarness) -> None:
    harness.in_zookeeper(offsets={T0: 1, U0: 2})
    harness.consumer("g_a", {"t": 1})
    harness.in_zookeeper("one", {U0: 2})
    harness.in_zookeeper("two", {U0: 2, T1: 3})
    harness.in_zookeeper("other", {T0: 2})
    found = harness.rows("delete", "--topic", "u", "--all-groups", status=1)
    assert [(row["group"], row["topic"], row["deleted"]) for row in found] == [
        ("one", "u", True),
        ("two", "u", True),
    ]
    assert children(harness.store, paths.CONSUMERS) == ["g", "other", "two"]
    assert harness.offsets("two") == ({T1: 3}, {})


@pytest.mark.parametrize(
    ("arguments", "printed"),
    [
        ([], "required; set either NAME or --topic T --all-groups"),
        (["--all-groups"], "requires --topic T"),
        (["g", "--topic", "t", "--all-groups"], "conflicts with --all-groups"),
        (["g", "--topic", "t:x"], "must be a topic, or topic:partition,partition"),
        (["g", "--topic", "no/topic", *AT], "no/topic"),
    ],
)
def test_a_deletion_that_names_nothing_or_too_much_is_refused(
    harness: GroupsHarness, arguments: list[str], printed: str
) -> None:
    status, line = harness.failed("delete", *arguments)
    assert (status, printed in line) == (2, True)
