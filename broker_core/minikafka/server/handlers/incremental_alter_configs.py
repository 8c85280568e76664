"""IncrementalAlterConfigs: change single configs of topics or of this broker, or levels of its loggers.

Otherwise as AlterConfigs.
"""

from __future__ import annotations

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

    def change(resource: IncrementalAlterConfigsResource) -> None:
        kind, name, configs = resource.resource_type, resource.resource_name, resource.configs
        if kind == ConfigResourceType.BROKER_LOGGER:
            check_broker(broker, name)
            BrokerLoggers().change(configs, validate_only=validate_only)
        else:
            change_resource(broker, kind, name, alter_some(broker, configs), validate_only=validate_only)

    alter(broker, context, request.resources, change)
