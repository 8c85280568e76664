"""``elect`` and ``reassign`` by the requests of brokers, which are in memory."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from minikafka.base.errors import ErrorCode
from minikafka.base.ids import TopicPartition
from minikafka.clients.admin import log_moves
from minikafka.clients.admin.admin import Admin
from minikafka.clients.admin.partitions import BrokerPartitions
from minikafka.registry.entity_configs import ALTER_LOG_DIRS_RATE, LEADER_RATE
from minikafka.wire.api import ApiKey
from minikafka.wire.apis.describe_configs import ConfigResourceType, ConfigSource
from minikafka.wire.apis.describe_log_dirs import DescribeLogDirsResponse, DescribeLogDirsResult
from tests.support.broker_harness import BrokerHarness
from tests.support.command_line import CommandLine

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def brokers(
    serve: Callable[[BrokerHarness], BrokerHarness], monkeypatch: pytest.MonkeyPatch
) -> BrokerHarness:
    """Three brokers, and a topic of two partitions with two replicas each; whoever waits lets time pass."""
    brokers = serve(BrokerHarness(3, {"t": 2}, replicas=2))
    monkeypatch.setattr("time.sleep", lambda seconds: brokers.advance(int(seconds * 1000)))
    return brokers


@pytest.fixture
def plan(tmp_path: Path) -> Callable[..., str]:
    """Return a function that writes a plan for partition 0, and returns the file's path."""

    def written(*replicas: int, log_dirs: list[str] | None = None, topic: str = "t") -> str:
        row = {"topic": topic, "partition": 0, "replicas": replicas}
        row |= {} if log_dirs is None else {"log_dirs": log_dirs}
        path = tmp_path / "plan.json"
        path.write_text(json.dumps({"partitions": [row]}))
        return str(path)

    return written


def own_settings(brokers: BrokerHarness, kind: ConfigResourceType, name: str) -> dict[str, str | None]:
    own = (ConfigSource.TOPIC, ConfigSource.DYNAMIC_BROKER)
    with brokers.client() as client:
        settings = Admin(client).describe_configs(kind, name)
    return {setting.name: setting.value for setting in settings if setting.source in own}


def test_the_preferred_replica_is_elected(brokers: BrokerHarness, cli: CommandLine) -> None:
    brokers.stop(1)
    brokers.start(1)
    brokers.advance(1000)
    assert brokers.leader(T0) == 2
    assert cli.run("elect", "t", "--dry-run", "--format", "json") == 0
    assert [(row["leader"], row["preferred"], row["done"]) for row in cli.rows] == [
        (2, 1, False),
        (2, 2, True),
    ]
    assert cli.run("elect", "--all", "--format", "json") == 0, cli.err
    assert [(row["partition"], row["leader"], row["done"]) for row in cli.rows] == [(0, 1, True)]
    assert "path" not in cli.err
    assert brokers.leader(T0) == 1
    assert cli.run("elect", "--all") == 0
    assert "the preferred replica already leads every partition" in cli.err


def test_an_election_that_fails_is_status_one(brokers: BrokerHarness, cli: CommandLine) -> None:
    brokers.stop(2)
    assert cli.run("elect", "t", "--format", "json") == 1
    assert [(row["partition"], row["done"]) for row in cli.rows] == [(1, False)]
    assert "no election in 1 of 1 partition: the preferred replica is dead or not in sync" in cli.err


def test_an_unclean_election_takes_a_replica_that_is_not_in_sync(
    brokers: BrokerHarness, cli: CommandLine
) -> None:
    assert cli.run("elect", "--all", "--unclean") == 0
    assert "every partition has a leader" in cli.err
    brokers.stop(3)  # it has partition 1 with broker 2
    brokers.advance(100_000)
    brokers.stop(2)
    brokers.start(3)
    brokers.advance(1000)
    assert brokers.leader(T1) == -1
    assert cli.run("elect", "t", "--unclean", "--dry-run") == 0
    assert "1 of 2 partitions without a leader would get a live replica; nothing was changed" in cli.err
    assert cli.run("elect", "t", "--unclean", "--format", "json") == 0, cli.err
    assert [(row["partition"], row["leader"], row["done"]) for row in cli.rows] == [(1, 3, True)]


