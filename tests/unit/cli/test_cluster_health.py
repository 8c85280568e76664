"""``cluster health`` and the choices of ``topic describe``."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from minikafka.base.errors import ConfigError, NetworkError
from minikafka.base.ids import TRANSACTION_STATE_TOPIC
from minikafka.cli import cluster_health
from minikafka.cli.options import Format
from minikafka.cli.topic import replica_assignment
from minikafka.clients.admin.admin import Admin
from minikafka.clients.admin.configs import Setting
from minikafka.clients.admin.health import ClusterHealth, health_of
from minikafka.clients.admin.log_dirs import OfflineLogDir
from minikafka.clients.network.metadata import ClusterMetadata
from minikafka.wire.apis.describe_configs import ConfigResourceType, ConfigSource
from tests.support.broker_harness import BrokerHarness
from tests.support.command_line import CommandLine
from tests.unit.clients.admin.test_health import metadata, with_internal

WELL = metadata((0, (0, 1), (0, 1)), (1, (1, 2), (2, 1)))
ILL = metadata((0, (0, 1), (0,)), (-1, (2, 1), (2,)), brokers=2)
LEADERLESS = (
    "1 partition (t-1) without a leader, which nobody can read or write: start a broker that has a replica "
    "in sync: 2"
)
LATE = (
    "2 partitions (t-0, t-1) under-replicated: not in sync at broker 1; see the broker's log for the reason"
)


@pytest.fixture
def known(
    monkeypatch: pytest.MonkeyPatch, serve: Callable[[BrokerHarness], BrokerHarness]
) -> list[ClusterMetadata]:
    """Return the cluster's metadata, in a list whose first item tests replace."""
    states = [WELL]
    serve(BrokerHarness(1, {"t": 1}))
    monkeypatch.setattr(Admin, "describe_cluster", lambda admin, timeout_ms=None: states[0])
    monkeypatch.setattr("minikafka.clients.admin.admin.enforces_rules", lambda cluster, deadline: False)
    return states


def test_a_healthy_cluster_is_status_zero(known: list[ClusterMetadata], cli: CommandLine) -> None:
    assert cli.run("cluster", "health") == 0
    assert cli.lines == [
        "cluster c is healthy: 3 brokers, 2 partitions",
        "BROKER  ALIVE  ADDRESS  CONTROLLER  LEADS  FOLLOWS  PREFERRED  OUT OF SYNC",
        "     0  yes    h:9000   yes             1        0          1            0",
        "     1  yes    h:9001   no              1        1          1            0",
        "     2  yes    h:9002   no              0        1          0            0",
    ]


def test_what_is_wrong_is_named_and_is_status_one(known: list[ClusterMetadata], cli: CommandLine) -> None:
    known[0] = ILL
    assert cli.run("cluster", "health") == 1
    assert cli.lines[0] == (
        "cluster c is not healthy: 2 brokers, 2 partitions, 1 partition without a leader, 2 partitions "
        "under-replicated, dead: 2"
    )
    assert cli.lines[-5:] == [
        "TOPIC  PARTITION  LEADER  REPLICAS  IN SYNC",
        "t              0  0       0,1       0",
        "t              1  -       2,1       2",
        LEADERLESS,
        LATE,
    ]
    assert cli.run("cluster", "health", "--format", "json") == 1
    found = json.loads(cli.out)
    assert (found["healthy"], found["controller"]) == (False, 0)
    assert found["leaderless"] == [
        {"topic": "t", "partition": 1, "leader": None, "replicas": [2, 1], "in_sync": [2]}
    ]


