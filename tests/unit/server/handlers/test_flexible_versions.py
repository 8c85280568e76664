"""Versions whose only change is their encoding: they mean what the last classic version does."""

from __future__ import annotations

from typing import Any

import pytest

from minikafka.base.acls import PatternType
from minikafka.server.served_versions import NEWEST_SERVED
from minikafka.wire.api import FLEXIBLE_SINCE, ApiKey
from minikafka.wire.apis.alter_configs import AlterableConfig, AlterConfigsRequest, AlterConfigsResource
from minikafka.wire.apis.create_acls import AclCreation, CreateAclsRequest
from minikafka.wire.apis.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from minikafka.wire.apis.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from minikafka.wire.apis.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from minikafka.wire.apis.describe_acls import ANY, DescribeAclsRequest
from minikafka.wire.apis.offset_for_leader_epoch import (
    EpochPartition,
    EpochTopic,
    OffsetForLeaderEpochRequest,
)
from tests.support.requests import Request
from tests.support.simulation import Simulation

REQUESTS: dict[ApiKey, Any] = {
    ApiKey.DELETE_RECORDS: DeleteRecordsRequest(
        tuple(
            DeleteRecordsTopic(topic, (DeleteRecordsPartition(0, 1), DeleteRecordsPartition(7, 1)))
            for topic in ("t", "none")
        ),
        1_000,
    ),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: OffsetForLeaderEpochRequest(
        tuple(
            EpochTopic(topic, (EpochPartition(0, -1, 0), EpochPartition(7, -1, 0))) for topic in ("t", "none")
        )
    ),
    ApiKey.ALTER_CONFIGS: AlterConfigsRequest(
        (
            AlterConfigsResource(2, "t", (AlterableConfig("retention.ms", "1000"),)),
            AlterConfigsResource(2, "t2", (AlterableConfig("retention.ms", "x"),)),
        ),
        False,
    ),
    ApiKey.CREATE_PARTITIONS: CreatePartitionsRequest(
        (CreatePartitionsTopic("t", 3, None), CreatePartitionsTopic("none", 3, None)), 1_000, True
    ),
    ApiKey.CREATE_ACLS: CreateAclsRequest(
        (
            AclCreation(2, "t", PatternType.LITERAL, "User:a", "*", 3, 3),
            AclCreation(7, "User:b", PatternType.LITERAL, "User:a", "*", 14, 3),
            AclCreation(8, "t", PatternType.LITERAL, "User:a", "*", 3, 3),
        )
    ),
    ApiKey.DESCRIBE_ACLS: DescribeAclsRequest(ANY, None, ANY, None, None, ANY, ANY),
    ApiKey.DELETE_ACLS: DeleteAclsRequest(
        (DeleteAclsFilter(2, "t", PatternType.LITERAL, None, None, ANY, ANY),)
    ),
}
VERSIONS = [
    (key, version)
    for key in REQUESTS
    for version in range(FLEXIBLE_SINCE[key], min(NEWEST_SERVED[key], FLEXIBLE_SINCE[key] + 1) + 1)
]
AUTHORIZER = {
    "authorizer.class.name": "kafka.security.auth.SimpleAclAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
    "super.users": "User:ANONYMOUS",
}


def answer(key: ApiKey, version: int) -> Any:
    """Return the answer of a broker with a topic of three messages, and ACLs of a topic and of a user."""
    simulation = Simulation.serving("t", properties=AUTHORIZER)
    for value in (b"1", b"2", b"3"):
        simulation.produce("t", value)
    simulation.call(Request(ApiKey.CREATE_ACLS, 1, REQUESTS[ApiKey.CREATE_ACLS]))
    return simulation.call(Request(key, version, REQUESTS[key]))


@pytest.mark.parametrize(("key", "version"), VERSIONS)
def test_flexible_versions_mean_what_the_last_classic_one_does(key: ApiKey, version: int) -> None:
    assert answer(key, version) == answer(key, FLEXIBLE_SINCE[key] - 1)


def test_acls_of_users_are_stored_and_described() -> None:
    (acls,) = (row.acls for row in answer(ApiKey.DESCRIBE_ACLS, 3).resources if row.resource_type == 7)
    assert [(acl.principal, acl.operation) for acl in acls] == [("User:a", 14)]
