"""ApiVersions: the API versions that this broker serves; next to a 0.10.1 broker only the versions of 0.10.1.

An unsupported version of the request itself is answered in ``minikafka.server.context``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cache

from minikafka.server.context import RequestContext
from minikafka.server.core.broker import Broker
from minikafka.server.served_versions import newest_versions
from minikafka.wire.api import ApiKey
from minikafka.wire.api_table import APIS
from minikafka.wire.apis.api_versions import ApiVersionsRequest, ApiVersionsResponse, table_of


def listing(served: Iterable[ApiKey]) -> Callable[[Broker, RequestContext, ApiVersionsRequest], None]:
    """Return the handler, which lists the APIs of ``served`` with their versions, by key."""
    keys = tuple(served)

    @cache
    def table(beside_0_10: bool) -> ApiVersionsResponse:
        newest = newest_versions(beside_0_10)
        return table_of(replace(APIS[key], max_version=newest[key]) for key in keys if key in newest)

    def handle(broker: Broker, context: RequestContext, request: ApiVersionsRequest) -> None:
        context.reply(table(broker.config.beside_0_10))

    return handle
