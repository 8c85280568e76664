"""CreateTopics: ask the controller to create topics, and wait until they can be used.

Only the controller serves it (NOT_CONTROLLER). Each topic succeeds or fails on its own. The response waits
until every partition has a leader, or for ``timeout_ms``: then the topic gets REQUEST_TIMED_OUT, and may
still be created. A time-out of 0 or less does not wait. ``validate_only`` runs all checks and nothing else.
-1 partitions or replicas, without an assignment, stand for the broker's default, in all versions as in Kafka
(KafkaJS uses it in version 3). All topics of a request together have at most ``MAX_NEW_PARTITIONS``
partitions; topics beyond that get POLICY_VIOLATION, as in later releases of Kafka.
"""

from __future__ import annotations

from collections import Counter

from minikafka.base.errors import BrokerError, ErrorCode
from minikafka.base.ids import unify_collision_chars
from minikafka.server.admin.topics import (
    BROKER_DEFAULT,
    DelayedTopicOperation,
    NewPartitionsLimit,
    assignment_cost_bytes,
    check_controller,
    is_ready,
    plan_creation,
    results_of,
    submit_creations,
)
from minikafka.server.context import RequestContext
from minikafka.server.core.broker import Broker
from minikafka.server.core.topic_creations import CreationRequest
from minikafka.server.workers.work_pool import Steps
from minikafka.wire.apis.create_topics import (
    CreatableTopic,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)


def handle(broker: Broker, context: RequestContext, request: CreateTopicsRequest) -> Steps:
    """Serve one CreateTopics request; reply when the topics can be used."""
    named = Counter(topic.name for topic in request.topics)
    partitions: dict[str, int] = {}
    operation = DelayedTopicOperation(
        broker,
        context,
        list(named),
        is_done=lambda name: is_ready(broker, name, partitions.get(name, 1)),
        reply=lambda outcomes: context.reply(
            CreateTopicsResponse(0, results_of(outcomes, CreatableTopicResult))
        ),
    )
    creations: list[CreationRequest] = []
    named_alike: dict[str, str] = {}
    room = NewPartitionsLimit()
    for topic in request.topics:
        yield assignment_cost_bytes(_count(broker, topic))
        try:
            if named[topic.name] > 1:
                raise BrokerError(ErrorCode.INVALID_REQUEST, f"topic {topic.name} appears twice")
            check_controller(broker)
            other = named_alike.get(unify_collision_chars(topic.name))
            if other is not None:
                raise BrokerError(
                    ErrorCode.INVALID_TOPIC, f"topic {topic.name} collides with {other} of the same request"
                )
            creation = plan_creation(broker, *_wanted(topic), room=room)
            if not request.validate_only:
                context.record_mutations(len(creation.assignment))
            named_alike[unify_collision_chars(creation.name)] = creation.name
            partitions[topic.name] = len(creation.assignment)
            creations.append(creation)
            if request.validate_only:
                operation.succeed(topic.name)
        except BrokerError as error:
            operation.fail(topic.name, error)

    def submit() -> None:
        if not request.validate_only:
            submit_creations(broker, creations, operation, request.timeout_ms)

    operation.start(request.timeout_ms, submit)


def _count(broker: Broker, topic: CreatableTopic) -> int:
    """Return the number of partitions that the topic would have."""
    if topic.num_partitions == BROKER_DEFAULT and not topic.assignments:
        return broker.config.default_partitions
    return max(topic.num_partitions, len(topic.assignments))


def _wanted(
    topic: CreatableTopic,
) -> tuple[str, int, int, dict[int, tuple[int, ...]] | None, dict[str, str | None]]:
    assignment = {part.partition_index: tuple(part.broker_ids) for part in topic.assignments} or None
    numbers = topic.num_partitions, topic.replication_factor
    if assignment is not None and numbers != (BROKER_DEFAULT, BROKER_DEFAULT):
        raise BrokerError(
            ErrorCode.INVALID_REQUEST,
            "specify either partitions and replication factor, or an assignment, not both",
        )
    configs = {entry.name: entry.value for entry in topic.configs}
    return topic.name, topic.num_partitions, topic.replication_factor, assignment, configs
