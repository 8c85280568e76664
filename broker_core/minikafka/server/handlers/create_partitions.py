"""CreatePartitions: ask the controller to add partitions to topics, and wait until they can be used.

Only the controller serves it (NOT_CONTROLLER). Existing partitions keep their replicas and messages, but keys
may map to other partitions. Each topic succeeds or fails on its own. Time-outs, ``validate_only`` and the
limit of new partitions are as in CreateTopics; only the new partitions are waited for.
"""

from __future__ import annotations

from collections import Counter

from minikafka.base.errors import BrokerError, ErrorCode
from minikafka.server.admin.topics import (
    DelayedTopicOperation,
    NewPartitionsLimit,
    PartitionsCreation,
    assignment_cost_bytes,
    check_controller,
    is_ready,
    plan_new_partitions,
    results_of,
    submit_partition_creations,
)
from minikafka.server.context import RequestContext
from minikafka.server.core.broker import Broker
from minikafka.server.workers.work_pool import Steps
from minikafka.wire.apis.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)


def handle(broker: Broker, context: RequestContext, request: CreatePartitionsRequest) -> Steps:
    """Serve one CreatePartitions request; reply when the partitions can be used."""
    named = Counter(topic.name for topic in request.topics)
    counts = {topic.name: topic.count for topic in request.topics}
    added: dict[str, int] = {}
    operation = DelayedTopicOperation(
        broker,
        context,
        list(named),
        is_done=lambda name: is_ready(broker, name, counts[name], counts[name] - added.get(name, 0)),
        reply=lambda outcomes: context.reply(
            CreatePartitionsResponse(0, results_of(outcomes, CreatePartitionsTopicResult))
        ),
    )
    wishes: list[PartitionsCreation] = []
    room = NewPartitionsLimit()
    for topic in request.topics:
        yield assignment_cost_bytes(topic.count)
        try:
            if named[topic.name] > 1:
                raise BrokerError(ErrorCode.INVALID_REQUEST, f"topic {topic.name} appears twice")
            check_controller(broker)
            creation = plan_new_partitions(broker, topic.name, topic.count, _given(topic), room)
            if not request.validate_only:
                context.record_mutations(len(creation.assignment))
            wishes.append(creation)
            added[topic.name] = len(creation.assignment)
            if request.validate_only:
                operation.succeed(topic.name)
        except BrokerError as error:
            operation.fail(topic.name, error)

    def submit() -> None:
        if not request.validate_only:
            submit_partition_creations(broker, wishes, operation)

    operation.start(request.timeout_ms, submit)


def _given(topic: CreatePartitionsTopic) -> list[tuple[int, ...]] | None:
    if topic.assignments is None:
        return None
    return [tuple(assignment.broker_ids) for assignment in topic.assignments]
