"""DescribeConfigs: the configs of topics and of this broker, with their sources, and levels of its loggers.

Configs of topics are read from ZooKeeper; while it is unavailable the response is REQUEST_TIMED_OUT. Configs
of another broker are rejected, as in Kafka: that broker must be asked. The empty name stands for all brokers:
the properties that were changed for them while they ran. Unknown config names are left out. Version 3 adds
the type of each config and, if requested, its documentation.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from minikafka.base.errors import BrokerError, ErrorCode
from minikafka.server.admin.broker_loggers import BrokerLoggers
from minikafka.server.admin.dynamic_config import (
    Settings,
    check_broker,
    check_topic,
    describe_broker,
    describe_cluster_defaults,
    describe_topic,
    refresh_topics,
)
from minikafka.server.admin.topics import error_message_of
from minikafka.server.context import RequestContext
from minikafka.server.core.broker import Broker
from minikafka.server.core.deferred_response import answer_by_jobs, portions
from minikafka.wire.apis.describe_configs import (
    ConfigResourceType,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)

TOPICS_PER_JOB = 20
"""The number of topics whose configs are read in one job."""
TOPIC_BYTES = 4_000
"""Estimated encoded size of a topic's configs."""


def handle(broker: Broker, context: RequestContext, request: DescribeConfigsRequest) -> None:
    """Serve one DescribeConfigs request. A repeated resource is answered once."""
    resources = {
        (resource.resource_type, resource.resource_name): resource for resource in request.resources
    }.values()
    topics = [
        resource.resource_name
        for resource in resources
        if resource.resource_type == ConfigResourceType.TOPIC
        and resource.resource_name in broker.metadata_cache.topics
    ]
    described = _Described(broker, request)

    def refusal(error: BrokerError) -> DescribeConfigsResponse:
        return DescribeConfigsResponse(0, tuple(_failure(resource, error) for resource in resources))

    def response() -> DescribeConfigsResponse:
        return DescribeConfigsResponse(0, tuple(described.result(resource) for resource in resources))

    if topics:
        answer_by_jobs(
            broker,
            context,
            portions(topics, TOPICS_PER_JOB),
            described.read,
            response,
            refusal,
            len(topics) * TOPIC_BYTES,
        )
    else:
        context.reply(response())


class _Described:
    """The configs of topics that were read, and their rows in the response."""

    def __init__(self, broker: Broker, request: DescribeConfigsRequest) -> None:
        self._broker = broker
        self._left_out: dict[str, Any] = {}
        """Fields of the rows that the request does not ask for, and what they are then."""
        if not request.include_synonyms:
            self._left_out["synonyms"] = ()
        if not request.include_documentation:
            self._left_out["documentation"] = None
        self._settings: dict[str, Settings] = {}
        self._rows: dict[frozenset[tuple[str, str]], tuple[DescribeConfigsResourceResult, ...]] = {}
        """Cached rows: most topics have the same configs."""

    def read(self, topics: Sequence[str]) -> None:
        """Read the configs of topics from ZooKeeper. A job."""
        self._settings |= refresh_topics(self._broker, topics)

    def result(self, resource: DescribeConfigsResource) -> DescribeConfigsResult:
        """Return the result for one resource."""
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
        dynamic = self._broker.dynamic_properties
        if kind == ConfigResourceType.TOPIC:
            check_topic(self._broker, name)
            own = self._settings.get(name)
            if own is None:  # created while the request was served
                raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name}")
            settings = frozenset(own.items())
            if settings not in self._rows:
                self._rows[settings] = self._as_requested(
                    describe_topic(self._broker.logs.defaults, dynamic, own)
                )
            return self._rows[settings]
        if kind == ConfigResourceType.BROKER_LOGGER:
            check_broker(self._broker, name)
            return self._as_requested(BrokerLoggers().describe())
        if kind != ConfigResourceType.BROKER:
            raise BrokerError(
                ErrorCode.INVALID_REQUEST,
                f"unsupported resource type {kind}: expected TOPIC, BROKER or BROKER_LOGGER",
            )
        if not name:
            return self._as_requested(describe_cluster_defaults(dynamic))
        check_broker(self._broker, name)
        return self._as_requested(describe_broker(dynamic, self._broker.replication_quotas.settings))

    def _as_requested(
        self, rows: Iterable[DescribeConfigsResourceResult]
    ) -> tuple[DescribeConfigsResourceResult, ...]:
        return tuple(replace(row, **self._left_out) for row in rows)


def _failure(resource: DescribeConfigsResource, error: BrokerError) -> DescribeConfigsResult:
    return DescribeConfigsResult(
        error.code, error_message_of(error), resource.resource_type, resource.resource_name, ()
    )
