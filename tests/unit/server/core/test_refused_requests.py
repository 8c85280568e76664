"""A refused request leaves nothing behind, also without a garbage collection.

An error that is kept until the response has a traceback, its frames name their callers, and those the list
that the error is in. Full collections are rare (``base.memory``), and a request may have 100,000 names.
"""

from __future__ import annotations

import gc
from typing import Any

import pytest

from minikafka.base.errors import MinikafkaError
from minikafka.records.format.message_set import Record, build_message_set
from minikafka.wire.api import ApiKey
from minikafka.wire.apis.alter_configs import AlterableConfig, AlterConfigsRequest, AlterConfigsResource
from minikafka.wire.apis.create_acls import AclCreation, CreateAclsRequest
from minikafka.wire.apis.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from minikafka.wire.apis.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from minikafka.wire.apis.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from minikafka.wire.apis.delete_groups import DeleteGroupsRequest
from minikafka.wire.apis.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from minikafka.wire.apis.delete_topics import DeleteTopicsRequest
from minikafka.wire.apis.describe_acls import DescribeAclsRequest
from minikafka.wire.apis.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from minikafka.wire.apis.describe_groups import DescribeGroupsRequest
from minikafka.wire.apis.incremental_alter_configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from minikafka.wire.apis.leave_group import LeaveGroupRequest
from minikafka.wire.apis.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from minikafka.wire.apis.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from minikafka.wire.apis.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from minikafka.wire.apis.offset_for_leader_epoch import (
    EpochPartition,
    EpochTopic,
    OffsetForLeaderEpochRequest,
)
from minikafka.wire.apis.sync_group import SyncGroupRequest
from tests.support import simulation
from tests.support.simulation import Request, Simulation

NAMES = tuple(f"none-{number}" for number in range(3))
TOPIC = 2
"""The type of a resource, of configs and of access rules."""
PREFIXED = 4
"""A type of patterns that later releases have."""


def commit(version: int) -> Request:
    parts = (OffsetCommitRequestPartition(0, 5, -1, -1, ""),)
    topics = tuple(OffsetCommitRequestTopic(name, parts) for name in NAMES)
    return Request(ApiKey.OFFSET_COMMIT, version, OffsetCommitRequest("g", -1, "", -1, topics))


def offsets(version: int) -> Request:
    topics = tuple(OffsetFetchRequestTopic(name, (0,)) for name in NAMES)
    return Request(ApiKey.OFFSET_FETCH, version, OffsetFetchRequest("g", topics))


