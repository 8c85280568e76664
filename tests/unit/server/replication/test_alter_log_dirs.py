"""Moves of replicas between the data directories of a broker, as clients ask for them."""

from __future__ import annotations

from unittest.mock import Mock

import pytest

from minikafka.base.errors import ErrorCode
from minikafka.base.ids import TopicPartition
from minikafka.log.future_logs import FutureLogs
from minikafka.registry.entity_configs import ALTER_LOG_DIRS_RATE
from minikafka.server.served_versions import NEWEST_SERVED
from minikafka.wire.api import ApiKey
from minikafka.wire.apis.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from minikafka.wire.apis.describe_log_dirs import DescribeLogDirsRequest
from tests.support import requests
from tests.support.logs import read_all
from tests.support.requests import Request
from tests.support.simulation import Machine, Simulation

DIRS = {"log.dirs": "/first,/second", "num.partitions": "1"}
TP = TopicPartition("t", 0)


@pytest.fixture
def world() -> Simulation:
    """A broker with two directories; the topic's only log is in the first."""
    world = Simulation.serving("t", partitions=1, properties=DIRS)
    assert home(world) == "/first"
    return world


def home(world: Simulation, partition: TopicPartition = TP) -> str:
    found = world.machine.broker.logs.home_of(partition)
    assert found is not None
    return found.path


def asked(world: Simulation, path: str, topic: str = "t", *, version: int = 2) -> Request:
    dirs = (AlterReplicaLogDir(path, (AlterReplicaLogDirTopic(topic, (0,)),)),)
    return Request(ApiKey.ALTER_REPLICA_LOG_DIRS, version, AlterReplicaLogDirsRequest(dirs))


def alter(world: Simulation, path: str, topic: str = "t", *, version: int = 2) -> ErrorCode:
    ((result,),) = [
        topic_result.partitions
        for topic_result in world.call(asked(world, path, topic, version=version)).results
    ]
    return ErrorCode(result.error_code)


def rows(world: Simulation) -> dict[tuple[str, bool], tuple[int, int]]:
    """(directory, is a future log) -> size and lag."""
    answer = world.call(Request(ApiKey.DESCRIBE_LOG_DIRS, 1, DescribeLogDirsRequest(None)))
    return {
        (result.log_dir, row.is_future_key): (row.partition_size, row.offset_lag)
        for result in answer.results
        for topic in result.topics
        for row in topic.partitions
    }


def pause_copies(machine: Machine) -> None:
    """Let the copies of the broker wait: they may use no byte a second."""
    quota = machine.broker.replication_quotas.alter_log_dirs
    quota.set_limit(0)
    quota.record(1, machine.broker.clock.monotonic_ms())


@pytest.mark.parametrize("version", range(NEWEST_SERVED[ApiKey.ALTER_REPLICA_LOG_DIRS] + 1))
def test_a_replica_moves_and_serves_on(world: Simulation, version: int) -> None:
    for number in range(5):
        world.produce("t", b"%d" % number)
    assert alter(world, "/second", version=version) is ErrorCode.NONE
    world.settle()
    assert home(world) == "/second"
    world.produce("t", b"5")
    assert [record.value for record in world.records("t")] == [b"%d" % number for number in range(6)]
    assert list(rows(world)) == [("/second", False)]


def test_the_copy_is_described_with_its_lag(world: Simulation) -> None:
    pause_copies(world.machine)
    world.produce("t", b"a", b"b", b"c")
    assert alter(world, "/second") is ErrorCode.NONE
    size = world.machine.broker.logs.logs()[TP].size_bytes
    assert rows(world) == {("/first", False): (size, 0), ("/second", True): (0, 3)}


def test_the_same_directory_drops_the_move(world: Simulation) -> None:
    pause_copies(world.machine)
    assert alter(world, "/second") is ErrorCode.NONE
    assert alter(world, "/first") is ErrorCode.NONE
    assert list(rows(world)) == [("/first", False)]


def test_the_rate_limits_the_copies(world: Simulation) -> None:
    quota = world.machine.broker.replication_quotas.alter_log_dirs
    world.machine.broker.replication_quotas.set_rates({ALTER_LOG_DIRS_RATE: "1000"})
    assert quota.limit == 1000
    for _ in range(4):
        world.produce("t", b"x" * 700_000)
    assert alter(world, "/second") is ErrorCode.NONE
    world.settle()
    assert rows(world)["/second", True][1] > 0
    world.machine.broker.replication_quotas.set_rates({})
    world.pass_time(1_000)
    assert home(world) == "/second"


def test_the_rate_limits_the_copies_of_many_segments(world: Simulation) -> None:
    # Each segment is shorter than half a slice of a copy.
    world.create_topic("many", settings={"segment.bytes": "300000"})
    many = TopicPartition("many", 0)
    assert home(world, many) == "/second"
    world.machine.broker.replication_quotas.set_rates({ALTER_LOG_DIRS_RATE: "1000"})
    for _ in range(4):
        world.produce("many", b"x" * 250_000)
    assert alter(world, "/first", "many") is ErrorCode.NONE
    world.settle()
    assert home(world, many) == "/second"
    assert rows(world)["/first", True][1] == 3


