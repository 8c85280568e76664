"""The permissions that each API needs, and the response to a request that lacks them.

As in ``KafkaApis`` of 2.1, for all versions: a topic that the client may not describe gets
TOPIC_AUTHORIZATION_FAILED when the request names it, and is allowed out of a listing of all topics (0.10.1
answers UNKNOWN_TOPIC_OR_PARTITION in some places); CREATE on a topic needs no cluster-wide permission.
Beyond Kafka, a broker with ClusterAction may list the offsets of partitions that it replicates.

A request authorizer splits a request: its ``AuthorizationResult`` holds the part to serve, and adds the
denials to the response. ``REQUEST_AUTHORIZERS`` has one for every API that is served.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from minikafka.base.acls import CLUSTER, Operation, ResourceType
from minikafka.base.errors import ErrorCode
from minikafka.base.ids import INTERNAL_TOPICS
from minikafka.base.values import fast_value
from minikafka.records.format.batch import has_producer_id
from minikafka.wire.api import ApiKey
from minikafka.wire.apis.alter_configs import AlterConfigsResourceResponse, AlterConfigsResponse
from minikafka.wire.apis.controlled_shutdown import ControlledShutdownResponse
from minikafka.wire.apis.create_acls import AclCreationResult, CreateAclsResponse
from minikafka.wire.apis.create_partitions import CreatePartitionsResponse, CreatePartitionsTopicResult
from minikafka.wire.apis.create_topics import CreatableTopicResult, CreateTopicsResponse
from minikafka.wire.apis.delete_acls import DeleteAclsFilterResult, DeleteAclsResponse
from minikafka.wire.apis.delete_groups import DeletableGroupResult, DeleteGroupsResponse
from minikafka.wire.apis.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from minikafka.wire.apis.delete_topics import DeletableTopicResult, DeleteTopicsResponse
from minikafka.wire.apis.describe_acls import DescribeAclsResponse
from minikafka.wire.apis.describe_configs import (
    ConfigResourceType,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from minikafka.wire.apis.describe_groups import DescribedGroup, DescribeGroupsResponse
from minikafka.wire.apis.describe_log_dirs import DescribeLogDirsResponse
from minikafka.wire.apis.fetch import (
    FINAL_EPOCH,
    NEW_SESSION_EPOCH,
    NO_SESSION,
    FetchPartitionResponse,
    FetchRequest,
    FetchResponse,
    FetchTopicResponse,
)
from minikafka.wire.apis.find_coordinator import (
    CoordinatorType,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from minikafka.wire.apis.heartbeat import HeartbeatResponse
from minikafka.wire.apis.init_producer_id import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from minikafka.wire.apis.join_group import JoinGroupResponse
from minikafka.wire.apis.leader_and_isr import LeaderAndIsrPartitionError, LeaderAndIsrResponse
from minikafka.wire.apis.leave_group import LeaveGroupResponse
from minikafka.wire.apis.list_groups import ListGroupsRequest
from minikafka.wire.apis.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from minikafka.wire.apis.metadata import MetadataRequest, MetadataTopic
from minikafka.wire.apis.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from minikafka.wire.apis.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from minikafka.wire.apis.offset_for_leader_epoch import (
    EpochPartitionResponse,
    EpochTopicResponse,
    OffsetForLeaderEpochResponse,
)
from minikafka.wire.apis.produce import (
    ProducePartitionResponse,
    ProduceRequest,
    ProduceResponse,
    ProduceTopicResponse,
)
from minikafka.wire.apis.stop_replica import StopReplicaPartitionError, StopReplicaResponse
from minikafka.wire.apis.sync_group import SyncGroupResponse
from minikafka.wire.apis.update_metadata import UpdateMetadataResponse
from minikafka.wire.frame_parts import buffer_of

TOPIC_DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
GROUP_DENIED = ErrorCode.GROUP_AUTHORIZATION_FAILED
CLUSTER_DENIED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
TRANSACTIONAL_ID_DENIED = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED

_NO_OFFSET = -1


def _denial_message(operation: Operation, topic: str = "") -> str:
    """Return the error message for a denied operation on ``topic``, or on the cluster."""
    resource = f"topic {topic!r}" if topic else "the cluster"
    return f"not authorized: {operation.label} on {resource}"


@fast_value
class Requester:
    """The client that sent a request, and its permissions."""

    may: Callable[[Operation, ResourceType, str], bool]

    def may_on_topic(self, operation: Operation, name: str) -> bool:
        """Return True if the client may do ``operation`` on a topic."""
        return self.may(operation, ResourceType.TOPIC, name)

    def may_on_group(self, operation: Operation, name: str) -> bool:
        """Return True if the client may do ``operation`` on a group."""
        return self.may(operation, ResourceType.GROUP, name)

    def may_on_cluster(self, operation: Operation) -> bool:
        """Return True if the client may do ``operation`` on the cluster."""
        return self.may(operation, CLUSTER.type, CLUSTER.name)

    def may_create(self, topic: str) -> bool:
        """Return True if the client may create ``topic``."""
        return self.may_on_cluster(Operation.CREATE) or self.may_on_topic(Operation.CREATE, topic)


@fast_value
class AuthorizationResult:
    """The outcome for a request that is denied in whole or in part."""

    request: Any
    """The allowed part of the request; None: nothing is allowed."""
    answer: Callable[[Any], Any]
    """Add the denials to the handler's response; takes None when no handler ran."""
    needs_no_response: bool = False
    """True when the client expects no response (acks=0)."""


