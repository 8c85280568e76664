"""CreateTopics: ask the controller to create topics, and wait until they can be used.

Only the controller serves it (NOT_CONTROLLER). Each topic succeeds or fails on its own. The response waits
until every partition has a leader, or for ``timeout_ms``: then the topic gets REQUEST_TIMED_OUT, and may
still be created. A time-out of 0 or less does not wait. ``validate_only`` runs all checks and nothing else.
-1 partitions or replicas, without an assignment, stand for the broker's default, in all versions as in Kafka
(KafkaJS uses it in version 3). From version 5 on the response has a new topic's partitions, replicas and
configs, and from 7 on its id; a topic that is only validated has none. All topics of a request together have
at most ``MAX_NEW_PARTITIONS`` partitions; topics beyond that get POLICY_VIOLATION, as in later releases of
Kafka.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from minikafka.base.errors import BrokerError, ErrorCode
from minikafka.base.ids import unify_collision_chars
from minikafka.base.values import fast_value
from minikafka.server.admin.dynamic_config import describe_topic
from minikafka.server.admin.topics import (
    BROKER_DEFAULT,
    DelayedTopicOperation,
    NewPartitionsLimit,
    Outcomes,
    assignment_cost_bytes,
    check_controller,
    error_code_of,
    error_message_of,
    is_ready,
    plan_creation,
    submit_creations,
)
from minikafka.server.context import RequestContext
from minikafka.server.core.broker import Broker
from minikafka.server.core.topic_creations import CreationRequest
from minikafka.server.workers.work_pool import Steps, begin_here
from minikafka.wire.apis.create_topics import (
    CONFIGS_SINCE,
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from minikafka.wire.fields import ZERO_UUID

TOPICS_PER_STEP = 20
"""New topics described in one step."""
TOPIC_BYTES = 4_000
"""Estimated encoded size of a topic's configs."""


@fast_value
class _Planned:
    """A new topic as in the response: the numbers of its partitions and replicas, and its own configs."""

    partitions: int
    replicas: int
    config: Mapping[str, str]

    @classmethod
    def of(cls, creation: CreationRequest) -> _Planned:
        assignment = creation.assignment
        return cls(len(assignment), len(next(iter(assignment.values()))), creation.config)


def handle(broker: Broker, context: RequestContext, request: CreateTopicsRequest) -> Steps:
    """Serve one CreateTopics request; reply when the topics can be used."""
    named = Counter(topic.name for topic in request.topics)
    planned: dict[str, _Planned] = {}
    operation = DelayedTopicOperation(
        broker,
        context,
        list(named),
        is_done=lambda name: is_ready(broker, name, planned[name].partitions),
        reply=lambda outcomes: begin_here(
            broker.pool, context.exchange, broker.clock, _reply(broker, context, planned, outcomes)
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
            planned[topic.name] = _Planned.of(creation)
            creations.append(creation)
            if request.validate_only:
                operation.succeed(topic.name)
        except BrokerError as error:
            operation.fail(topic.name, error)

    def submit() -> None:
        if not request.validate_only:
            submit_creations(broker, creations, operation, request.timeout_ms)

    operation.start(request.timeout_ms, submit)


def _reply(
    broker: Broker, context: RequestContext, planned: Mapping[str, _Planned], outcomes: Outcomes
) -> Steps:
    """Send the response, in steps."""
    described = _Described(broker)
    rows: list[CreatableTopicResult] = []
    for name, error in outcomes.items():
        if context.version < CONFIGS_SINCE or error is not None:
            row = CreatableTopicResult(name, error_code_of(error), error_message_of(error), configs=())
        else:
            if len(rows) % TOPICS_PER_STEP == TOPICS_PER_STEP - 1:
                yield len(outcomes) * TOPIC_BYTES
            row = described.result(name, planned[name])
        rows.append(row)
    context.reply(CreateTopicsResponse(0, tuple(rows)))


class _Described:
    """The results for new topics, with their configs."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._configs: dict[frozenset[tuple[str, str]], tuple[CreatableTopicConfigs, ...]] = {}
        """Most topics of a request have the same."""

    def result(self, name: str, topic: _Planned) -> CreatableTopicResult:
        return CreatableTopicResult(
            name=name,
            topic_id=self._broker.metadata_cache.topic_ids.get(name, ZERO_UUID),
            error_code=ErrorCode.NONE,
            num_partitions=topic.partitions,
            replication_factor=topic.replicas,
            configs=self._configs_of(topic.config),
        )

    def _configs_of(self, own: Mapping[str, str]) -> tuple[CreatableTopicConfigs, ...]:
        broker, key = self._broker, frozenset(own.items())
        if key not in self._configs:
            self._configs[key] = tuple(
                CreatableTopicConfigs(row.name, row.value, row.read_only, row.config_source, row.is_sensitive)
                for row in describe_topic(broker.logs.defaults, broker.dynamic_properties, own)
            )
        return self._configs[key]


def _count(broker: Broker, topic: CreatableTopic) -> int:
    """Return the number of partitions that the topic would have."""
    if topic.num_partitions == BROKER_DEFAULT and not topic.assignments:
        return broker.config.default_partitions
    return max(topic.num_partitions, len(topic.assignments))


def _wanted(topic: CreatableTopic) -> tuple[str, int, int, dict[int, tuple[int, ...]] | None, dict[str, str]]:
    assignment = {part.partition_index: tuple(part.broker_ids) for part in topic.assignments} or None
    numbers = topic.num_partitions, topic.replication_factor
    if assignment is not None and numbers != (BROKER_DEFAULT, BROKER_DEFAULT):
        raise BrokerError(
            ErrorCode.INVALID_REQUEST,
            "specify either partitions and replication factor, or an assignment, not both",
        )
    configs = {}
    for entry in topic.configs:
        if entry.value is None:
            raise BrokerError(ErrorCode.INVALID_CONFIG, f"the value of {entry.name} is null: omit the config")
        configs[entry.name] = entry.value
    return topic.name, topic.num_partitions, topic.replication_factor, assignment, configs
