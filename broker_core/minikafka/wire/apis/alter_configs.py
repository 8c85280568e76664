"""AlterConfigs: replace all configs of a topic. Omitted configs revert to their defaults.

All versions are the same. Sent to any broker.
"""

from typing import Annotated

from minikafka.base.values import fast_value
from minikafka.wire.api import Api, ApiKey
from minikafka.wire.fields import Int8, Int16, Int32


@fast_value
class AlterableConfig:
    """A config and its new value."""

    name: str
    value: str | None


@fast_value
class AlterConfigsResource:
    """All new configs of a topic or broker; ``resource_type`` as in DescribeConfigs."""

    resource_type: Annotated[Int8, "2 topic, 4 broker"]
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

    error_code: Int16
    error_message: str | None
    resource_type: Int8
    resource_name: str


@fast_value
class AlterConfigsResponse:
    """A result for each resource of the request. It is also the response of IncrementalAlterConfigs."""

    throttle_time_ms: Int32
    responses: tuple[AlterConfigsResourceResponse, ...]


ALTER_CONFIGS = Api(ApiKey.ALTER_CONFIGS, "AlterConfigs", 0, 2, AlterConfigsRequest, AlterConfigsResponse)
