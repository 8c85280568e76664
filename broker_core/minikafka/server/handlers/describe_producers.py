"""DescribeProducers: the idempotent and transactional producers that a log knows.

Every replica serves it: NOT_LEADER_FOR_PARTITION if this broker has none, UNKNOWN_TOPIC_OR_PARTITION if there
is no such partition.
"""

from __future__ import annotations

from minikafka.base.errors import BrokerError, ErrorCode
from minikafka.base.ids import TopicPartition, check_topic_name
from minikafka.server.admin.topics import error_message_of
from minikafka.server.context import RequestContext
from minikafka.server.core.broker import Broker
from minikafka.server.workers.work_pool import Steps
from minikafka.wire.apis.describe_producers import (
    ActiveProducer,
    DescribeProducersPartition,
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeProducersTopicResult,
)

_PRODUCER_BYTES = 300
"""Estimated memory of a producer until it is encoded."""


def handle(broker: Broker, context: RequestContext, request: DescribeProducersRequest) -> Steps:
    """Serve one DescribeProducers request."""
    topics, producers = [], 0
    seen: set[TopicPartition] = set()
    for topic in request.topics:
        rows = []
        for index in topic.partition_indexes:
            row = _described(broker, TopicPartition(topic.name, index), seen)
            producers += len(row.active_producers)
            rows.append(row)
            yield producers * _PRODUCER_BYTES
        topics.append(DescribeProducersTopicResult(topic.name, tuple(rows)))
    context.reply(DescribeProducersResponse(0, tuple(topics)))


def _described(
    broker: Broker, topic_partition: TopicPartition, seen: set[TopicPartition]
) -> DescribeProducersPartition:
    topic, index = topic_partition
    try:
        check_topic_name(topic)
        if topic_partition in seen:
            # A short request could ask for all producers of a log many times.
            raise BrokerError(ErrorCode.INVALID_REQUEST, f"{topic_partition} is named more than once")
        seen.add(topic_partition)
        log = broker.partition(topic_partition).log
    except BrokerError as error:
        return DescribeProducersPartition(index, error.code, error_message_of(error), ())
    return DescribeProducersPartition(
        index,
        ErrorCode.NONE,
        None,
        tuple(
            ActiveProducer(
                producer_id,
                state.epoch,
                state.last_sequence,
                state.last_timestamp_ms,
                state.coordinator_epoch,
                state.current_txn_first_offset,
            )
            for producer_id, state in log.producers.entries().items()
        ),
    )
