"""IncrementalAlterConfigs: change some configs of a topic and keep the others.

Of Kafka 2.3. Sent to any broker.
"""

from __future__ import annotations

from enum import IntEnum

from minikafka.base.values import fast_value
from minikafka.wire.api import Api, ApiKey
from minikafka.wire.apis.alter_configs import ALTER_CONFIGS_RESPONSE
from minikafka.wire.schema import BOOLEAN, INT8, NULLABLE_STRING, STRING, Struct, array, field


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
    config_operation: int
    value: str | None


@fast_value
class IncrementalAlterConfigsResource:
    """The changes for a topic or broker; ``resource_type`` as in DescribeConfigs."""

    resource_type: int
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
    0,
    request=Struct(
        IncrementalAlterConfigsRequest,
        array(
            "resources",
            IncrementalAlterConfigsResource,
            field("resource_type", INT8, "2 topic, 4 broker"),
            field("resource_name", STRING),
            array(
                "configs",
                IncrementalAlterableConfig,
                field("name", STRING),
                field("config_operation", INT8, "0 set, 1 delete, 2 append, 3 subtract"),
                field("value", NULLABLE_STRING),
            ),
        ),
        field("validate_only", BOOLEAN),
    ),
    response=ALTER_CONFIGS_RESPONSE,
)
