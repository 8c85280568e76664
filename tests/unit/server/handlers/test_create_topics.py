"""Responses of CreateTopics in its newer versions: the new topic's partitions, configs and id."""

from __future__ import annotations

from dataclasses import replace

import pytest

from minikafka.base.acls import CLUSTER, Operation, Resource, ResourceType
from minikafka.base.errors import ErrorCode
from minikafka.wire.api import ApiKey
from minikafka.wire.apis.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
)
from minikafka.wire.apis.describe_configs import (
    ConfigResourceType,
    ConfigSource,
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from minikafka.wire.fields import ZERO_UUID
from tests.support.guarded_broker import Guarded
from tests.support.requests import Request
from tests.support.simulation import Simulation

DEFAULTS = CreatableTopic("new", -1, -1)


def create(
    world: Simulation, topic: CreatableTopic = DEFAULTS, version: int = 7, *, validate_only: bool = False
) -> CreatableTopicResult:
    request = CreateTopicsRequest((topic,), 5000, validate_only)
    result: CreatableTopicResult = world.call(Request(ApiKey.CREATE_TOPICS, version, request)).topics[0]
    return result


@pytest.fixture
def world() -> Simulation:
    return Simulation.serving(properties={"num.partitions": "3", "log.retention.ms": "5000"})


def test_new_topic_comes_with_its_numbers_and_its_id(world: Simulation) -> None:
    created = create(world)
    assert (created.error_code, created.num_partitions, created.replication_factor) == (ErrorCode.NONE, 3, 1)
    assert created.topic_id == world.machine.broker.metadata_cache.topic_ids["new"]


def test_configs_of_a_new_topic_are_those_of_describe_configs(world: Simulation) -> None:
    own = (CreatableTopicConfig("cleanup.policy", "compact"),)
    created = create(world, replace(DEFAULTS, configs=own), version=5)
    resource = DescribeConfigsResource(ConfigResourceType.TOPIC, "new", None)
    (described,) = world.call(
        Request(ApiKey.DESCRIBE_CONFIGS, 2, DescribeConfigsRequest((resource,)))
    ).results
    assert created.configs is not None
    found = [(row.name, row.value, row.config_source) for row in created.configs]
    assert found == [(row.name, row.value, row.config_source) for row in described.configs]
    assert ("cleanup.policy", "compact", ConfigSource.TOPIC) in found
    assert ("retention.ms", "5000", ConfigSource.STATIC_BROKER) in found


def test_validated_topic_has_configs_and_no_id(world: Simulation) -> None:
    validated = create(world, validate_only=True)
    assert (validated.num_partitions, validated.topic_id) == (3, ZERO_UUID)
    assert validated.configs


def test_failed_topic_has_neither_numbers_nor_configs(world: Simulation) -> None:
    failed = create(world, CreatableTopic("new", 1, 9))
    assert failed.error_code == ErrorCode.INVALID_REPLICATION_FACTOR
    assert (failed.num_partitions, failed.replication_factor, failed.configs) == (-1, -1, ())


def test_config_without_a_value_is_invalid(world: Simulation) -> None:
    failed = create(world, replace(DEFAULTS, configs=(CreatableTopicConfig("retention.ms", None),)))
    assert failed.error_code == ErrorCode.INVALID_CONFIG
    assert "retention.ms" in (failed.error_message or "")


def test_beside_brokers_before_2_8_a_new_topic_has_no_id() -> None:
    world = Simulation.serving(properties={"inter.broker.protocol.version": "2.7"})
    assert create(world).topic_id == ZERO_UUID


def test_who_may_not_describe_configs_gets_no_more_than_the_id() -> None:
    world = Guarded()
    world.allow(Operation.CREATE, CLUSTER)
    created = create(world)
    assert (created.error_code, created.num_partitions, created.configs) == (ErrorCode.NONE, -1, None)
    assert created.topic_config_error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert created.topic_id != ZERO_UUID
    world.allow(Operation.DESCRIBE_CONFIGS, Resource(ResourceType.TOPIC, "other-new"))
    created = create(world, replace(DEFAULTS, name="other-new"))
    assert (created.num_partitions, created.topic_config_error_code) == (1, ErrorCode.NONE)