def test_a_directory_that_is_not_configured_is_refused(world: Simulation) -> None:
    assert alter(world, "/third") is ErrorCode.LOG_DIR_NOT_FOUND
    assert alter(world, "second") is ErrorCode.LOG_DIR_NOT_FOUND


def test_a_topic_that_does_not_exist_is_unknown(world: Simulation) -> None:
    assert alter(world, "/second", "other") is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_new_replica_is_created_where_it_was_asked_for(world: Simulation) -> None:
    assert alter(world, "/first", "later") is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    world.create_topic("later")
    world.settle()
    assert home(world, TopicPartition("later", 0)) == "/first"


def test_a_move_goes_on_after_a_restart(world: Simulation) -> None:
    pause_copies(world.machine)
    world.produce("t", b"a")
    assert alter(world, "/second") is ErrorCode.NONE
    world.machine.kill()
    world.machine.start(DIRS)
    world.settle()
    world.pass_time(1_000)
    assert home(world) == "/second"
    assert [record.value for record in world.records("t")] == [b"a"]


def test_a_deleted_topic_takes_its_copy_along(world: Simulation) -> None:
    pause_copies(world.machine)
    assert alter(world, "/second") is ErrorCode.NONE
    world.call(requests.delete_topics("t"))
    world.pass_time(1_000)
    assert rows(world) == {}
    files = world.machine.files
    assert [name for name in files.list_dir("/second") if files.is_dir(f"/second/{name}")] == []


def test_no_log_moves_while_a_directory_is_offline(world: Simulation) -> None:
    world.machine.stop()
    world.machine.files.rename("/second", "/elsewhere")
    world.machine.files.open("/second", create=True).close()
    world.machine.start({**DIRS, "log.dirs": "/first,/second,/third"})
    world.settle()
    assert alter(world, "/second") is ErrorCode.KAFKA_STORAGE_ERROR
    assert alter(world, "/third") is ErrorCode.KAFKA_STORAGE_ERROR
    assert alter(world, "/first") is ErrorCode.NONE


def test_a_copy_that_fails_leaves_the_log_served(world: Simulation, caplog: pytest.LogCaptureFixture) -> None:
    world.produce("t", b"a")
    world.machine.files.fail_next_sync(match="/second/t_0.0-future")
    assert alter(world, "/second") in {ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR}
    world.pass_time(2_000)
    assert home(world) == "/first"
    assert [record.value for record in world.records("t")] == [b"a"]
    assert "failed to copy the log of t-0 to /second" in caplog.text
    assert alter(world, "/second") is ErrorCode.NONE
    world.pass_time(2_000)
    assert home(world) == "/second"


def test_move_goes_on_after_an_unexpected_error(world: Simulation, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(FutureLogs, "copy", Mock(side_effect=RuntimeError("unexpected")))
        with pytest.raises(RuntimeError, match="unexpected"):
            alter(world, "/second")
    world.pass_time(2_000)
    assert home(world) == "/second"


@pytest.mark.parametrize("leads", [True, False])
def test_a_replica_moves_while_its_leader_changes(leads: bool) -> None:
    world = Simulation()
    world.start_brokers(2, {**DIRS, "auto.leader.rebalance.enable": "false"})
    world.create_topic("t", replicas=2)
    world.settle()
    leader = next(number for number in (0, 1) if world.machine_of(number).broker.partitions[TP].is_leader)
    moving, other = (leader, 1 - leader) if leads else (1 - leader, leader)
    sent: list[bytes] = []

    def produce(number: int) -> None:
        world.move_to(f"machine-{number}")
        sent.append(b"%d" % len(sent) * 100)
        assert world.produce("t", sent[-1]).error_code == ErrorCode.NONE

    produce(leader)
    pause_copies(world.machine_of(moving))
    world.move_to(f"machine-{moving}")
    assert alter(world, "/second") is ErrorCode.NONE
    produce(leader)
    world.machine_of(leader).kill()  # the other one leads
    world.pass_time(20_000)
    world.machine_of(leader).start({**DIRS, "auto.leader.rebalance.enable": "false"})
    world.pass_time(5_000)
    produce(1 - leader)
    world.machine_of(moving).broker.replication_quotas.alter_log_dirs.set_limit(1 << 60)
    world.pass_time(5_000)
    found = world.machine_of(moving).broker.logs.home_of(TP)
    assert found is not None
    assert found.path == "/second"
    produce(1 - leader)
    logs = [world.machine_of(number).broker.partitions[TP].log for number in (moving, other)]
    assert [[record.value for record in read_all(log)] for log in logs] == [sent, sent]
    assert logs[0].epochs.entries == logs[1].epochs.entries
