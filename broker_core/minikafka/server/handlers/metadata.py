"""Metadata: brokers, topics and leaders.

Versions: 0 has no controller, rack or internal flag, and takes an empty list for all topics; 1 adds them, and
null means all topics, an empty list none; 2 adds the cluster id. Behaviour: asking for a topic that does not
exist creates it where ``auto.create.topics.enable`` says so; the client is told LEADER_NOT_AVAILABLE and asks
again.
"""

from __future__ import annotations

from collections.abc import Mapping

from minikafka.base.errors import BrokerError, ErrorCode
from minikafka.base.ids import INTERNAL_TOPICS, TopicPartition, check_topic_name
from minikafka.controller.election import NO_LEADER
from minikafka.partition.leadership import Leadership
from minikafka.server.broker import Broker
from minikafka.server.context import RequestContext
from minikafka.server.image import ClusterImage
from minikafka.server.topics import start_creation
from minikafka.wire.apis.metadata import (
    MetadataBroker,
    MetadataPartition,
    MetadataRequest,
    MetadataResponse,
    MetadataTopic,
)

START_PATIENCE_MS = 5_000


class _StartTicket:
    """A request that came before this broker knows its cluster."""

    def __init__(self, broker: Broker, context: RequestContext, request: MetadataRequest) -> None:
        self._broker = broker
        self._context = context
        self._request = request

    def satisfied(self) -> bool:
        return bool(self._broker.image.brokers)

    def complete(self) -> None:
        _answer(self._broker, self._context, self._request)

    def abandon(self, reason: str) -> None:
        self._context.exchange.close(reason)


def handle(broker: Broker, context: RequestContext, request: MetadataRequest) -> None:
    """Serve one request from the image; just after the start, wait until there is one."""
    if broker.image.brokers:
        _answer(broker, context, request)
        return
    ticket = _StartTicket(broker, context, request)

    def step() -> None:
        if ticket.satisfied():
            broker.answer(ticket)
        else:
            broker.wait(ticket, ["image"], broker.clock.monotonic_ms() + START_PATIENCE_MS)

    broker.run(step)


def _answer(broker: Broker, context: RequestContext, request: MetadataRequest) -> None:
    image = broker.image
    names = request.topics
    if names is None:
        names = tuple(sorted(image.topics))
    context.reply(
        MetadataResponse(
            brokers=tuple(
                MetadataBroker(
                    node_id=address.broker_id, host=address.host, port=address.port, rack=address.rack
                )
                for address in (
                    broker.address_for(context.listener, known) for known in image.brokers.values()
                )
            ),
            cluster_id=image.cluster_id,
            controller_id=image.controller_id,
            topics=tuple(_topic(broker, image, name) for name in names),
        )
    )


def _topic(broker: Broker, image: ClusterImage, name: str) -> MetadataTopic:
    partitions = image.topics.get(name)
    if partitions is not None:
        return _described(broker, name, partitions, image)
    return MetadataTopic(
        error_code=_absent(broker, name), name=name, is_internal=name in INTERNAL_TOPICS, partitions=()
    )


def _described(
    broker: Broker, name: str, partitions: Mapping[int, Leadership], image: ClusterImage
) -> MetadataTopic:
    described = []
    for index, leadership in partitions.items():
        alive = leadership.leader in image.brokers
        if leadership.leader == broker.broker_id:
            alive = TopicPartition(name, index) in broker.partitions  # else its log could not be opened (yet)
        described.append(
            MetadataPartition(
                error_code=ErrorCode.NONE if alive else ErrorCode.LEADER_NOT_AVAILABLE,
                index=index,
                leader_id=leadership.leader if alive else NO_LEADER,
                replica_nodes=leadership.replicas,
                isr_nodes=leadership.isr,
            )
        )
    return MetadataTopic(
        error_code=ErrorCode.NONE, name=name, is_internal=name in INTERNAL_TOPICS, partitions=tuple(described)
    )


def _absent(broker: Broker, name: str) -> ErrorCode:
    try:
        check_topic_name(name)
        if not broker.image.brokers:
            return ErrorCode.LEADER_NOT_AVAILABLE  # nothing is known yet, not even which topics there are
        if name in broker.image.unreadable:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION  # waiting does not help
        if not broker.config.auto_create_topics or name in INTERNAL_TOPICS:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        start_creation(broker, name)
    except BrokerError as error:
        return error.code
    return ErrorCode.LEADER_NOT_AVAILABLE
