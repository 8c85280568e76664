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

from minikafka.base.errors import BrokerError, ErrorCode
from minikafka.server.admin.dynamic_config import change_resource, replace_all
from minikafka.server.admin.topics import error_message_of
from minikafka.server.context import RequestContext
from minikafka.server.core.broker import Broker
from minikafka.server.core.deferred_response import answer_by_jobs
from minikafka.wire.apis.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)

ROW_BYTES = 300
"""Estimated memory of a row until it is encoded, without an error message."""


def handle(broker: Broker, context: RequestContext, request: AlterConfigsRequest) -> None:
    """Serve one AlterConfigs request."""
    validate_only = request.validate_only

    def step(resource: AlterConfigsResource) -> Callable[[], None]:
        kind, name, change = resource.resource_type, resource.resource_name, replace_all(resource.configs)
        return lambda: change_resource(broker, kind, name, change, validate_only=validate_only)

    alter(
        broker,
        context,
        [(resource.resource_type, resource.resource_name, step(resource)) for resource in request.resources],
    )


def alter(
    broker: Broker, context: RequestContext, wanted: Sequence[tuple[int, str, Callable[[], None]]]
) -> None:
    """Change the configs of resources, each given as type, name and a function that does it, and reply."""
    named = Counter((kind, name) for kind, name, _ in wanted)

    outcomes: list[AlterConfigsResourceResponse] = []

    def outcome(kind: int, name: str, change: Callable[[], None]) -> AlterConfigsResourceResponse:
        try:
            if named[kind, name] > 1:
                raise BrokerError(
                    ErrorCode.INVALID_REQUEST, f"resource {name} appears {named[kind, name]} times"
                )
            change()
        except BrokerError as error:
            return AlterConfigsResourceResponse(error.code, error_message_of(error), kind, name)
        return AlterConfigsResourceResponse(ErrorCode.NONE, None, kind, name)

    def refusal(error: BrokerError) -> AlterConfigsResponse:
        return AlterConfigsResponse(
            0,
            tuple(
                AlterConfigsResourceResponse(error.code, error_message_of(error), kind, name)
                for kind, name, _ in wanted
            ),
        )

    answer_by_jobs(
        broker,
        context,
        wanted,
        lambda item: outcomes.append(outcome(*item)),
        lambda: AlterConfigsResponse(0, tuple(outcomes)),
        refusal,
        len(wanted) * ROW_BYTES,
    )
