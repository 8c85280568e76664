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
from minikafka.wire.apis.create_partitions import CreatePartitionsTopic
from minikafka.wire.apis.create_topics import CreatableTopic, CreatableTopicConfig
from minikafka.wire.apis.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from minikafka.wire.apis.describe_acls import DescribeAclsRequest
from minikafka.wire.apis.incremental_alter_configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from minikafka.wire.apis.offset_for_leader_epoch import (
    EpochPartition,
    EpochTopic,
    OffsetForLeaderEpochRequest,
)
from tests.support import requests
from tests.support.requests import Request
from tests.support.simulation import Simulation

NAMES = tuple(f"none-{number}" for number in range(3))
TOPIC = 2
"""The type of a resource, of configs and of access rules."""
PREFIXED = 4
"""A type of patterns that later releases have."""


REQUESTS = {
    "alter configs": requests.alter_configs(*NAMES, name="x"),
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
    "describe configs": requests.describe_configs(*NAMES),
    "create acls": requests.create_acls(*NAMES),
    "create acls that are invalid": requests.create_acls(*NAMES, pattern_type=PREFIXED),
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
    "create topics": requests.create_topics(
        *(CreatableTopic(name, 1, 9) for name in NAMES), validate_only=False
    ),
    "create topics with invalid settings": requests.create_topics(
        *(CreatableTopic(name, 1, 1, (), (CreatableTopicConfig("segment.ms", "x"),)) for name in NAMES),
        validate_only=False,
    ),
    "delete topics": requests.delete_topics(*NAMES, timeout_ms=10),
    "create partitions": requests.create_partitions(
        *(CreatePartitionsTopic(name, 5, None) for name in NAMES), timeout_ms=10
    ),
    "delete records": requests.delete_records(*NAMES, offset=1),
    "leader epochs": Request(
        ApiKey.OFFSET_FOR_LEADER_EPOCH,
        2,
        OffsetForLeaderEpochRequest(tuple(EpochTopic(name, (EpochPartition(0, -1, 0),)) for name in NAMES)),
    ),
    "list offsets": requests.list_offsets(*NAMES),
    "list offsets by time": requests.list_offsets(*NAMES, timestamp_ms=5),
    "fetch": requests.fetch(NAMES[0]),
    "fetch behind the end": requests.fetch("t", 1_000),
    "produce": requests.produce(NAMES[0], build_message_set([Record(None, b"x", 1)])),
    "produce damage": requests.produce("t", build_message_set([Record(None, b"x", 1)])[:-1] + b"y"),
    "commit": requests.commit_offsets(*NAMES),
    "commit to zookeeper": requests.commit_offsets(*NAMES).at(0),
    "fetch offsets": requests.fetch_offsets(*NAMES).at(1),
    "fetch offsets from zookeeper": requests.fetch_offsets(*NAMES).at(0),
    "describe groups": requests.describe_groups(*NAMES),
    "delete groups": requests.delete_groups(*NAMES),
    "sync group": requests.sync_group("g", 1, "x"),
    "leave group": requests.leave_group("g", "x"),
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
