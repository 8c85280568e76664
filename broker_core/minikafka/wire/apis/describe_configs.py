"""DescribeConfigs: the configs of topics and brokers, and their sources.

Version 0 says whether a value is the default. 1 gives its source and, if requested, the synonyms: all values
of the setting, of which the one with precedence is used. 2 is the same as 1. Only a broker itself describes
its settings.
"""

from __future__ import annotations

from enum import IntEnum

from minikafka.base.values import fast_value
from minikafka.wire.api import Api, ApiKey
from minikafka.wire.schema import (
    BOOLEAN,
    INT8,
    INT16,
    INT32,
    NULLABLE_STRING,
    STRING,
    ArrayOf,
    Struct,
    array,
    field,
)


class ConfigResourceType(IntEnum):
    """The type of a resource with configs."""

    TOPIC = 2
    BROKER = 4


class ConfigSource(IntEnum):
    """The source of a value, in order of precedence."""

    UNKNOWN = 0
    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5


@fast_value
class DescribeConfigsResource:
    """A topic (by name) or a broker (by id) to describe. ``configuration_keys`` None requests all configs."""

    resource_type: int
    resource_name: str
    configuration_keys: tuple[str, ...] | None


@fast_value
class DescribeConfigsRequest:
    """The resources to describe."""

    resources: tuple[DescribeConfigsResource, ...]
    include_synonyms: bool = False


@fast_value
class DescribeConfigsSynonym:
    """A value of a setting, with the name and the source that it comes from."""

    name: str
    value: str | None
    source: int


@fast_value
class DescribeConfigsResourceResult:
    """A setting. ``value`` is None if it is secret or there is none. Version 0 has ``is_default``, later ones
    ``config_source``.
    """

    name: str
    value: str | None
    read_only: bool
    is_default: bool
    config_source: int
    is_sensitive: bool
    synonyms: tuple[DescribeConfigsSynonym, ...]


@fast_value
class DescribeConfigsResult:
    """All settings of one resource."""

    error_code: int
    error_message: str | None
    resource_type: int
    resource_name: str
    configs: tuple[DescribeConfigsResourceResult, ...]


@fast_value
class DescribeConfigsResponse:
    """The results for the resources of the request."""

    throttle_time_ms: int
    results: tuple[DescribeConfigsResult, ...]


_SETTING = Struct(
    DescribeConfigsResourceResult,
    field("name", STRING),
    field("value", NULLABLE_STRING),
    field("read_only", BOOLEAN),
    field("is_default", BOOLEAN, until=0, default=False),
    field(
        "config_source",
        INT8,
        "1 topic, 4 broker's file, 5 default",
        since=1,
        default=int(ConfigSource.UNKNOWN),
    ),
    field("is_sensitive", BOOLEAN),
    array(
        "synonyms",
        DescribeConfigsSynonym,
        field("name", STRING),
        field("value", NULLABLE_STRING),
        field("source", INT8),
        note="in order of precedence",
        since=1,
        default=(),
    ),
)

DESCRIBE_CONFIGS = Api(
    ApiKey.DESCRIBE_CONFIGS,
    "DescribeConfigs",
    0,
    2,
    request=Struct(
        DescribeConfigsRequest,
        array(
            "resources",
            DescribeConfigsResource,
            field("resource_type", INT8, "2 topic, 4 broker"),
            field("resource_name", STRING),
            field("configuration_keys", ArrayOf(STRING, nullable=True), "null: all"),
        ),
        field("include_synonyms", BOOLEAN, since=1, default=False),
    ),
    response=Struct(
        DescribeConfigsResponse,
        field("throttle_time_ms", INT32),
        array(
            "results",
            DescribeConfigsResult,
            field("error_code", INT16),
            field("error_message", NULLABLE_STRING),
            field("resource_type", INT8),
            field("resource_name", STRING),
            field("configs", ArrayOf(_SETTING)),
        ),
    ),
)
