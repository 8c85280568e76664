"""The permissions of requests that list, create and delete topics (``request_authorizers``).

Topic ids are not secret, names are: the name of a topic that is requested by id, and that the client may not
describe, is left out of the response.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from minikafka.base.acls import TOPIC_OPERATIONS, Operation, operation_bits
from minikafka.base.ids import INTERNAL_TOPICS
from minikafka.server.security.authorization import (
    TOPIC_DENIED,
    AuthorizationResult,
    RequestAuthorizer,
    Requester,
    cluster_operations,
    denial_message,
    each_item,
    only_topics,
)
from minikafka.wire.api import NO_OPERATIONS, ApiKey
from minikafka.wire.apis.create_topics import (
    CONFIGS_SINCE,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from minikafka.wire.apis.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from minikafka.wire.apis.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataTopic,
)
from minikafka.wire.fields import ZERO_UUID


def _metadata(requester: Requester, version: int, request: MetadataRequest) -> AuthorizationResult | None:
    if request.topics is None:
        visible = only_topics(requester)
        return AuthorizationResult(request, lambda served: _with_operations(requester, visible(served)))
    allowed: list[MetadataRequestTopic] = []
    denied: list[MetadataTopic] = []
    for row in dict.fromkeys(request.topics):
        name = row.name if row.topic_id == ZERO_UUID else requester.topic_name(row.topic_id)
        if name is None or requester.may_on_topic(Operation.DESCRIBE, name):
            allowed.append(row)
        else:
            internal = row.name in INTERNAL_TOPICS
            denied.append(MetadataTopic(TOPIC_DENIED, row.name, internal, (), topic_id=row.topic_id))
    # The response always lists the brokers, so the handler runs even when no topic is allowed.
    return AuthorizationResult(
        replace(request, topics=tuple(allowed)),
        lambda served: _with_operations(requester, replace(served, topics=(*served.topics, *denied))),
    )


def _with_operations(requester: Requester, served: MetadataResponse) -> MetadataResponse:
    """Return the response with those of its operations that the client is authorized to do."""

    def of_topic(row: MetadataTopic) -> MetadataTopic:
        if row.name is None or row.topic_authorized_operations == NO_OPERATIONS:
            return row
        allowed = [one for one in TOPIC_OPERATIONS if requester.may_on_topic(one, row.name)]
        return replace(row, topic_authorized_operations=operation_bits(allowed))

    of_cluster = served.cluster_authorized_operations
    if of_cluster != NO_OPERATIONS:
        of_cluster = cluster_operations(requester)
    return replace(
        served, topics=tuple(map(of_topic, served.topics)), cluster_authorized_operations=of_cluster
    )


_create_each_topic = each_item(
    "topics",
    lambda requester, topic: requester.may_create(topic.name),
    "topics",
    lambda topic: CreatableTopicResult(
        topic.name, TOPIC_DENIED, denial_message(Operation.CREATE, topic.name), configs=()
    ),
    CreateTopicsResponse(0, ()),
)


def _create_topics(
    requester: Requester, version: int, request: CreateTopicsRequest
) -> AuthorizationResult | None:
    result = _create_each_topic(requester, version, request)
    if version < CONFIGS_SINCE:
        return result
    hidden = {
        topic.name
        for topic in request.topics
        if not requester.may_on_topic(Operation.DESCRIBE_CONFIGS, topic.name)
    }

    def without_configs(row: CreatableTopicResult) -> CreatableTopicResult:
        if row.error_code or row.name not in hidden:
            return row
        return replace(
            row, num_partitions=-1, replication_factor=-1, configs=None, topic_config_error_code=TOPIC_DENIED
        )

    def answer(served: CreateTopicsResponse | None) -> CreateTopicsResponse:
        found = served if result is None else result.answer(served)
        assert found is not None
        return replace(found, topics=tuple(map(without_configs, found.topics)))

    return AuthorizationResult(request if result is None else result.request, answer)


_delete_each_topic = each_item(
    "topic_names",
    lambda requester, name: requester.may_on_topic(Operation.DELETE, name),
    "topics",
    lambda name: DeletableTopicResult(name, TOPIC_DENIED),
    DeleteTopicsResponse(0, ()),
)


def _delete_topics(
    requester: Requester, version: int, request: DeleteTopicsRequest
) -> AuthorizationResult | None:
    if not request.topics:
        return _delete_each_topic(requester, version, request)
    allowed: list[DeleteTopicState] = []
    denied: list[DeletableTopicResult] = []
    for row in request.topics:
        by_id = row.topic_id != ZERO_UUID
        name = requester.topic_name(row.topic_id) if by_id else row.name
        if name is None or requester.may_on_topic(Operation.DELETE, name):
            allowed.append(row)
        else:
            shown = None if by_id and not requester.may_on_topic(Operation.DESCRIBE, name) else name
            denied.append(DeletableTopicResult(shown, TOPIC_DENIED, topic_id=row.topic_id))
    if not denied:
        return None

    def answer(served: DeleteTopicsResponse | None) -> DeleteTopicsResponse:
        found = DeleteTopicsResponse(0, ()) if served is None else served
        return replace(found, topics=(*found.topics, *denied))

    return AuthorizationResult(replace(request, topics=tuple(allowed)) if allowed else None, answer)


TOPIC_AUTHORIZERS: Mapping[ApiKey, RequestAuthorizer] = {
    ApiKey.METADATA: _metadata,
    ApiKey.CREATE_TOPICS: _create_topics,
    ApiKey.DELETE_TOPICS: _delete_topics,
}
"""The authorizer of each API."""