RequestAuthorizer = Callable[[Requester, int, Any], AuthorizationResult | None]
"""Takes the requester, the version and the request; returns None when all of the request is allowed."""


# --- requests that are allowed or denied as a whole ---------------------------------------------------------


def _all_or_nothing(may: Callable[[Requester, Any], bool], denial: Callable[[Any], Any]) -> RequestAuthorizer:
    def authorize(requester: Requester, version: int, request: Any) -> AuthorizationResult | None:
        return None if may(requester, request) else AuthorizationResult(None, lambda _: denial(request))

    return authorize


def _cluster_request(operation: Operation, denial: Callable[[Any], Any]) -> RequestAuthorizer:
    return _all_or_nothing(lambda requester, _: requester.may_on_cluster(operation), denial)


def _group_member_request(denial: Callable[[Any], Any]) -> RequestAuthorizer:
    return _all_or_nothing(
        lambda requester, request: requester.may_on_group(Operation.READ, request.group_id), denial
    )


# --- requests of which each item is allowed or denied -------------------------------------------------------


def _each_item(
    items: str, may: Callable[[Requester, Any], bool], rows: str, row: Callable[[Any], Any], nothing: Any
) -> RequestAuthorizer:
    """Return an authorizer that checks each item of the request's field ``items``.

    For a denied item ``row`` is appended to the field ``rows`` of the response; ``nothing`` is an empty
    response.
    """

    def authorize(requester: Requester, version: int, request: Any) -> AuthorizationResult | None:
        allowed: list[Any] = []
        denied: list[Any] = []
        for item in getattr(request, items):
            (allowed if may(requester, item) else denied).append(item)
        if not denied:
            return None

        def answer(served: Any) -> Any:
            base = nothing if served is None else served
            return replace(base, **{rows: (*getattr(base, rows), *map(row, denied))})

        return AuthorizationResult(replace(request, **{items: tuple(allowed)}) if allowed else None, answer)

    return authorize


def _each_topic(operation: Operation, row: Callable[[Any], Any], nothing: Any) -> RequestAuthorizer:
    return _each_item(
        "topics",
        lambda requester, topic: requester.may_on_topic(operation, topic.name),
        "topics",
        row,
        nothing,
    )