def test_offline_directories_are_listed(
    known: list[ClusterMetadata], monkeypatch: pytest.MonkeyPatch, cli: CommandLine
) -> None:
    offline = (OfflineLogDir(0, "/data"),)
    monkeypatch.setattr("minikafka.clients.admin.admin.offline_log_dirs", lambda *_: offline)
    assert cli.run("cluster", "health") == 1
    lines = cli.lines
    assert lines[0] == "cluster c is not healthy: 3 brokers, 2 partitions, 1 offline log dir"
    assert lines[-3:-1] == ["BROKER  LOG DIR", "     0  /data"]
    assert lines[-1].startswith("log dir /data of broker 0 is offline")
    assert cli.run("cluster", "health", "--format", "json") == 1
    assert json.loads(cli.out)["offline_log_dirs"] == [{"broker": 0, "log_dir": "/data"}]


@pytest.mark.parametrize(("factor", "advised"), [(3, True), (1, False)])
def test_too_few_replicas_of_offsets_are_told_with_what_mends_it(
    known: list[ClusterMetadata],
    monkeypatch: pytest.MonkeyPatch,
    cli: CommandLine,
    factor: int,
    advised: bool,
) -> None:
    name = "offsets.topic.replication.factor"
    setting = Setting(name, str(factor), ConfigSource.STATIC_BROKER, True, False)
    monkeypatch.setattr("minikafka.clients.admin.admin.describe_configs", lambda *_: [setting])
    known[0] = with_internal(1, brokers=3)
    assert cli.run("cluster", "health", "--data-dir", "my data") == 0
    lines = cli.lines
    assert lines[0] == "cluster c is healthy: 3 brokers, 2 partitions"
    words, *commands = lines[5:] or [""]
    assert words.startswith("__consumer_offsets has 1 replica instead of 3 (") is advised
    at = " --data-dir 'my data'"
    assert commands == [
        f"  minikafka reassign generate __consumer_offsets --brokers 0,1,2 --replicas 3{at} > offsets.json",
        f"  minikafka reassign execute --file offsets.json{at}",
    ] * int(advised)
    assert cli.run("cluster", "health", "--format", "json") == 0
    few = {"topic": "__consumer_offsets", "has": 1, "wanted": 3}
    assert json.loads(cli.out)["few_replicas"] == [few] * int(advised)


def test_problems_of_the_transaction_topic_are_told_with_what_mends_them(
    known: list[ClusterMetadata], monkeypatch: pytest.MonkeyPatch, cli: CommandLine
) -> None:
    rows = {ConfigResourceType.TOPIC: ("min.insync.replicas", "1"), ConfigResourceType.BROKER: ("x", "y")}

    def describe(cluster: object, kind: ConfigResourceType, name: str, deadline: object) -> list[Setting]:
        return [Setting(*rows[kind], ConfigSource.TOPIC, True, False)]

    monkeypatch.setattr("minikafka.clients.admin.admin.describe_configs", describe)
    known[0] = with_internal(2, brokers=3, topic=TRANSACTION_STATE_TOPIC)
    assert cli.run("cluster", "health", "--data-dir", "d") == 0
    state = "__transaction_state"
    factor, min_isr = "transaction.state.log.replication.factor", "transaction.state.log.min.isr"
    without = "transactions are unavailable while a broker is down; to add replicas:"
    lost = "the outcome of a transaction can be lost with one disk; to raise it:"
    at, plan = " --data-dir d", "transactions.json"
    assert cli.lines[5:] == [
        f"{state} has 2 replicas instead of 3 ({factor}): {without}",
        f"  minikafka reassign generate {state} --brokers 0,1,2 --replicas 3{at} > {plan}",
        f"  minikafka reassign execute --file {plan}{at}",
        f"{state} has min.insync.replicas 1 instead of 2 ({min_isr}): {lost}",
        f"  minikafka config set topic {state} min.insync.replicas=2{at}",
    ]
    rows[ConfigResourceType.TOPIC] = ("min.insync.replicas", "3")
    assert cli.run("cluster", "health", "--data-dir", "d") == 1
    assert cli.lines[5] == (
        "transactions are unavailable in 1 partition of __transaction_state: no leader, or fewer replicas in "
        "sync than min.insync.replicas"
    )
    assert cli.run("cluster", "health", "--format", "json") == 1
    found = json.loads(cli.out)
    assert (found["low_min_isr"], len(found["without_transactions"])) == (None, 1)


