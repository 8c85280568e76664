"""AlterClientQuotas: set and remove quotas of users, client ids and addresses.

Any broker serves it. Each entity succeeds or fails on its own; all changes of one are made together. They are
written to ZooKeeper with a notification for all brokers, and apply on this broker when it replies.
"""

from __future__ import annotations

from collections.abc import Mapping

from minikafka.base.errors import BrokerError
from minikafka.server.admin.entity_quotas import alter_quotas
from minikafka.server.admin.topics import error_code_of, error_message_of
from minikafka.server.context import RequestContext
from minikafka.server.core.broker import Broker
from minikafka.server.core.deferred_response import answer_each
from minikafka.wire.apis.alter_client_quotas import (
    AlterClientQuotasEntry,
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlterClientQuotasResult,
)


def handle(broker: Broker, context: RequestContext, request: AlterClientQuotasRequest) -> None:
    """Serve one AlterClientQuotas request."""
    entries = list(dict.fromkeys(request.entries))

    def work(entry: AlterClientQuotasEntry) -> None:
        alter_quotas(broker, entry.entity, entry.ops, validate_only=request.validate_only)

    def response(failed: Mapping[AlterClientQuotasEntry, BrokerError]) -> AlterClientQuotasResponse:
        rows = ((entry.entity, failed.get(entry)) for entry in entries)
        return AlterClientQuotasResponse(
            0,
            tuple(
                AlterClientQuotasResult(error_code_of(error), error_message_of(error), entity)
                for entity, error in rows
            ),
        )

    answer_each(broker, context, entries, work, response)
