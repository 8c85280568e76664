"""DescribeConfigs and IncrementalAlterConfigs of a broker's loggers."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from minikafka.base.errors import ErrorCode
from minikafka.wire.api import ApiKey
from minikafka.wire.apis.alter_configs import AlterableConfig, AlterConfigsRequest, AlterConfigsResource
from minikafka.wire.apis.describe_configs import (
    ConfigResourceType,
    ConfigSource,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
)
from minikafka.wire.apis.incremental_alter_configs import (
    AlterOperation,
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from tests.support.requests import Request
from tests.support.simulation import Simulation

LOGGERS = ConfigResourceType.BROKER_LOGGER


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    found = logging.getLogger("minikafka.of-this-test")
    yield found
    found.setLevel(logging.NOTSET)


@pytest.fixture
def world() -> Simulation:
    return Simulation.serving("t")


def described(world: Simulation, name: str, broker: str = "0") -> DescribeConfigsResourceResult:
    body = DescribeConfigsRequest((DescribeConfigsResource(LOGGERS, broker, (name,)),))
    (found,) = world.call(Request(ApiKey.DESCRIBE_CONFIGS, 4, body)).results
    assert found.error_code == ErrorCode.NONE
    (row,) = found.configs
    return row


def test_a_level_that_a_client_sets_is_described(world: Simulation, logger: logging.Logger) -> None:
    change = IncrementalAlterableConfig(logger.name, AlterOperation.SET, "ERROR")
    resource = IncrementalAlterConfigsResource(LOGGERS, "0", (change,))
    body = IncrementalAlterConfigsRequest((resource,), validate_only=False)
    (outcome,) = world.call(Request(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, body)).responses
    assert (outcome.error_code, outcome.resource_type, outcome.resource_name) == (0, LOGGERS, "0")
    assert logger.level == logging.ERROR
    row = described(world, logger.name)
    assert (row.value, row.config_source) == ("ERROR", ConfigSource.DYNAMIC_BROKER_LOGGER)
    assert not row.read_only


@pytest.mark.parametrize("broker", ["", "1"])
def test_only_the_broker_itself_describes_and_changes_its_loggers(world: Simulation, broker: str) -> None:
    body = DescribeConfigsRequest((DescribeConfigsResource(LOGGERS, broker, None),))
    (refused,) = world.call(Request(ApiKey.DESCRIBE_CONFIGS, 4, body)).results
    assert refused.error_code == ErrorCode.INVALID_REQUEST
    change = IncrementalAlterConfigsRequest((IncrementalAlterConfigsResource(LOGGERS, broker, ()),), False)
    (outcome,) = world.call(Request(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, change)).responses
    assert outcome.error_code == ErrorCode.INVALID_REQUEST


def test_alter_configs_changes_no_loggers(world: Simulation, logger: logging.Logger) -> None:
    resource = AlterConfigsResource(LOGGERS, "0", (AlterableConfig(logger.name, "ERROR"),))
    (outcome,) = world.call(
        Request(ApiKey.ALTER_CONFIGS, 2, AlterConfigsRequest((resource,), False))
    ).responses
    assert outcome.error_code == ErrorCode.INVALID_REQUEST
    assert "BROKER_LOGGER by IncrementalAlterConfigs" in outcome.error_message
    assert logger.level == logging.NOTSET