def test_rules_that_may_hide_topics_are_told_of(
    known: list[ClusterMetadata], monkeypatch: pytest.MonkeyPatch, cli: CommandLine
) -> None:
    monkeypatch.setattr("minikafka.clients.admin.admin.enforces_rules", lambda cluster, deadline: True)
    assert cli.run("cluster", "health") == 0
    assert cli.lines[1] == (
        "access rules are enforced: topics that this client may not describe are missing here"
    )
    known[0] = replace(WELL, topics={})
    assert cli.run("cluster", "health") == 1
    assert cli.out.startswith("cluster c is not known to be healthy: 3 brokers, 0 partitions\n")
    assert cli.run("cluster", "health", "--format", "json") == 1
    assert json.loads(cli.out)["access_rules"] is True


def test_a_table_of_many_partitions_has_an_end() -> None:
    many = metadata(*[(0, (0, 1), (0,))] * 50)
    *_, end, problem = cluster_health.health_lines(health_of(many))
    assert end == "and 30 more"
    assert problem.startswith("50 partitions (t-0, t-1, t-2, t-3, t-4 and 45 more) under-replicated")


def test_watching_tells_each_change_once(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    states: Iterator[ClusterMetadata | None] = iter([WELL, WELL, None, None, ILL, WELL])

    class Watched:
        def health(self, timeout_ms: int) -> ClusterHealth:
            state = next(states)
            if state is None:
                raise NetworkError("nobody")
            return health_of(state)

    seen = list(itertools.islice(cluster_health.changes(Watched()), 4))  # type: ignore[arg-type]
    assert [None if state is None else state.healthy for state in seen] == [True, None, False, True]
    for state in seen:
        cluster_health.print_change(state, Format.JSON)
    printed = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert [row["healthy"] for row in printed] == [True, False, False, True]
    cluster_health.print_change(None, Format.TABLE)
    assert capfd.readouterr().out.endswith("Z  no broker answers\n")


@pytest.mark.parametrize(
    ("option", "partitions"), [("--under-replicated-partitions", [0, 1]), ("--unavailable-partitions", [1])]
)
def test_partitions_that_want_for_something_are_described_alone(
    known: list[ClusterMetadata], cli: CommandLine, option: str, partitions: list[int]
) -> None:
    assert cli.run("topic", "describe", option, "--format", "json") == 0
    assert cli.out == ""
    known[0] = ILL
    assert cli.run("topic", "describe", option, "--format", "json") == 0
    found = cli.rows
    assert [row["partition"] for row in found] == partitions


def test_one_choice_of_partitions_at_a_time(cli: CommandLine) -> None:
    both = ["--under-replicated-partitions", "--topics-with-overrides"]
    assert cli.run("topic", "describe", *both) == 2
    assert "set only one of --topics-with-overrides" in cli.err


def test_replica_assignment_has_colons_and_commas() -> None:
    assert replica_assignment("0:1,1:2, 2:0") == {0: (0, 1), 1: (1, 2), 2: (2, 0)}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("0:1,2:2", "partition 1 names a broker twice"),
        ("0:1,2", "partition 1 has 1 replicas, partition 0 has 2"),
        ("0:99999999999", "a colon between those of one partition"),
        ("9" * 5_000, "a colon between those of one partition"),
        ("0:x", "a colon between those of one partition"),
        ("", "a colon between those of one partition"),
    ],
)
def test_an_assignment_that_cannot_be_is_refused(text: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        replica_assignment(text)


def test_an_assignment_says_how_many_partitions_and_replicas(cli: CommandLine) -> None:
    assert cli.run("topic", "create", "t", "--replica-assignment", "0:1", "--replicas", "2") == 2
    assert "cannot be combined with --partitions or --replicas" in cli.err