def _denied_topic(
    topic_row: Callable[[str, tuple[Any, ...]], Any],
    row: Callable[[Any, ErrorCode], Any],
    partitions: str = "partitions",
) -> Callable[..., Any]:
    """Return a function of a topic of the request that makes its row, with an error for each partition."""

    def denied(topic: Any, code: ErrorCode = TOPIC_DENIED) -> Any:
        return topic_row(topic.name, tuple(row(part, code) for part in getattr(topic, partitions)))

    return denied


def _only(rows: str, may_see: Callable[[Any], bool]) -> Callable[[Any], Any]:
    """Return a function that keeps the visible ones in the field ``rows`` of a response."""
    return lambda served: replace(served, **{rows: tuple(filter(may_see, getattr(served, rows)))})


def _only_topics(requester: Requester) -> Callable[[Any], Any]:
    return _only("topics", lambda topic: requester.may_on_topic(Operation.DESCRIBE, topic.name))


# --- records ------------------------------------------------------------------------------------------------

_denied_produce = _denied_topic(
    ProduceTopicResponse, lambda part, code: ProducePartitionResponse(part.index, code, _NO_OFFSET)
)
_produce_topics = _each_topic(Operation.WRITE, _denied_produce, ProduceResponse(()))


def _produce(requester: Requester, version: int, request: ProduceRequest) -> AuthorizationResult | None:
    if request.transactional_id is not None or _is_idempotent(request):
        code = _producer_id_denial(requester, request.transactional_id)
        if code is not ErrorCode.NONE:
            rows = tuple(_denied_produce(topic, code) for topic in request.topics)
            answer = ProduceResponse(rows)
            return AuthorizationResult(None, lambda _: answer, needs_no_response=request.acks == 0)
    result = _produce_topics(requester, version, request)
    return None if result is None else replace(result, needs_no_response=request.acks == 0)


def _producer_id_denial(requester: Requester, transactional_id: str | None) -> ErrorCode:
    """Return the error if the client may not have a producer id, or that transactional id; else NONE."""
    if transactional_id is None:
        return ErrorCode.NONE if requester.may_on_cluster(Operation.IDEMPOTENT_WRITE) else CLUSTER_DENIED
    allowed = requester.may(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id)
    return ErrorCode.NONE if allowed else TRANSACTIONAL_ID_DENIED


def _is_idempotent(request: ProduceRequest) -> bool:
    return any(
        has_producer_id(buffer_of(part.records)) for topic in request.topics for part in topic.partitions
    )


_denied_fetch = _denied_topic(
    FetchTopicResponse,
    lambda part, code: FetchPartitionResponse(
        part.index, code, _NO_OFFSET, _NO_OFFSET, _NO_OFFSET, None, b""
    ),
)
_no_fetch = FetchResponse(0, ErrorCode.NONE, NO_SESSION, ())
_consumer_fetch = _each_topic(Operation.READ, _denied_fetch, _no_fetch)


