"""ApiVersions: the API versions that this broker serves; next to a 0.10.1 broker only the versions of 0.10.1.

From version 3 on a request has the name and version of the client's software, which are logged once for each
pair. As in Kafka, a name that is not valid gets INVALID_REQUEST and no table. The response has no features: a
cluster has some from ``inter.broker.protocol.version`` 2.7 on, which is not supported here.

librdkafka before 2.16 takes all keys and values of formats 0 and 1 for null in Fetch 12 and newer, and such
messages are stored as they were sent here: it is offered Fetch up to 11.

An unsupported version of the request itself is answered in ``minikafka.server.context``.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cache

from minikafka.base.errors import ErrorCode
from minikafka.base.text import shorten
from minikafka.server.context import RequestContext
from minikafka.server.core.broker import Broker
from minikafka.server.served_versions import newest_versions
from minikafka.wire.api import ApiKey
from minikafka.wire.api_table import APIS
from minikafka.wire.apis.api_versions import (
    SOFTWARE_SINCE,
    ApiVersionsRequest,
    ApiVersionsResponse,
    is_valid,
    table_of,
)

_log = logging.getLogger(__name__)

MOST_LOGGED = 1_000
"""Names and versions of software that are logged, as clients may send any."""

FETCH_OF_MISREADERS = 11
_LIBRDKAFKA = re.compile(r"rdkafka-v?([0-9]{1,4})\.([0-9]{1,4})")
"""librdkafka in a name and version of software; clients that are built on it add it to their own version."""


def misreads_old_formats(name: str, version: str) -> bool:
    """Return True for librdkafka before 2.16, and for clients that say that they are built on it."""
    found = _LIBRDKAFKA.search(f"{name}-{version}")
    return found is not None and (int(found[1]), int(found[2])) < (2, 16)


def listing(served: Iterable[ApiKey]) -> Callable[[Broker, RequestContext, ApiVersionsRequest], None]:
    """Return the handler, which lists the APIs of ``served`` with their versions, by key."""
    keys = tuple(served)

    @cache
    def table(beside_0_10: bool, misreads: bool) -> ApiVersionsResponse:
        newest = dict(newest_versions(beside_0_10))
        if misreads:
            newest[ApiKey.FETCH] = min(newest[ApiKey.FETCH], FETCH_OF_MISREADERS)
        return table_of(replace(APIS[key], max_version=newest[key]) for key in keys if key in newest)

    def handle(broker: Broker, context: RequestContext, request: ApiVersionsRequest) -> None:
        if not is_valid(request, context.version):
            context.reply(ApiVersionsResponse(ErrorCode.INVALID_REQUEST, ()))
            return
        misreads = False
        if context.version >= SOFTWARE_SINCE:
            _log_software(broker, context, request)
            misreads = misreads_old_formats(request.client_software_name, request.client_software_version)
        context.reply(table(broker.config.beside_0_10, misreads))

    return handle


def _log_software(broker: Broker, context: RequestContext, request: ApiVersionsRequest) -> None:
    software = shorten(request.client_software_name), shorten(request.client_software_version)
    if software in broker.logged_software or len(broker.logged_software) >= MOST_LOGGED:
        return
    broker.logged_software.add(software)
    _log.info(
        "first client with this software: name=%s version=%s client_id=%s host=%s listener=%s",
        *software,
        shorten(context.header.client_id or ""),
        context.exchange.client_host,
        context.listener,
    )
