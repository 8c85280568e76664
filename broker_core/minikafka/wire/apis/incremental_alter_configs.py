"""IncrementalAlterConfigs: change some configs of a topic or broker, or levels of loggers; keep the others.

Of Kafka 2.3. Sent to any broker. Both versions are the same.
"""

from enum import IntEnum
from typing import Annotated

from minikafka.base.values import fast_value
from minikafka.wire.api import Api, ApiKey
from minikafka.wire.apis.alter_configs import AlterConfigsResponse
from minikafka.wire.fields import Int8


class AlterOperation(IntEnum):
    """An operation on one config; the last two are for lists."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@fast_value
class IncrementalAlterableConfig:
    """A change. ``config_operation`` is an AlterOperation; ``value`` is None with DELETE."""

    name: str
    config_operation: Annotated[Int8, "0 set, 1 delete, 2 append, 3 subtract"]
    value: str | None


@fast_value
class IncrementalAlterConfigsResource:
    """The changes for a topic, a broker or its loggers; ``resource_type`` as in DescribeConfigs."""

    resource_type: Annotated[Int8, "2 topic, 4 broker, 8 its loggers"]
    resource_name: str
    configs: tuple[IncrementalAlterableConfig, ...]


@fast_value
class IncrementalAlterConfigsRequest:
    """A request to change configs. ``validate_only``: report the errors, change nothing."""

    resources: tuple[IncrementalAlterConfigsResource, ...]
    validate_only: bool


INCREMENTAL_ALTER_CONFIGS = Api(
    ApiKey.INCREMENTAL_ALTER_CONFIGS,
    "IncrementalAlterConfigs",
    0,
    1,
    IncrementalAlterConfigsRequest,
    AlterConfigsResponse,
)