def _fetch(requester: Requester, version: int, request: FetchRequest) -> AuthorizationResult | None:
    if request.replica_id < 0:
        result = _consumer_fetch(requester, version, request)
        if result is not None and result.request is not None:
            # A response with an error is not delayed.
            return replace(result, request=replace(result.request, max_wait_ms=0))
        return result
    if requester.may_on_cluster(Operation.CLUSTER_ACTION):
        return None
    if request.session_epoch not in {NEW_SESSION_EPOCH, FINAL_EPOCH}:
        # An incremental request names only changes; a new session names all partitions and gets their errors.
        lost = replace(_no_fetch, error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        return AuthorizationResult(None, lambda _: lost)
    rows = tuple(map(_denied_fetch, request.topics))
    return AuthorizationResult(None, lambda _: replace(_no_fetch, topics=rows))


_consumer_offsets = _each_topic(
    Operation.DESCRIBE,
    _denied_topic(
        ListOffsetsTopicResponse, lambda part, code: ListOffsetsPartitionResponse(part.index, code)
    ),
    ListOffsetsResponse(0, ()),
)


def _list_offsets(
    requester: Requester, version: int, request: ListOffsetsRequest
) -> AuthorizationResult | None:
    if request.replica_id >= 0 and requester.may_on_cluster(Operation.CLUSTER_ACTION):
        return None
    return _consumer_offsets(requester, version, request)


_topics_epochs = _each_topic(
    Operation.DESCRIBE,
    _denied_topic(
        EpochTopicResponse,
        lambda part, code: EpochPartitionResponse(code, part.index, _NO_OFFSET, _NO_OFFSET),
    ),
    OffsetForLeaderEpochResponse(0, ()),
)


def _offset_for_leader_epoch(requester: Requester, version: int, request: Any) -> AuthorizationResult | None:
    if requester.may_on_cluster(Operation.CLUSTER_ACTION):
        return None
    return _topics_epochs(requester, version, request)


# --- topics and settings ------------------------------------------------------------------------------------


def _metadata(requester: Requester, version: int, request: MetadataRequest) -> AuthorizationResult | None:
    if request.topics is None:
        return AuthorizationResult(request, _only_topics(requester))
    allowed: list[str] = []
    denied: list[str] = []
    for name in dict.fromkeys(request.topics):
        (allowed if requester.may_on_topic(Operation.DESCRIBE, name) else denied).append(name)
    rows = tuple(MetadataTopic(TOPIC_DENIED, name, name in INTERNAL_TOPICS, ()) for name in denied)
    # The response always lists the brokers, so the handler runs even when no topic is allowed.
    return AuthorizationResult(
        replace(request, topics=tuple(allowed)),
        lambda served: replace(served, topics=(*served.topics, *rows)),
    )


def _config_request(
    operation: Operation, rows: str, row: Callable[[Any, ErrorCode, str], Any], nothing: Any
) -> RequestAuthorizer:
    """Return an authorizer for requests about the configs of topics and brokers."""

    def may(requester: Requester, resource: Any) -> bool:
        if resource.resource_type == ConfigResourceType.TOPIC:
            return requester.may_on_topic(operation, resource.resource_name)
        return requester.may_on_cluster(operation)

    def denied(resource: Any) -> Any:
        if resource.resource_type == ConfigResourceType.TOPIC:
            return row(resource, TOPIC_DENIED, _denial_message(operation, resource.resource_name))
        return row(resource, CLUSTER_DENIED, _denial_message(operation))

    return _each_item("resources", may, rows, denied, nothing)


_alter_configs = _config_request(
    Operation.ALTER_CONFIGS,
    "responses",
    lambda resource, code, text: AlterConfigsResourceResponse(
        code, text, resource.resource_type, resource.resource_name
    ),
    AlterConfigsResponse(0, ()),
)


# --- groups -------------------------------------------------------------------------------------------------


_denied_commit = _denied_topic(
    OffsetCommitResponseTopic, lambda part, code: OffsetCommitResponsePartition(part.partition_index, code)
)
_commit_topics = _each_topic(Operation.READ, _denied_commit, OffsetCommitResponse(0, ()))


def _offset_commit(
    requester: Requester, version: int, request: OffsetCommitRequest
) -> AuthorizationResult | None:
    if requester.may_on_group(Operation.READ, request.group_id):
        return _commit_topics(requester, version, request)
    rows = tuple(_denied_commit(topic, GROUP_DENIED) for topic in request.topics)
    return AuthorizationResult(None, lambda _: OffsetCommitResponse(0, rows))


_denied_offset = _denied_topic(
    OffsetFetchResponseTopic,
    lambda index, code: OffsetFetchResponsePartition(index, _NO_OFFSET, _NO_OFFSET, "", code),
    "partition_indexes",
)
_fetch_topics = _each_topic(Operation.DESCRIBE, _denied_offset, OffsetFetchResponse(0, (), ErrorCode.NONE))


def _offset_fetch(
    requester: Requester, version: int, request: OffsetFetchRequest
) -> AuthorizationResult | None:
    if not requester.may_on_group(Operation.DESCRIBE, request.group_id):
        # Versions 0 and 1 have no error field for the group: report it in each partition.
        named = (request.topics or ()) if version < 2 else ()
        rows = tuple(_denied_offset(topic, GROUP_DENIED) for topic in named)
        return AuthorizationResult(None, lambda _: OffsetFetchResponse(0, rows, GROUP_DENIED))
    if request.topics is None:
        return AuthorizationResult(request, _only_topics(requester))
    return _fetch_topics(requester, version, request)


def _find_coordinator(
    requester: Requester, version: int, request: FindCoordinatorRequest
) -> AuthorizationResult | None:
    if request.key_type == CoordinatorType.TRANSACTION:
        allowed = requester.may(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, request.key)
        code, resource = TRANSACTIONAL_ID_DENIED, "transactional id"
    else:
        allowed = requester.may_on_group(Operation.DESCRIBE, request.key)
        code, resource = GROUP_DENIED, "group"
    if allowed:
        return None
    message = f"not authorized: Describe on the {resource}"
    return AuthorizationResult(None, lambda _: FindCoordinatorResponse(0, code, message, -1, "", -1))


def _list_groups(
    requester: Requester, version: int, request: ListGroupsRequest
) -> AuthorizationResult | None:
    if requester.may_on_cluster(Operation.DESCRIBE):
        return None
    seen = _only("groups", lambda group: requester.may_on_group(Operation.DESCRIBE, group.group_id))
    return AuthorizationResult(request, seen)


def _init_producer_id(
    requester: Requester, version: int, request: InitProducerIdRequest
) -> AuthorizationResult | None:
    code = _producer_id_denial(requester, request.transactional_id)
    if code is ErrorCode.NONE:
        return None
    return AuthorizationResult(
        None, lambda _: InitProducerIdResponse(0, code, NO_PRODUCER_ID, NO_PRODUCER_EPOCH)
    )


def _replica_request(
    row: Callable[[str, int, ErrorCode], Any], response: Callable[[ErrorCode, Any], Any]
) -> RequestAuthorizer:
    def denial(request: Any) -> Any:
        rows = tuple(
            row(partition.topic, partition.index, CLUSTER_DENIED) for partition in request.partitions
        )
        return response(CLUSTER_DENIED, rows)

    return _cluster_request(Operation.CLUSTER_ACTION, denial)


def _always_allowed(requester: Requester, version: int, request: Any) -> AuthorizationResult | None:
    return None


REQUEST_AUTHORIZERS: Mapping[ApiKey, RequestAuthorizer] = {
    ApiKey.PRODUCE: _produce,
    ApiKey.FETCH: _fetch,
    ApiKey.LIST_OFFSETS: _list_offsets,
    ApiKey.METADATA: _metadata,
    ApiKey.LEADER_AND_ISR: _replica_request(LeaderAndIsrPartitionError, LeaderAndIsrResponse),
    ApiKey.STOP_REPLICA: _replica_request(StopReplicaPartitionError, StopReplicaResponse),
    ApiKey.UPDATE_METADATA: _cluster_request(
        Operation.CLUSTER_ACTION, lambda request: UpdateMetadataResponse(CLUSTER_DENIED)
    ),
    ApiKey.CONTROLLED_SHUTDOWN: _cluster_request(
        Operation.CLUSTER_ACTION, lambda request: ControlledShutdownResponse(CLUSTER_DENIED, ())
    ),
    ApiKey.OFFSET_COMMIT: _offset_commit,
    ApiKey.OFFSET_FETCH: _offset_fetch,
    ApiKey.FIND_COORDINATOR: _find_coordinator,
    ApiKey.JOIN_GROUP: _group_member_request(
        lambda request: JoinGroupResponse(0, GROUP_DENIED, -1, "", "", request.member_id, ())
    ),
    ApiKey.HEARTBEAT: _group_member_request(lambda request: HeartbeatResponse(0, GROUP_DENIED)),
    ApiKey.LEAVE_GROUP: _group_member_request(lambda request: LeaveGroupResponse(0, GROUP_DENIED)),
    ApiKey.SYNC_GROUP: _group_member_request(lambda request: SyncGroupResponse(0, GROUP_DENIED, b"")),
    ApiKey.DESCRIBE_GROUPS: _each_item(
        "groups",
        lambda requester, name: requester.may_on_group(Operation.DESCRIBE, name),
        "groups",
        lambda name: DescribedGroup(GROUP_DENIED, name, "", "", "", ()),
        DescribeGroupsResponse(0, ()),
    ),
    ApiKey.LIST_GROUPS: _list_groups,
    ApiKey.API_VERSIONS: _always_allowed,
    ApiKey.SASL_HANDSHAKE: _always_allowed,
    ApiKey.SASL_AUTHENTICATE: _always_allowed,
    ApiKey.CREATE_TOPICS: _each_item(
        "topics",
        lambda requester, topic: requester.may_create(topic.name),
        "topics",
        lambda topic: CreatableTopicResult(
            topic.name, TOPIC_DENIED, _denial_message(Operation.CREATE, topic.name)
        ),
        CreateTopicsResponse(0, ()),
    ),
    ApiKey.DELETE_TOPICS: _each_item(
        "topic_names",
        lambda requester, name: requester.may_on_topic(Operation.DELETE, name),
        "topics",
        lambda name: DeletableTopicResult(name, TOPIC_DENIED),
        DeleteTopicsResponse(0, ()),
    ),
    ApiKey.DELETE_RECORDS: _each_topic(
        Operation.DELETE,
        _denied_topic(
            DeleteRecordsTopicResult,
            lambda part, code: DeleteRecordsPartitionResult(part.index, _NO_OFFSET, code),
        ),
        DeleteRecordsResponse(0, ()),
    ),
    ApiKey.INIT_PRODUCER_ID: _init_producer_id,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: _offset_for_leader_epoch,
    ApiKey.DESCRIBE_ACLS: _cluster_request(
        Operation.DESCRIBE,
        lambda request: DescribeAclsResponse(0, CLUSTER_DENIED, _denial_message(Operation.DESCRIBE), ()),
    ),
    ApiKey.CREATE_ACLS: _cluster_request(
        Operation.ALTER,
        lambda request: CreateAclsResponse(
            0,
            tuple(
                AclCreationResult(CLUSTER_DENIED, _denial_message(Operation.ALTER)) for _ in request.creations
            ),
        ),
    ),
    ApiKey.DELETE_ACLS: _cluster_request(
        Operation.ALTER,
        lambda request: DeleteAclsResponse(
            0,
            tuple(
                DeleteAclsFilterResult(CLUSTER_DENIED, _denial_message(Operation.ALTER), ())
                for _ in request.filters
            ),
        ),
    ),
    # As in Kafka: without DESCRIBE on the cluster no directory is listed.
    ApiKey.DESCRIBE_LOG_DIRS: _cluster_request(
        Operation.DESCRIBE, lambda request: DescribeLogDirsResponse(0, ())
    ),
    ApiKey.DESCRIBE_CONFIGS: _config_request(
        Operation.DESCRIBE_CONFIGS,
        "results",
        lambda resource, code, text: DescribeConfigsResult(
            code, text, resource.resource_type, resource.resource_name, ()
        ),
        DescribeConfigsResponse(0, ()),
    ),
    ApiKey.ALTER_CONFIGS: _alter_configs,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _alter_configs,
    ApiKey.CREATE_PARTITIONS: _each_item(
        "topics",
        lambda requester, topic: requester.may_on_topic(Operation.ALTER, topic.name),
        "results",
        lambda topic: CreatePartitionsTopicResult(
            topic.name, TOPIC_DENIED, _denial_message(Operation.ALTER, topic.name)
        ),
        CreatePartitionsResponse(0, ()),
    ),
    ApiKey.DELETE_GROUPS: _each_item(
        "groups_names",
        lambda requester, name: requester.may_on_group(Operation.DELETE, name),
        "results",
        lambda name: DeletableGroupResult(name, GROUP_DENIED),
        DeleteGroupsResponse(0, ()),
    ),
}
"""The authorizer of each API."""
