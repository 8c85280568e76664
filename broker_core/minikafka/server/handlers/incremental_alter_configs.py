"""IncrementalAlterConfigs: change single configs of topics or of this broker. Otherwise as AlterConfigs."""

from __future__ import annotations

from minikafka.server.admin.dynamic_config import alter_some
from minikafka.server.context import RequestContext
from minikafka.server.core.broker import Broker
from minikafka.server.handlers.alter_configs import alter
from minikafka.wire.apis.incremental_alter_configs import IncrementalAlterConfigsRequest


def handle(broker: Broker, context: RequestContext, request: IncrementalAlterConfigsRequest) -> None:
    """Serve one IncrementalAlterConfigs request."""
    wanted = [
        (resource.resource_type, resource.resource_name, alter_some(broker, resource.configs))
        for resource in request.resources
    ]
    alter(broker, context, wanted, validate_only=request.validate_only)
