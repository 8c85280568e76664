"""AlterConfigs: replace all configs of topics, or of this broker.

Any broker serves it. The configs are written to ZooKeeper with a change notification for all brokers, and
apply on this broker when it replies. Each resource succeeds or fails on its own; an unknown config or an
invalid value gets INVALID_CONFIG with the allowed values. A broker resource must be the broker that is asked,
or '' for all brokers. A property that a running broker does not change (``server.config.dynamic_properties``)
gets INVALID_REQUEST. While ZooKeeper is unavailable the response is REQUEST_TIMED_OUT, and the change may
still be made.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TypeVar

from minikafka.base.errors import BrokerError, ErrorCode
from minikafka.server.admin.dynamic_config import change_resource, replace_all
from minikafka.server.admin.topics import error_code_of, error_message_of
from minikafka.server.context import RequestContext
from minikafka.server.core.broker import Broker
from minikafka.server.core.deferred_response import answer_by_jobs
from minikafka.wire.apis.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)
from minikafka.wire.apis.incremental_alter_configs import IncrementalAlterConfigsResource

Resource = TypeVar("Resource", AlterConfigsResource, IncrementalAlterConfigsResource)

ROW_BYTES = 300
"""Estimated memory of a row until it is encoded, without an error message."""


def handle(broker: Broker, context: RequestContext, request: AlterConfigsRequest) -> None:
    """Serve one AlterConfigs request."""

    def change(resource: AlterConfigsResource) -> None:
        kind, name, configs = resource.resource_type, resource.resource_name, resource.configs
        change_resource(broker, kind, name, replace_all(configs), validate_only=request.validate_only)

    alter(broker, context, request.resources, change)


def alter(
    broker: Broker, context: RequestContext, resources: Sequence[Resource], change: Callable[[Resource], None]
) -> None:
    """Call ``change``, which may raise BrokerError, for each resource of a request, and reply."""
    named = Counter((resource.resource_type, resource.resource_name) for resource in resources)
    outcomes: list[AlterConfigsResourceResponse] = []

    def outcome(resource: Resource, error: BrokerError | None = None) -> AlterConfigsResourceResponse:
        return AlterConfigsResourceResponse(
            error_code_of(error), error_message_of(error), resource.resource_type, resource.resource_name
        )

    def work(resource: Resource) -> None:
        kind, name = resource.resource_type, resource.resource_name
        try:
            if named[kind, name] > 1:
                raise BrokerError(
                    ErrorCode.INVALID_REQUEST, f"resource {name} appears {named[kind, name]} times"
                )
            change(resource)
        except BrokerError as error:
            outcomes.append(outcome(resource, error))
        else:
            outcomes.append(outcome(resource))

    def refusal(error: BrokerError) -> AlterConfigsResponse:
        return AlterConfigsResponse(0, tuple(outcome(resource, error) for resource in resources))

    answer_by_jobs(
        broker,
        context,
        resources,
        work,
        lambda: AlterConfigsResponse(0, tuple(outcomes)),
        refusal,
        len(resources) * ROW_BYTES,
    )
