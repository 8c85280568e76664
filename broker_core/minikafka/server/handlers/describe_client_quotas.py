"""DescribeClientQuotas: the quotas of users, client ids and addresses that match a filter.

Any broker serves it, from ZooKeeper.
"""

from __future__ import annotations

from minikafka.base.errors import ErrorCode
from minikafka.server.admin.entity_quotas import QuotaFilter, find_address_quotas, find_quotas
from minikafka.server.context import RequestContext
from minikafka.server.core.broker import Broker
from minikafka.server.core.deferred_response import answer_by_jobs
from minikafka.wire.apis.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    QuotaEntry,
)


def handle(broker: Broker, context: RequestContext, request: DescribeClientQuotasRequest) -> None:
    """Serve one DescribeClientQuotas request."""
    found: list[QuotaEntry] = []

    def work(wanted: DescribeClientQuotasRequest) -> None:
        matching = QuotaFilter(wanted)
        settings = broker.zk_client.settings
        found[:] = find_quotas(settings.of_clients_and_users(), matching)
        found.extend(find_address_quotas(settings.of_addresses(), matching))

    answer_by_jobs(
        broker,
        context,
        [request],
        work,
        lambda: DescribeClientQuotasResponse(0, ErrorCode.NONE, None, tuple(found)),
        lambda error: DescribeClientQuotasResponse(0, error.code, error.detail, None),
    )
