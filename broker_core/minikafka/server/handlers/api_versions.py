"""ApiVersions: what this broker speaks.

A version of the request that is not served is answered in ``minikafka.server.context``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from minikafka.server.broker import Broker
from minikafka.server.context import RequestContext
from minikafka.wire.apis.api_versions import ApiVersionsRequest, table_of
from minikafka.wire.keys import ApiKey
from minikafka.wire.table import APIS


def listing(served: Iterable[ApiKey]) -> Callable[[Broker, RequestContext, ApiVersionsRequest], None]:
    """The handler that lists the APIs of ``served`` with their versions, by key."""
    table = table_of(APIS[key] for key in served)

    def handle(broker: Broker, context: RequestContext, request: ApiVersionsRequest) -> None:
        context.reply(table)

    return handle
