"""``Admin.describe_log_dirs``: the data directories of brokers."""

from __future__ import annotations

import pytest

from minikafka.base.errors import BrokerError, ErrorCode
from minikafka.base.ids import TopicPartition
from minikafka.clients.admin.admin import Admin
from minikafka.clients.admin.log_dirs import LogDirReplica, OfflineLogDir, offline_log_dirs
from minikafka.wire.api import ApiKey
from minikafka.wire.apis.alter_replica_log_dirs import (
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    alter_log_dirs_response,
    log_dirs_of,
)
from minikafka.wire.apis.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from tests.support.broker_harness import BrokerHarness


@pytest.fixture
def brokers() -> BrokerHarness:
    brokers = BrokerHarness(2, {"t": 2})
    rows = DescribeLogDirsPartition(1, 70, 3, True), DescribeLogDirsPartition(0, 90, 0, False)
    results = (
        DescribeLogDirsResult(ErrorCode.KAFKA_STORAGE_ERROR, "/second", ()),
        DescribeLogDirsResult(ErrorCode.NONE, "/first", (DescribeLogDirsTopic("t", rows),)),
    )
    brokers.script(ApiKey.DESCRIBE_LOG_DIRS, *[lambda _, request: DescribeLogDirsResponse(0, results)] * 2)
    return brokers


def test_all_brokers_are_asked_and_rows_come_in_order(brokers: BrokerHarness) -> None:
    found = Admin(brokers.client()).describe_log_dirs()
    assert [(log_dir.broker_id, log_dir.path) for log_dir in found] == [
        (broker_id, path)
        for broker_id in sorted(brokers.client().metadata().brokers)
        for path in ("/first", "/second")
    ]
    assert found[0].error is None
    assert found[0].replicas == (
        LogDirReplica(TopicPartition("t", 0), 90, 0, is_future=False),
        LogDirReplica(TopicPartition("t", 1), 70, 3, is_future=True),
    )
    assert found[1].error is not None
    assert found[1].error.code is ErrorCode.KAFKA_STORAGE_ERROR


@pytest.mark.parametrize("code", [ErrorCode.NONE, ErrorCode.CLUSTER_AUTHORIZATION_FAILED])
def test_an_answer_without_directories_is_a_refusal(code: ErrorCode) -> None:
    brokers = BrokerHarness(1)
    response = DescribeLogDirsResponse(0, (), error_code=code)
    brokers.script(ApiKey.DESCRIBE_LOG_DIRS, lambda _, request: response)
    with pytest.raises(BrokerError, match="Describe on the cluster") as refused:
        Admin(brokers.client()).describe_log_dirs()
    assert refused.value.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def test_an_error_of_the_whole_request_is_raised() -> None:
    brokers = BrokerHarness(1)
    response = DescribeLogDirsResponse(0, (), error_code=ErrorCode.UNKNOWN)
    brokers.script(ApiKey.DESCRIBE_LOG_DIRS, lambda _, request: response)
    with pytest.raises(BrokerError) as refused:
        Admin(brokers.client()).describe_log_dirs()
    assert refused.value.code is ErrorCode.UNKNOWN


def test_the_size_of_a_disk_is_told_if_the_broker_knows_it() -> None:
    brokers = BrokerHarness(1)
    results = (
        DescribeLogDirsResult(ErrorCode.NONE, "/first", (), 70, 30),
        DescribeLogDirsResult(ErrorCode.NONE, "/second", ()),
    )
    brokers.script(ApiKey.DESCRIBE_LOG_DIRS, lambda _, request: DescribeLogDirsResponse(0, results))
    found = Admin(brokers.client()).describe_log_dirs()
    assert [(log_dir.total_bytes, log_dir.usable_bytes) for log_dir in found] == [(70, 30), (None, None)]


def test_every_broker_is_asked_for_its_offline_directories(brokers: BrokerHarness) -> None:
    client = brokers.client()
    known = sorted(client.metadata().brokers)
    offline = offline_log_dirs(client, known, client.deadline(None))
    assert offline == tuple(OfflineLogDir(broker_id, "/second") for broker_id in known)


def test_broker_that_denies_its_directories_has_none_offline() -> None:
    brokers = BrokerHarness(1)
    brokers.script(ApiKey.DESCRIBE_LOG_DIRS, lambda _, request: DescribeLogDirsResponse(0, ()))
    client = brokers.client()
    assert offline_log_dirs(client, client.metadata().brokers, client.deadline(None)) == ()


def test_moves_return_the_error_of_each_log() -> None:
    brokers = BrokerHarness(1, {"t": 3})
    codes = {TopicPartition("t", 0): ErrorCode.NONE, TopicPartition("t", 1): ErrorCode.LOG_DIR_NOT_FOUND}
    asked: list[AlterReplicaLogDirsRequest] = []

    def answer(_: object, request: AlterReplicaLogDirsRequest) -> AlterReplicaLogDirsResponse:
        asked.append(request)
        return alter_log_dirs_response(codes)

    brokers.script(ApiKey.ALTER_REPLICA_LOG_DIRS, answer)
    client = brokers.client()
    (broker_id,) = client.metadata().brokers
    paths = {TopicPartition("t", number): f"/disk{number}" for number in range(3)}
    found = Admin(client).alter_replica_log_dirs(broker_id, paths)
    assert [error and error.code for error in found.values()] == [
        None,
        ErrorCode.LOG_DIR_NOT_FOUND,
        ErrorCode.UNKNOWN,
    ]
    assert log_dirs_of(asked[0]) == paths
