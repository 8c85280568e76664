"""Settings of topics and brokers: DescribeConfigs and AlterConfigs. All brokers together have no name.

A broker before Kafka 2.3 has no IncrementalAlterConfigs: AlterConfigs replaces all settings of a topic, or
all dynamic ones of a broker, and a concurrent change of another client is lost.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from minikafka.base.config.types import INT_MAX, digits
from minikafka.base.errors import BrokerError, ErrorCode
from minikafka.clients.network.cluster import ClusterClient
from minikafka.clients.network.response_errors import raise_for_code
from minikafka.clients.network.retry import Deadline
from minikafka.wire.apis.alter_configs import (
    ALTER_CONFIGS,
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResponse,
)
from minikafka.wire.apis.describe_configs import (
    DESCRIBE_CONFIGS,
    ConfigResourceType,
    ConfigSource,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
)
from minikafka.wire.apis.incremental_alter_configs import (
    INCREMENTAL_ALTER_CONFIGS,
    AlterOperation,
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting. ``value`` is None if it is secret or unset."""

    name: str
    value: str | None
    source: ConfigSource
    read_only: bool
    is_sensitive: bool


def describe_configs(
    cluster: ClusterClient, kind: ConfigResourceType, name: str, deadline: Deadline
) -> list[Setting]:
    """Return all settings of a topic or broker, by name. Raises BrokerError."""
    request = DescribeConfigsRequest((DescribeConfigsResource(kind, name, None),))
    broker = _broker_for(cluster, kind, name, deadline)
    response = cluster.call(broker, DESCRIBE_CONFIGS, request, timeout_ms=deadline.remaining_ms())
    for result in response.results:
        raise_for_code(result.error_code, result.error_message, f"{kind.name.lower()} {name}")
        return [_setting(row, kind) for row in sorted(result.configs, key=lambda row: row.name)]
    raise BrokerError(ErrorCode.UNKNOWN, f"no result for {kind.name.lower()} {name} in the response")


def _setting(row: DescribeConfigsResourceResult, kind: ConfigResourceType) -> Setting:
    source = row.config_source
    if source == ConfigSource.UNKNOWN:  # version 0 only marks defaults
        source = ConfigSource.TOPIC if kind is ConfigResourceType.TOPIC else ConfigSource.STATIC_BROKER
        source = ConfigSource.DEFAULT if row.is_default else source
    known = ConfigSource(source) if source in set(ConfigSource) else ConfigSource.UNKNOWN
    return Setting(row.name, row.value, known, row.read_only, row.is_sensitive)


def change_configs(
    cluster: ClusterClient,
    kind: ConfigResourceType,
    name: str,
    changes: Mapping[str, str | None],
    deadline: Deadline,
) -> None:
    """Change settings of a topic or broker; None restores the default. Raises BrokerError."""
    increments = tuple(
        IncrementalAlterableConfig(key, AlterOperation.DELETE if value is None else AlterOperation.SET, value)
        for key, value in changes.items()
    )
    resource = IncrementalAlterConfigsResource(kind, name, increments)
    broker = _broker_for(cluster, kind, name, deadline)
    try:
        response = cluster.call(
            broker,
            INCREMENTAL_ALTER_CONFIGS,
            IncrementalAlterConfigsRequest((resource,), validate_only=False),
            timeout_ms=deadline.remaining_ms(),
        )
    except BrokerError as error:
        if error.code is not ErrorCode.UNSUPPORTED_VERSION:
            raise
        response = _alter_all(cluster, broker, kind, name, changes, deadline)
    for result in response.responses:
        raise_for_code(result.error_code, result.error_message, f"{kind.name.lower()} {name}")


def _alter_all(
    cluster: ClusterClient,
    broker: int | None,
    kind: ConfigResourceType,
    name: str,
    changes: Mapping[str, str | None],
    deadline: Deadline,
) -> AlterConfigsResponse:
    of_brokers = ConfigSource.DYNAMIC_BROKER if name else ConfigSource.DYNAMIC_DEFAULT_BROKER
    source = ConfigSource.TOPIC if kind is ConfigResourceType.TOPIC else of_brokers
    own = {
        setting.name: setting.value
        for setting in describe_configs(cluster, kind, name, deadline)
        if setting.source is source
    }
    secret = sorted(key for key, value in own.items() if value is None and key not in changes)
    if secret:
        raise BrokerError(
            ErrorCode.INVALID_REQUEST,
            f"the change would reset settings whose values are secret: give {', '.join(secret)} too",
        )
    wanted = {key: value for key, value in {**own, **changes}.items() if value is not None}
    resource = AlterConfigsResource(
        kind, name, tuple(AlterableConfig(key, value) for key, value in wanted.items())
    )
    return cluster.call(
        broker,
        ALTER_CONFIGS,
        AlterConfigsRequest((resource,), validate_only=False),
        timeout_ms=deadline.remaining_ms(),
    )


def _broker_for(
    cluster: ClusterClient, kind: ConfigResourceType, name: str, deadline: Deadline
) -> int | None:
    """Return the broker to send a request to: the named one, or None (any) for topics and all brokers."""
    if kind is ConfigResourceType.TOPIC or not name:
        return None
    broker_id = digits(name, INT_MAX)
    if broker_id is None:
        raise BrokerError(ErrorCode.INVALID_REQUEST, f"expected a broker id, got {name!r}")
    cluster.metadata(None, timeout_ms=deadline.remaining_ms())
    return broker_id
