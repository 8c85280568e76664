"""IncrementalAlterConfigs: change single configs of topics or of this broker, or levels of its loggers.

Otherwise as AlterConfigs.
"""

from __future__ import annotations

from collections.abc import Callable

from minikafka.server.admin.broker_loggers import BrokerLoggers
from minikafka.server.admin.dynamic_config import alter_some, change_resource, check_broker
from minikafka.server.context import RequestContext
from minikafka.server.core.broker import Broker
from minikafka.server.handlers.alter_configs import alter
from minikafka.wire.apis.describe_configs import ConfigResourceType
from minikafka.wire.apis.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)


def handle(broker: Broker, context: RequestContext, request: IncrementalAlterConfigsRequest) -> None:
    """Serve one IncrementalAlterConfigs request."""
    validate_only = request.validate_only

    def step(resource: IncrementalAlterConfigsResource) -> Callable[[], None]:
        kind, name, configs = resource.resource_type, resource.resource_name, resource.configs
        if kind == ConfigResourceType.BROKER_LOGGER:
            return lambda: _change_loggers(broker, resource, validate_only=validate_only)
        change = alter_some(broker, configs)
        return lambda: change_resource(broker, kind, name, change, validate_only=validate_only)

    alter(
        broker,
        context,
        [(resource.resource_type, resource.resource_name, step(resource)) for resource in request.resources],
    )


def _change_loggers(
    broker: Broker, resource: IncrementalAlterConfigsResource, *, validate_only: bool
) -> None:
    check_broker(broker, resource.resource_name)
    BrokerLoggers().change(resource.configs, validate_only=validate_only)
