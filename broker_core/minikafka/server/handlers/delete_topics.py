"""DeleteTopics: ask the controller to delete topics, and wait until they are removed from ZooKeeper.

Only the controller serves it. With ``delete.topic.enable=false`` the request is rejected (0.10.1 lets it time
out), before version 3 with INVALID_REQUEST. Topics without leaders, or with an unreadable znode, are deleted
too. After a REQUEST_TIMED_OUT the deletion continues. From version 6 on a topic may be named by its id.
"""

from __future__ import annotations

from minikafka.base.errors import BrokerError, ErrorCode
from minikafka.base.ids import uuid_text
from minikafka.server.admin.topics import (
    DelayedTopicOperation,
    Outcomes,
    check_controller,
    error_code_of,
    error_message_of,
    submit_deletions,
)
from minikafka.server.context import RequestContext
from minikafka.server.core.broker import Broker
from minikafka.server.workers.work_pool import Steps
from minikafka.wire.apis.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from minikafka.wire.fields import ZERO_UUID


def handle(broker: Broker, context: RequestContext, request: DeleteTopicsRequest) -> Steps:
    """Serve one DeleteTopics request; reply when the topics are deleted."""
    asked = list(dict.fromkeys(request.topics or map(DeleteTopicState, request.topic_names)))
    if any(row.name is not None and row.topic_id != ZERO_UUID for row in asked):
        both = BrokerError(ErrorCode.INVALID_REQUEST, "a topic has both a name and an id: give one of them")
        context.reply(DeleteTopicsResponse(0, tuple(_result(row, row.name, both) for row in asked)))
        return
    named = {row: row.name if row.topic_id == ZERO_UUID else broker.topic_name(row.topic_id) for row in asked}
    failed: dict[DeleteTopicState, BrokerError] = {}

    def reply(outcomes: Outcomes) -> None:
        rows = (
            _result(row, name, outcomes[name] if name is not None else failed[row])
            for row, name in named.items()
        )
        context.reply(DeleteTopicsResponse(0, tuple(rows)))

    names = list(dict.fromkeys(name for name in named.values() if name is not None))
    operation = DelayedTopicOperation(
        broker, context, names, is_done=lambda name: not _is_known(broker, name), reply=reply
    )
    wanted: dict[str, None] = {}
    for row, name in named.items():
        yield 0
        try:
            _check(broker, context.version)
            if name is None:
                raise BrokerError(ErrorCode.UNKNOWN_TOPIC_ID, f"there is no topic {uuid_text(row.topic_id)}")
            if name not in broker.metadata_cache.topics and not _is_known(broker, name):
                raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name}")
            if name not in wanted:
                context.record_mutations(len(broker.metadata_cache.topics.get(name, ())))
                wanted[name] = None
        except BrokerError as error:
            if name is None:
                failed[row] = error
            else:
                operation.fail(name, error)

    operation.start(request.timeout_ms, lambda: submit_deletions(broker, wanted))


def _result(row: DeleteTopicState, name: str | None, error: BrokerError | None) -> DeletableTopicResult:
    return DeletableTopicResult(name, error_code_of(error), error_message_of(error), topic_id=row.topic_id)


def _check(broker: Broker, version: int) -> None:
    check_controller(broker)
    if not broker.config.delete_topics:
        code = ErrorCode.TOPIC_DELETION_DISABLED if version >= 3 else ErrorCode.INVALID_REQUEST
        raise BrokerError(code, "delete.topic.enable is false on this broker")


def _is_known(broker: Broker, name: str) -> bool:
    """Return True if the topic exists, possibly without leaders or with an unreadable znode."""
    return name in broker.metadata_cache.unreadable or not broker.controller.is_unknown(name)