def test_a_plan_is_executed_to_its_end_and_verified(
    brokers: BrokerHarness, cli: CommandLine, plan: Callable[..., str]
) -> None:
    file = plan(3, 1)
    assert cli.run("reassign", "execute", "--file", file, "--throttle", "100000", "--format", "json") == 0, (
        cli.err
    )
    (row,) = cli.rows
    assert (row["replicas"], sorted(row["in_sync"]), row["status"]) == ([3, 1], [1, 3], "done")
    assert 'the plan for a rollback: {"version":1,"partitions":[{"topic":"t","partition":0,' in cli.err
    assert "all is done; the throttle is removed" in cli.err
    assert own_settings(brokers, ConfigResourceType.BROKER, "1") == {}
    assert cli.run("reassign", "verify", "--file", file, "--format", "json") == 0
    assert cli.rows == [row]


def test_a_move_in_progress_is_listed_throttled_and_waited_for(
    brokers: BrokerHarness, cli: CommandLine, plan: Callable[..., str]
) -> None:
    for _ in range(10):
        brokers.fill(T0, bytes(50_000))
    file = plan(3, 1)
    assert cli.run("reassign", "execute", "--file", file, "--no-wait", "--throttle", "1") == 0, cli.err
    assert own_settings(brokers, ConfigResourceType.BROKER, "1")[LEADER_RATE] == "1"
    assert own_settings(brokers, ConfigResourceType.TOPIC, "t") == {
        "leader.replication.throttled.replicas": "0:1,0:2",
        "follower.replication.throttled.replicas": "0:3",
    }
    assert cli.run("reassign", "verify", "--file", file) == 3
    assert "throttled to 1 bytes per second until all are done" in cli.err
    assert cli.run("reassign", "list", "--format", "json") == 0
    assert [(row["wanted"], row["status"]) for row in cli.rows] == [([3, 1], "under way")]
    assert cli.run("reassign", "execute", "--file", plan(1, 2, 3)) == 1
    assert "another reassignment is in progress: t-0; this plan was not started" in cli.err
    assert cli.run("reassign", "execute", "--file", plan(3, 1), "--throttle", "100000") == 0
    assert "already in progress; brokers 1, 2, 3 are now throttled to 100000 bytes per second" in cli.err
    assert cli.run("reassign", "execute", "--file", plan(3, 1)) == 0, cli.err
    assert own_settings(brokers, ConfigResourceType.TOPIC, "t") == {}
    assert cli.run("reassign", "list") == 0
    assert "no reassignment is in progress" in cli.err


def test_the_throttle_of_a_deleted_topic_is_removed(
    brokers: BrokerHarness, cli: CommandLine, plan: Callable[..., str]
) -> None:
    for _ in range(10):
        brokers.fill(T0, bytes(50_000))
    execute = ("reassign", "execute", "--file", plan(3, 1), "--no-wait", "--throttle", "1")
    assert cli.run(*execute) == 0, cli.err
    assert cli.run("reassign", "cancel", "--all") == 0, cli.err
    with brokers.client() as client:
        Admin(client).change_configs(ConfigResourceType.BROKER, "2", {LEADER_RATE: "1"})
    brokers.delete_topic("t")
    brokers.advance(1000)
    assert cli.run("reassign", "verify", "--file", plan(3, 1)) == 1
    assert "0 of 1 partition done, the rest deleted; the throttle is removed" in cli.err
    assert own_settings(brokers, ConfigResourceType.BROKER, "2") == {}


