"""CreateTopics: ask the controller for new topics, and wait until they can be used.

Behaviour: only the controller serves it (NOT_CONTROLLER). Each topic succeeds or fails for itself. The answer
waits until every partition has a leader, or ``timeout_ms``: then REQUEST_TIMED_OUT, and the topic may still
come. A time-out of 0 or less does not wait.
"""

from __future__ import annotations

from collections import Counter

from minikafka.base.errors import BrokerError, ErrorCode
from minikafka.base.ids import TopicPartition
from minikafka.server.broker import Broker
from minikafka.server.context import RequestContext
from minikafka.server.topics import CreationRequest, TopicTicket, check_creation, submit_creation
from minikafka.wire.apis.create_topics import (
    CreatableTopic,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)


def handle(broker: Broker, context: RequestContext, request: CreateTopicsRequest) -> None:
    """Serve one request, when its topics can be used."""
    named = Counter(topic.name for topic in request.topics)
    partitions: dict[str, int] = {}
    ticket = TopicTicket(
        list(named),
        is_done=lambda name: _usable(broker, name, partitions.get(name, 1)),
        context=context,
        reply=lambda codes: context.reply(
            CreateTopicsResponse(
                topics=tuple(CreatableTopicResult(name=name, error_code=code) for name, code in codes.items())
            )
        ),
    )
    creations: list[CreationRequest] = []
    for topic in request.topics:
        try:
            if named[topic.name] > 1:
                raise BrokerError(ErrorCode.INVALID_REQUEST, f"topic {topic.name} is named twice")
            if not broker.controller.active:
                raise BrokerError(
                    ErrorCode.NOT_CONTROLLER, f"broker {broker.broker_id} is not the controller"
                )
            wish = check_creation(broker, *_wanted(broker, topic))
            partitions[topic.name] = len(wish.assignment)
            creations.append(wish)
        except BrokerError as error:
            ticket.fail(topic.name, error)

    def submit() -> None:
        for wish in creations:
            submit_creation(broker, wish, ticket)

    ticket.start(broker, request.timeout_ms, submit)


def _usable(broker: Broker, name: str, partitions: int) -> bool:
    known = broker.image.topics.get(name, {})
    # The leaders are all here as long as one broker makes the cluster.
    return len(known) >= partitions and all(
        TopicPartition(name, index) in broker.partitions for index in known
    )


def _wanted(
    broker: Broker, topic: CreatableTopic
) -> tuple[str, int, int, dict[int, tuple[int, ...]] | None, dict[str, str | None]]:
    assignment = {part.partition_index: tuple(part.broker_ids) for part in topic.assignments} or None
    if assignment is not None and (topic.num_partitions != -1 or topic.replication_factor != -1):
        raise BrokerError(
            ErrorCode.INVALID_REQUEST,
            "give partitions and replication factor, or an assignment, but not both",
        )
    configs = {entry.name: entry.value for entry in topic.configs}
    return topic.name, topic.num_partitions, topic.replication_factor, assignment, configs
