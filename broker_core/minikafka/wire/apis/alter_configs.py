"""AlterConfigs: replace all configs of a topic. Omitted configs revert to their defaults.

Versions 0 and 1 are the same. Sent to any broker.
"""

from __future__ import annotations

from minikafka.base.values import fast_value
from minikafka.wire.api import Api, ApiKey
from minikafka.wire.schema import BOOLEAN, INT8, INT16, INT32, NULLABLE_STRING, STRING, Struct, array, field


@fast_value
class AlterableConfig:
    """A config and its new value."""

    name: str
    value: str | None


@fast_value
class AlterConfigsResource:
    """All new configs of a topic or broker; ``resource_type`` as in DescribeConfigs."""

    resource_type: int
    resource_name: str
    configs: tuple[AlterableConfig, ...]


@fast_value
class AlterConfigsRequest:
    """A request to replace configs. ``validate_only``: report the errors, change nothing."""

    resources: tuple[AlterConfigsResource, ...]
    validate_only: bool


@fast_value
class AlterConfigsResourceResponse:
    """The result for one resource."""

    error_code: int
    error_message: str | None
    resource_type: int
    resource_name: str


@fast_value
class AlterConfigsResponse:
    """A result for each resource of the request. It is also the response of IncrementalAlterConfigs."""

    throttle_time_ms: int
    responses: tuple[AlterConfigsResourceResponse, ...]


ALTER_CONFIGS_RESPONSE = Struct(
    AlterConfigsResponse,
    field("throttle_time_ms", INT32),
    array(
        "responses",
        AlterConfigsResourceResponse,
        field("error_code", INT16),
        field("error_message", NULLABLE_STRING),
        field("resource_type", INT8),
        field("resource_name", STRING),
    ),
)

ALTER_CONFIGS = Api(
    ApiKey.ALTER_CONFIGS,
    "AlterConfigs",
    0,
    1,
    request=Struct(
        AlterConfigsRequest,
        array(
            "resources",
            AlterConfigsResource,
            field("resource_type", INT8, "2 topic, 4 broker"),
            field("resource_name", STRING),
            array("configs", AlterableConfig, field("name", STRING), field("value", NULLABLE_STRING)),
        ),
        field("validate_only", BOOLEAN),
    ),
    response=ALTER_CONFIGS_RESPONSE,
)
