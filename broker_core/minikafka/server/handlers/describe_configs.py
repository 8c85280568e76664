"""DescribeConfigs: settings of topics and of this broker, with where they come from.

Behaviour: those of topics are read from ZooKeeper; while that is away, the answer is REQUEST_TIMED_OUT. Those
of another broker are refused, as Kafka does it: ask that one. The empty name stands for what is changed on
all brokers while they run, which nothing is. What nobody knows under a name is left out.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from minikafka.base.errors import BrokerError, ErrorCode
from minikafka.server.broker import Broker
from minikafka.server.context import RequestContext
from minikafka.server.later import answer_by_job
from minikafka.server.settings import (
    check_broker,
    check_topic,
    describe_broker,
    describe_topic,
    refresh_topic,
)
from minikafka.server.topics import error_message_of
from minikafka.wire.apis.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    ResourceType,
)


def handle(broker: Broker, context: RequestContext, request: DescribeConfigsRequest) -> None:
    """Serve one request. What is named twice is answered once."""
    resources = {(one.resource_type, one.resource_name): one for one in request.resources}.values()

    def work() -> DescribeConfigsResponse:
        return DescribeConfigsResponse(
            0, tuple(_result(broker, one, request.include_synonyms) for one in resources)
        )

    def refusal(error: BrokerError) -> DescribeConfigsResponse:
        return DescribeConfigsResponse(0, tuple(_failure(one, error) for one in resources))

    if any(one.resource_type == ResourceType.TOPIC for one in resources):
        answer_by_job(broker, context, work, refusal)
    else:
        context.reply(work())


def _result(broker: Broker, resource: DescribeConfigsResource, synonyms: bool) -> DescribeConfigsResult:
    try:
        rows = _rows(broker, resource.resource_type, resource.resource_name)
    except BrokerError as error:
        return _failure(resource, error)
    keys = resource.configuration_keys
    return DescribeConfigsResult(
        error_code=ErrorCode.NONE,
        error_message=None,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=tuple(
            row if synonyms else replace(row, synonyms=()) for row in rows if keys is None or row.name in keys
        ),
    )


def _rows(broker: Broker, kind: int, name: str) -> Iterable[DescribeConfigsResourceResult]:
    config = broker.config
    if kind == ResourceType.TOPIC:
        check_topic(broker, name)
        return describe_topic(config.log, config.properties, refresh_topic(broker, name))
    if kind != ResourceType.BROKER:
        raise BrokerError(ErrorCode.INVALID_REQUEST, f"resources of type {kind} have no settings here")
    if not name:
        return ()
    check_broker(broker, name)
    return describe_broker(config.properties, broker.throttles.settings)


def _failure(resource: DescribeConfigsResource, error: BrokerError) -> DescribeConfigsResult:
    return DescribeConfigsResult(
        error.code, error_message_of(error), resource.resource_type, resource.resource_name, ()
    )