@pytest.mark.parametrize(
    ("topic", "replicas", "said"),
    [
        ("t", (7, 1), "brokers=[7, 1]: 7 is not alive; live brokers: 1, 2, 3; nothing was changed"),
        (
            "tt",
            (1,),
            "there is no topic 'tt', or this client may not describe it; there is 't'; nothing was changed",
        ),
    ],
)
def test_a_plan_that_cannot_be_is_one_line(
    brokers: BrokerHarness,
    cli: CommandLine,
    plan: Callable[..., str],
    topic: str,
    replicas: tuple[int, ...],
    said: str,
) -> None:
    assert cli.run("reassign", "execute", "--file", plan(*replicas, topic=topic)) == 2
    assert said in cli.err
    assert len(cli.err.splitlines()) == 1


def test_a_proposal_is_made_from_what_brokers_tell(brokers: BrokerHarness, cli: CommandLine) -> None:
    assert cli.run("reassign", "generate", "t", "--brokers", "1,2,3", "--replicas", "3") == 0
    rows = json.loads(cli.out)["partitions"]
    assert [sorted(row["replicas"]) for row in rows] == [[1, 2, 3]] * 2


DIRS = {"log.dirs": "/first,/second"}


@pytest.fixture
def two_disks(
    serve: Callable[[BrokerHarness], BrokerHarness], monkeypatch: pytest.MonkeyPatch
) -> BrokerHarness:
    """Two brokers with two data directories each, and a partition on the first."""
    brokers = serve(BrokerHarness(2, {"t": 1}, properties=DIRS))
    monkeypatch.setattr("time.sleep", lambda seconds: brokers.advance(int(seconds * 1000)))
    brokers.fill(T0, bytes(5000))
    return brokers


def directories(brokers: BrokerHarness) -> dict[tuple[int, bool], str]:
    """Return the directory of partition 0 on each broker, and of its future log (True)."""
    with brokers.client() as client:
        return {
            (log_dir.broker_id, replica.is_future): log_dir.path
            for log_dir in Admin(client).describe_log_dirs()
            for replica in log_dir.replicas
            if replica.topic_partition == T0
        }


def other_directory(brokers: BrokerHarness) -> str:
    return "/second" if directories(brokers)[1, False] == "/first" else "/first"


def test_a_log_moves_to_another_directory(
    two_disks: BrokerHarness, cli: CommandLine, plan: Callable[..., str]
) -> None:
    before, after = directories(two_disks)[1, False], other_directory(two_disks)
    file = plan(1, log_dirs=[after])
    assert cli.run("reassign", "execute", "--file", file, "--dry-run", "--format", "json") == 0, cli.err
    assert cli.rows == [{"topic": "t", "partition": 0, "broker": 1, "from_dir": before, "to_dir": after}]
    assert "1 of 1 partition changes, 0 replicas to copy, 1 log to move; nothing was changed" in cli.err
    assert cli.run("reassign", "verify", "--file", file, "--format", "json") == 1
    reason = f"the log of broker 1 is in {before}, wanted {after}, and is not being moved"
    assert [(row["status"], row["reason"]) for row in cli.rows] == [("failed", reason)]
    assert cli.run("reassign", "execute", "--file", file, "--format", "json") == 0, cli.err
    assert [row["status"] for row in cli.rows] == ["done"]
    assert f'"replicas":[1],"log_dirs":["{before}"]' in cli.err
    assert directories(two_disks) == {(1, False): after}
    assert cli.run("reassign", "execute", "--file", file) == 0
    assert "0 of 1 partition change, 0 replicas to copy" in cli.err


