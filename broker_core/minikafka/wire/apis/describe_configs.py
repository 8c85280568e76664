"""DescribeConfigs: the configs of topics and brokers, and their sources.

Version 0 says whether a value is the default. 1 gives its source and, if requested, the synonyms: all values
of the setting, of which the one with precedence is used. 3 gives its type and, if requested, its
documentation. 2 and 4 have no new fields. Only a broker itself describes its settings.
"""

from enum import IntEnum
from typing import Annotated

from minikafka.base.values import fast_value
from minikafka.wire.api import Api, ApiKey
from minikafka.wire.fields import Int8, Int16, Int32, since, until


class ConfigResourceType(IntEnum):
    """The type of a resource with configs."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8


class ConfigSource(IntEnum):
    """The source of a value, in order of precedence."""

    UNKNOWN = 0
    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_BROKER_LOGGER = 6


@fast_value
class DescribeConfigsResource:
    """A topic (by name), a broker or its loggers (by its id) to describe.

    ``configuration_keys`` None requests all configs.
    """

    resource_type: Annotated[Int8, "2 topic, 4 broker, 8 its loggers"]
    resource_name: str
    configuration_keys: Annotated[tuple[str, ...] | None, "null: all"]


@fast_value
class DescribeConfigsRequest:
    """The resources to describe."""

    resources: tuple[DescribeConfigsResource, ...]
    include_synonyms: Annotated[bool, since(1)] = False
    include_documentation: Annotated[bool, since(3)] = False


@fast_value
class DescribeConfigsSynonym:
    """A value of a setting, with the name and the source that it comes from."""

    name: str
    value: str | None
    source: Int8


@fast_value
class DescribeConfigsResourceResult:
    """A setting. ``value`` is None if it is secret or there is none. Version 0 has ``is_default``, later ones
    ``config_source``.
    """

    name: str
    value: str | None
    read_only: bool
    is_default: Annotated[bool, until(0, default=False)]
    config_source: Annotated[
        Int8, since(1, default=int(ConfigSource.UNKNOWN)), "1 topic, 4 broker's file, 5 default, 6 logger"
    ]
    is_sensitive: bool
    synonyms: Annotated[tuple[DescribeConfigsSynonym, ...], since(1, default=()), "in order of precedence"]
    config_type: Annotated[Int8, since(3), "0: unknown"] = 0
    documentation: Annotated[str | None, since(3)] = None


@fast_value
class DescribeConfigsResult:
    """All settings of one resource."""

    error_code: Int16
    error_message: str | None
    resource_type: Int8
    resource_name: str
    configs: tuple[DescribeConfigsResourceResult, ...]


@fast_value
class DescribeConfigsResponse:
    """The results for the resources of the request."""

    throttle_time_ms: Int32
    results: tuple[DescribeConfigsResult, ...]


DESCRIBE_CONFIGS = Api(
    ApiKey.DESCRIBE_CONFIGS, "DescribeConfigs", 0, 4, DescribeConfigsRequest, DescribeConfigsResponse
)
