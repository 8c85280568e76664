"""DescribeConfigs: settings of topics and of this broker, with where they come from.

Behaviour: those of topics are read from ZooKeeper; while that is away, the answer is REQUEST_TIMED_OUT. Those
of another broker are refused, as Kafka does it: ask that one. The empty name stands for what is changed on
all brokers while they run, which nothing is. What nobody knows under a name is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from minikafka.base.errors import BrokerError, ErrorCode
from minikafka.server.admin.dynamic_config import (
    Settings,
    check_broker,
    check_topic,
    describe_broker,
    describe_topic,
    refresh_topics,
)
from minikafka.server.admin.topics import error_message_of
from minikafka.server.context import RequestContext
from minikafka.server.core.broker import Broker
from minikafka.server.core.deferred_response import answer_by_jobs, portions
from minikafka.wire.apis.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    ResourceType,
)

AT_ONCE = 20
"""Topics whose settings are read together."""
TOPIC_BYTES = 4_000
"""What a topic's settings take in an answer, encoded."""


def handle(broker: Broker, context: RequestContext, request: DescribeConfigsRequest) -> None:
    """Serve one request. What is named twice is answered once."""
    resources = {(one.resource_type, one.resource_name): one for one in request.resources}.values()
    topics = [
        one.resource_name
        for one in resources
        if one.resource_type == ResourceType.TOPIC and one.resource_name in broker.image.topics
    ]
    described = _Described(broker, request.include_synonyms)

    def refusal(error: BrokerError) -> DescribeConfigsResponse:
        return DescribeConfigsResponse(0, tuple(_failure(one, error) for one in resources))

    def response() -> DescribeConfigsResponse:
        return DescribeConfigsResponse(0, tuple(described.result(one) for one in resources))

    if topics:
        answer_by_jobs(
            broker,
            context,
            portions(topics, AT_ONCE),
            described.read,
            response,
            refusal,
            len(topics) * TOPIC_BYTES,
        )
    else:
        context.reply(response())


class _Described:
    """The settings of topics as they were read, and the rows of answers."""

    def __init__(self, broker: Broker, synonyms: bool) -> None:
        self._broker = broker
        self._synonyms = synonyms
        self._settings: dict[str, Settings] = {}
        self._rows: dict[frozenset[tuple[str, str]], tuple[DescribeConfigsResourceResult, ...]] = {}
        """What was described before: most topics have the same settings."""

    def read(self, topics: Sequence[str]) -> None:
        """A job: see what ZooKeeper has."""
        self._settings |= refresh_topics(self._broker, topics)

    def result(self, resource: DescribeConfigsResource) -> DescribeConfigsResult:
        """What is told of one resource."""
        try:
            rows = self._rows_of(resource.resource_type, resource.resource_name)
        except BrokerError as error:
            return _failure(resource, error)
        keys = resource.configuration_keys
        if keys is not None:
            wanted = frozenset(keys)
            rows = tuple(row for row in rows if row.name in wanted)
        return DescribeConfigsResult(
            error_code=ErrorCode.NONE,
            error_message=None,
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
            configs=rows,
        )

    def _rows_of(self, kind: int, name: str) -> tuple[DescribeConfigsResourceResult, ...]:
        config = self._broker.config
        if kind == ResourceType.TOPIC:
            check_topic(self._broker, name)
            own = self._settings.get(name)
            if own is None:  # it was made while the request was served
                raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name}")
            settings = frozenset(own.items())
            if settings not in self._rows:
                self._rows[settings] = self._told(describe_topic(config.log, config.properties, own))
            return self._rows[settings]
        if kind != ResourceType.BROKER:
            raise BrokerError(ErrorCode.INVALID_REQUEST, f"resources of type {kind} have no settings here")
        if not name:
            return ()
        check_broker(self._broker, name)
        return self._told(describe_broker(config.properties, self._broker.throttles.settings))

    def _told(
        self, rows: Iterable[DescribeConfigsResourceResult]
    ) -> tuple[DescribeConfigsResourceResult, ...]:
        return tuple(row if self._synonyms else replace(row, synonyms=()) for row in rows)


def _failure(resource: DescribeConfigsResource, error: BrokerError) -> DescribeConfigsResult:
    return DescribeConfigsResult(
        error.code, error_message_of(error), resource.resource_type, resource.resource_name, ()
    )