REQUESTS = {
    "alter configs": Request(
        ApiKey.ALTER_CONFIGS,
        0,
        AlterConfigsRequest(
            tuple(AlterConfigsResource(TOPIC, name, (AlterableConfig("x", "1"),)) for name in NAMES), False
        ),
    ),
    "alter configs incrementally": Request(
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        0,
        IncrementalAlterConfigsRequest(
            tuple(
                IncrementalAlterConfigsResource(TOPIC, name, (IncrementalAlterableConfig("x", 0, "1"),))
                for name in NAMES
            ),
            False,
        ),
    ),
    "describe configs": Request(
        ApiKey.DESCRIBE_CONFIGS,
        1,
        DescribeConfigsRequest(tuple(DescribeConfigsResource(TOPIC, name, None) for name in NAMES), False),
    ),
    "create acls": Request(
        ApiKey.CREATE_ACLS,
        1,
        CreateAclsRequest(tuple(AclCreation(TOPIC, name, 3, "User:a", "*", 3, 3) for name in NAMES)),
    ),
    "create acls that are invalid": Request(
        ApiKey.CREATE_ACLS,
        1,
        CreateAclsRequest(tuple(AclCreation(TOPIC, name, PREFIXED, "User:a", "*", 3, 3) for name in NAMES)),
    ),
    "delete acls": Request(
        ApiKey.DELETE_ACLS,
        1,
        DeleteAclsRequest(tuple(DeleteAclsFilter(TOPIC, name, 3, None, None, 1, 1) for name in NAMES)),
    ),
    "delete acls that are invalid": Request(
        ApiKey.DELETE_ACLS,
        1,
        DeleteAclsRequest(tuple(DeleteAclsFilter(99, name, 3, None, None, 1, 1) for name in NAMES)),
    ),
    "describe acls": Request(
        ApiKey.DESCRIBE_ACLS, 1, DescribeAclsRequest(TOPIC, NAMES[0], 3, None, None, 1, 1)
    ),
    "create topics": Request(
        ApiKey.CREATE_TOPICS, 1, CreateTopicsRequest(tuple(CreatableTopic(name, 1, 9) for name in NAMES), 10)
    ),
    "create topics with invalid settings": Request(
        ApiKey.CREATE_TOPICS,
        1,
        CreateTopicsRequest(
            tuple(
                CreatableTopic(name, 1, 1, (), (CreatableTopicConfig("segment.ms", "x"),)) for name in NAMES
            ),
            10,
        ),
    ),
    "delete topics": Request(ApiKey.DELETE_TOPICS, 1, DeleteTopicsRequest(NAMES, 10)),
    "create partitions": Request(
        ApiKey.CREATE_PARTITIONS,
        0,
        CreatePartitionsRequest(tuple(CreatePartitionsTopic(name, 5, None) for name in NAMES), 10, False),
    ),
    "delete records": Request(
        ApiKey.DELETE_RECORDS,
        0,
        DeleteRecordsRequest(
            tuple(DeleteRecordsTopic(name, (DeleteRecordsPartition(0, 1),)) for name in NAMES), 10
        ),
    ),
    "leader epochs": Request(
        ApiKey.OFFSET_FOR_LEADER_EPOCH,
        2,
        OffsetForLeaderEpochRequest(tuple(EpochTopic(name, (EpochPartition(0, -1, 0),)) for name in NAMES)),
    ),
    "list offsets": Request(
        ApiKey.LIST_OFFSETS,
        1,
        ListOffsetsRequest(
            -1, 0, tuple(ListOffsetsTopic(name, (ListOffsetsPartition(0, -1, -1, 1),)) for name in NAMES)
        ),
    ),
    "list offsets by time": Request(
        ApiKey.LIST_OFFSETS,
        1,
        ListOffsetsRequest(
            -1, 0, tuple(ListOffsetsTopic(name, (ListOffsetsPartition(0, -1, 5, 1),)) for name in NAMES)
        ),
    ),
    "fetch": simulation.fetch(NAMES[0]),
    "fetch behind the end": simulation.fetch("t", 1_000),
    "produce": simulation.produce(NAMES[0], build_message_set([Record(None, b"x", 1)])),
    "produce damage": simulation.produce("t", build_message_set([Record(None, b"x", 1)])[:-1] + b"y"),
    "commit": commit(2),
    "commit to zookeeper": commit(0),
    "fetch offsets": offsets(1),
    "fetch offsets from zookeeper": offsets(0),
    "describe groups": Request(ApiKey.DESCRIBE_GROUPS, 0, DescribeGroupsRequest(NAMES)),
    "delete groups": Request(ApiKey.DELETE_GROUPS, 0, DeleteGroupsRequest(NAMES)),
    "sync group": Request(ApiKey.SYNC_GROUP, 0, SyncGroupRequest("g", 1, "x", ())),
    "leave group": Request(ApiKey.LEAVE_GROUP, 0, LeaveGroupRequest("g", "x")),
}


WITH_ACLS = {
    "authorizer.class.name": "kafka.security.auth.SimpleAclAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}


@pytest.fixture(scope="module", params=[{}, WITH_ACLS], ids=["without-acls", "with-acls"])
def world(request: pytest.FixtureRequest) -> Simulation:
    world = Simulation()
    world.machine.start(
        {"auto.create.topics.enable": "false", "offsets.topic.num.partitions": "1", **request.param}
    )
    assert world.create_topic("t") == 0
    for request in REQUESTS.values():  # what is made at the first time, the offsets topic too
        world.call(request)
        world.settle()
    # Each test below collects all garbage and looks at all objects: not at those that earlier tests left.
    gc.collect()
    gc.freeze()
    return world


def kept(body: Any) -> list[object]:
    """Errors, and the requests that were decoded of what was sent, that are still there."""
    return [
        found
        for found in gc.get_objects()
        if isinstance(found, MinikafkaError) or (type(found) is type(body) and found is not body)
    ]


@pytest.mark.parametrize("request_", REQUESTS.values(), ids=REQUESTS)
def test_no_error_and_no_request_stays_after_the_response(world: Simulation, request_: Request) -> None:
    gc.collect()
    gc.disable()
    try:
        known = {id(found) for found in kept(request_.body)}
        world.call(request_)
        world.settle()
        left = [found for found in kept(request_.body) if id(found) not in known]
    finally:
        gc.enable()
    assert left == []
