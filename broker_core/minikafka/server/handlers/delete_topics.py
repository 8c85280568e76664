"""DeleteTopics: ask the controller to delete topics, and wait until they are removed from ZooKeeper.

Only the controller serves it. With ``delete.topic.enable=false`` the request is rejected (0.10.1 lets it time
out), before version 3 with INVALID_REQUEST. Topics without leaders, or with an unreadable znode, are deleted
too. After a REQUEST_TIMED_OUT the deletion continues.
"""

from __future__ import annotations

from minikafka.base.errors import BrokerError, ErrorCode
from minikafka.server.admin.topics import (
    DelayedTopicOperation,
    check_controller,
    error_code_of,
    submit_deletions,
)
from minikafka.server.context import RequestContext
from minikafka.server.core.broker import Broker
from minikafka.server.workers.work_pool import Steps
from minikafka.wire.apis.delete_topics import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse


def handle(broker: Broker, context: RequestContext, request: DeleteTopicsRequest) -> Steps:
    """Serve one DeleteTopics request; reply when the topics are deleted."""
    names = list(dict.fromkeys(request.topic_names))
    operation = DelayedTopicOperation(
        broker,
        context,
        names,
        is_done=lambda name: not _is_known(broker, name),
        reply=lambda outcomes: context.reply(
            DeleteTopicsResponse(
                throttle_time_ms=0,
                topics=tuple(
                    DeletableTopicResult(name, error_code_of(error)) for name, error in outcomes.items()
                ),
            )
        ),
    )
    wanted = []
    for name in names:
        yield 0
        try:
            _check(broker, name, context.version)
            context.record_mutations(len(broker.metadata_cache.topics.get(name, ())))
            wanted.append(name)
        except BrokerError as error:
            operation.fail(name, error)

    operation.start(request.timeout_ms, lambda: submit_deletions(broker, wanted))


def _check(broker: Broker, name: str, version: int) -> None:
    check_controller(broker)
    if not broker.config.delete_topics:
        code = ErrorCode.TOPIC_DELETION_DISABLED if version >= 3 else ErrorCode.INVALID_REQUEST
        raise BrokerError(code, "delete.topic.enable is false on this broker")
    if name not in broker.metadata_cache.topics and not _is_known(broker, name):
        raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name}")


def _is_known(broker: Broker, name: str) -> bool:
    """Return True if the topic exists, possibly without leaders or with an unreadable znode."""
    return name in broker.metadata_cache.unreadable or not broker.controller.is_unknown(name)
