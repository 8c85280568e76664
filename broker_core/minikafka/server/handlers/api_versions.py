"""ApiVersions:
what this broker speaks. Newer versions of the request are answered in ``minikafka.server.context``.
"""

from __future__ import annotations

from minikafka.server.broker import Broker
from minikafka.server.context import RequestContext
from minikafka.wire.apis import APIS
from minikafka.wire.apis.api_versions import ApiVersionsRequest, table_of


def handle(broker: Broker, context: RequestContext, request: ApiVersionsRequest) -> None:
    """List every API with its versions, by key."""
    context.reply(table_of(APIS.values()))
