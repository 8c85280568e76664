"""DescribeLogDirs: which directories a broker has, and how large the logs in them are."""

from __future__ import annotations

from pathlib import Path

import pytest

from minikafka.base.errors import ErrorCode
from minikafka.base.files import RealFiles
from minikafka.base.ids import TopicPartition
from minikafka.wire.api import ApiKey
from minikafka.wire.apis.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from tests.support.requests import Request
from tests.support.simulation import Simulation

DIRS = {"log.dirs": "/first,/second"}


@pytest.fixture
def world() -> Simulation:
    """A broker with two directories, and a topic whose two partitions lie in one each."""
    return Simulation.serving("t", partitions=2, properties=DIRS)


def described(
    world: Simulation, topics: tuple[DescribableLogDirTopic, ...] | None = None
) -> DescribeLogDirsResponse:
    answer: DescribeLogDirsResponse = world.call(
        Request(ApiKey.DESCRIBE_LOG_DIRS, 1, DescribeLogDirsRequest(topics))
    )
    return answer


def logs_of(answer: DescribeLogDirsResponse) -> dict[str, dict[TopicPartition, DescribeLogDirsPartition]]:
    """Directory -> partition -> its log."""
    return {
        result.log_dir: {
            TopicPartition(topic.name, row.partition_index): row
            for topic in result.topics
            for row in topic.partitions
        }
        for result in answer.results
    }


def test_each_log_is_in_one_directory_with_its_size(world: Simulation) -> None:
    assert world.produce("t", b"x" * 100).error_code == ErrorCode.NONE
    found = logs_of(described(world))
    assert found.keys() == {"/first", "/second"}
    first, second = found.values()
    assert first.keys() | second.keys() == {TopicPartition("t", 0), TopicPartition("t", 1)}
    logs = first | second
    stored = world.machine.broker.logs.logs()[TopicPartition("t", 0)].size_bytes
    assert stored > 100
    assert logs[TopicPartition("t", 0)] == DescribeLogDirsPartition(0, stored, 0, False)
    assert logs[TopicPartition("t", 1)] == DescribeLogDirsPartition(1, 0, 0, False)


def test_only_the_partitions_that_are_named_are_told_of(world: Simulation) -> None:
    answer = described(world, (DescribableLogDirTopic("t", (1, 7)), DescribableLogDirTopic("other", (0,))))
    first, second = logs_of(answer).values()
    assert first.keys() | second.keys() == {TopicPartition("t", 1)}


def test_a_directory_that_cannot_be_used_is_offline() -> None:
    world = Simulation()
    world.machine.files.open("/second", create=True).close()  # a file stands in its place
    world.machine.start(DIRS)
    assert {result.log_dir: ErrorCode(result.error_code) for result in described(world).results} == {
        "/first": ErrorCode.NONE,
        "/second": ErrorCode.KAFKA_STORAGE_ERROR,
    }


def test_directory_with_a_failed_log_is_offline_and_lists_its_logs(world: Simulation) -> None:
    (directory, logs), *_ = world.machine.broker.logs.by_directory().items()
    ((_, log),) = logs
    log.fail("the disk broke")
    answer = described(world)
    assert {result.log_dir: ErrorCode(result.error_code) for result in answer.results} == {
        "/first": ErrorCode.NONE,
        "/second": ErrorCode.NONE,
    } | {directory.path: ErrorCode.KAFKA_STORAGE_ERROR}
    assert [len(logs) for logs in logs_of(answer).values()] == [1, 1]


def test_the_size_of_each_disk_is_told(world: Simulation) -> None:
    world.machine.files.capacity_bytes = 1 << 30
    request = Request(ApiKey.DESCRIBE_LOG_DIRS, 4, DescribeLogDirsRequest(None))
    used = world.machine.files.used_bytes()
    results = world.call(request).results
    assert [(row.total_bytes, row.usable_bytes) for row in results] == [(1 << 30, (1 << 30) - used)] * 2
    assert world.call(request.at(3)).results[0].total_bytes == -1


def test_the_size_of_an_offline_disk_is_unknown() -> None:
    world = Simulation()
    world.machine.files.open("/second", create=True).close()
    world.machine.start(DIRS)
    request = Request(ApiKey.DESCRIBE_LOG_DIRS, 4, DescribeLogDirsRequest(None))
    sizes = {row.log_dir: (row.total_bytes, row.usable_bytes) for row in world.call(request).results}
    assert sizes["/second"] == (-1, -1)
    assert min(sizes["/first"]) > 0


def test_the_size_of_the_machines_disk_is_found(tmp_path: Path) -> None:
    space = RealFiles().disk_space(str(tmp_path))
    assert space.total_bytes >= space.usable_bytes > 0
    with pytest.raises(FileNotFoundError):
        RealFiles().disk_space(str(tmp_path / "none"))
