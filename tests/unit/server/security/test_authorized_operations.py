"""Names that clients learn by topic id, and the operations that they are told they may do."""

from __future__ import annotations

import pytest

from minikafka.base.acls import CLUSTER, Operation, Permission
from minikafka.base.errors import ErrorCode
from minikafka.wire.api import NO_OPERATIONS, ApiKey
from minikafka.wire.apis.describe_cluster import DescribeClusterRequest
from minikafka.wire.apis.metadata import MetadataRequest, MetadataRequestTopic
from tests.support.guarded_broker import TOPIC, Guarded
from tests.support.requests import Request

TOPIC_DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
READ, CREATE, ALTER, DESCRIBE = Operation.READ, Operation.CREATE, Operation.ALTER, Operation.DESCRIBE


@pytest.fixture
def world() -> Guarded:
    return Guarded()


def test_who_asks_by_id_learns_no_name_that_they_may_not_describe(world: Guarded) -> None:
    topic_id = world.machine.broker.metadata_cache.topic_ids["t"]
    asked = Request(ApiKey.METADATA, 12, MetadataRequest((MetadataRequestTopic(None, topic_id=topic_id),)))
    (denied,) = world.call(asked).topics
    assert (denied.error_code, denied.name, denied.topic_id) == (
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        None,
        topic_id,
    )
    world.allow(DESCRIBE, TOPIC)
    (found,) = world.call(asked).topics
    assert (found.error_code, found.name, found.topic_id) == (ErrorCode.NONE, "t", topic_id)


def test_topics_come_with_the_operations_that_the_client_may_do(world: Guarded) -> None:
    world.allow(READ, TOPIC)
    named = MetadataRequestTopic("t"), MetadataRequestTopic("other")
    for topics in (None, named):
        answer = world.call(Request(ApiKey.METADATA, 8, MetadataRequest(topics, True, True, True)))
        found = {topic.name: topic.topic_authorized_operations for topic in answer.topics}
        assert found["t"] == 1 << READ | 1 << DESCRIBE
        assert found.get("other", NO_OPERATIONS) == NO_OPERATIONS
        assert answer.cluster_authorized_operations == 0
    world.allow(DESCRIBE, CLUSTER)
    answer = world.call(Request(ApiKey.METADATA, 10, MetadataRequest((), True, True)))
    assert answer.cluster_authorized_operations == 1 << DESCRIBE


def test_everybody_sees_the_brokers_and_only_their_own_operations(world: Guarded) -> None:
    asked = Request(ApiKey.DESCRIBE_CLUSTER, 1, DescribeClusterRequest(True))
    answer = world.call(asked)
    assert [broker.broker_id for broker in answer.brokers] == [0]
    assert answer.cluster_authorized_operations == 0
    world.allow(ALTER, CLUSTER)
    world.allow(CREATE, CLUSTER)
    assert world.call(asked).cluster_authorized_operations == 1 << ALTER | 1 << CREATE | 1 << DESCRIBE
    world.allow(DESCRIBE, CLUSTER, Permission.DENY)
    assert world.call(asked).cluster_authorized_operations == 0