def test_a_log_that_moves_is_throttled_and_given_up(
    two_disks: BrokerHarness, cli: CommandLine, plan: Callable[..., str]
) -> None:
    for _ in range(4):
        two_disks.fill(T0, bytes(700_000))
    before, after = directories(two_disks)[1, False], other_directory(two_disks)
    file = plan(1, log_dirs=[after])
    throttle = ("--replica-alter-log-dirs-throttle", "1")
    assert cli.run("reassign", "execute", "--file", file, "--no-wait", *throttle) == 0, cli.err
    assert directories(two_disks) == {(1, False): before, (1, True): after}
    assert own_settings(two_disks, ConfigResourceType.BROKER, "1") == {ALTER_LOG_DIRS_RATE: "1"}
    assert cli.run("reassign", "verify", "--file", file) == 3
    assert "0 of 1 partition done; copying is throttled to 1 bytes per second" in cli.err
    with two_disks.client() as client:
        client.metadata()
        (move,) = log_moves.log_moves(BrokerPartitions(client), {T0: {1: after}})
    assert 0 < move.copied_bytes < move.size_bytes
    assert cli.run("reassign", "execute", "--file", file, throttle[0], "2") == 0, cli.err
    assert "already in progress; brokers 1 are now throttled to 2 bytes per second" in cli.err
    assert cli.run("reassign", "cancel", "--file", file, "--format", "json") == 0, cli.err
    assert [row["to_dir"] for row in cli.rows] == [after]
    assert directories(two_disks) == {(1, False): before}
    assert own_settings(two_disks, ConfigResourceType.BROKER, "1") == {}
    assert cli.run("reassign", "cancel", "--file", file) == 0
    assert "no reassignment of this plan is in progress" in cli.err


def test_a_log_whose_directory_is_offline_has_failed(
    two_disks: BrokerHarness, cli: CommandLine, plan: Callable[..., str]
) -> None:
    def offline(_: int, request: object) -> DescribeLogDirsResponse:
        error = DescribeLogDirsResult(ErrorCode.KAFKA_STORAGE_ERROR, "/second", ())
        return DescribeLogDirsResponse(0, (error, DescribeLogDirsResult(ErrorCode.NONE, "/first", ())))

    two_disks.always(ApiKey.DESCRIBE_LOG_DIRS, offline)
    file = plan(1, log_dirs=["/second"])
    assert cli.run("reassign", "verify", "--file", file, "--format", "json") == 1
    reason = "the log of broker 1 is in an offline directory, wanted /second, and is not being moved"
    assert [(row["status"], row["reason"]) for row in cli.rows] == [("failed", reason)]
    assert cli.run("reassign", "execute", "--file", file) == 2
    assert "log_dirs='/second': the directory of broker 1 is offline (KAFKA_STORAGE_ERROR)" in cli.err


def test_a_new_replica_is_created_in_its_directory(
    two_disks: BrokerHarness, cli: CommandLine, plan: Callable[..., str]
) -> None:
    for path in ("/second", "/first"):
        assert cli.run("reassign", "execute", "--file", plan(1, 2, log_dirs=["any", path])) == 0, cli.err
        assert directories(two_disks)[2, False] == path
        assert cli.run("reassign", "execute", "--file", plan(1)) == 0, cli.err


@pytest.mark.parametrize(
    ("log_dirs", "said"),
    [
        (["/third"], "log_dirs='/third': broker 1 has no such directory (for t-0); it has /first, /second;"),
        (["/first", "any"], "t-0 has 1 replicas and 2 log_dirs: give one for each replica"),
        (["first"], "log_dirs of broker 1 must be an absolute path or 'any', got 'first'"),
    ],
)
def test_a_directory_that_a_broker_lacks_is_one_line(
    two_disks: BrokerHarness, cli: CommandLine, plan: Callable[..., str], log_dirs: list[str], said: str
) -> None:
    assert cli.run("reassign", "execute", "--file", plan(1, log_dirs=log_dirs)) == 2
    assert said in cli.err
    assert len(cli.err.splitlines()) == 1


@pytest.mark.parametrize("command", [("elect", "--all"), ("reassign", "list"), ("user", "list")])
def test_brokers_without_the_request_need_zookeeper(
    brokers: BrokerHarness, cli: CommandLine, command: tuple[str, ...]
) -> None:
    brokers.stop(2)  # so that an election is wanted
    brokers.unknown = {
        ApiKey.ELECT_LEADERS,
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
    }
    assert cli.run(*command) == 1
    assert "supports no version, this client 0 to " in cli.err
    assert cli.err.endswith("; use --zookeeper HOST:PORT/CHROOT\n")
    assert len(cli.err.splitlines()) == 1
