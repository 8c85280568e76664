"""What each API asks permission for, and how what is not permitted is answered.

As ``KafkaApis`` of 2.1 has it, for all versions: who may not describe a topic is told
TOPIC_AUTHORIZATION_FAILED where it is named, and does not see it where all are asked for (0.10.1 says
UNKNOWN_TOPIC_OR_PARTITION in some places); who may create on one topic needs no cluster-wide permission.
Beyond Kafka, a broker with ClusterAction may ask for offsets of the partitions that it copies.

A request authorizer splits a request: its ``AuthorizationResult`` holds the part to serve, and adds the
refusals to the response. ``REQUEST_AUTHORIZERS`` has one for every API that is served.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from minikafka.base.acls import CLUSTER, Operation, ResourceType
from minikafka.base.errors import ErrorCode
from minikafka.base.ids import INTERNAL_TOPICS
from minikafka.base.values import fast_value
from minikafka.records.format.batch import names_producer
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
from minikafka.wire.apis.describe_configs import DescribeConfigsResponse, DescribeConfigsResult
from minikafka.wire.apis.describe_configs import ResourceType as ConfigType
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
from minikafka.wire.keys import ApiKey

NO_TOPIC = ErrorCode.TOPIC_AUTHORIZATION_FAILED
NO_GROUP = ErrorCode.GROUP_AUTHORIZATION_FAILED
NO_CLUSTER = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
NO_TRANSACTIONS = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED

_WORDS = {
    NO_GROUP: "the access rules do not permit this client to use the group",
    NO_TRANSACTIONS: "the access rules do not permit this client to use the transactional id",
}
_NO_OFFSET = -1


def _no(operation: Operation, topic: str = "") -> str:
    """What is said of an operation on a topic, or on the cluster, that is refused."""
    what = f"topic {topic!r}" if topic else "the cluster"
    return f"the access rules do not permit this client to do {operation.label} to {what}"


@fast_value
class Requester:
    """Who asks."""

    may: Callable[[Operation, ResourceType, str], bool]

    def to_topic(self, operation: Operation, name: str) -> bool:
        """Whether they may do that to a topic."""
        return self.may(operation, ResourceType.TOPIC, name)

    def to_group(self, operation: Operation, name: str) -> bool:
        """Whether they may do that to a group."""
        return self.may(operation, ResourceType.GROUP, name)

    def to_cluster(self, operation: Operation) -> bool:
        """Whether they may do that to the cluster."""
        return self.may(operation, CLUSTER.type, CLUSTER.name)

    def may_create(self, topic: str) -> bool:
        """Whether they may make a topic of that name."""
        return self.to_cluster(Operation.CREATE) or self.to_topic(Operation.CREATE, topic)


@fast_value
class AuthorizationResult:
    """What is to become of a request of which something is refused."""

    request: Any
    """What is left to be served; None: nothing."""
    answer: Callable[[Any], Any]
    """From the handler's answer, None where nothing was served, to the one that is sent."""
    unanswered: bool = False
    """Whether the client waits for no answer."""


Guard = Callable[[Requester, int, Any], AuthorizationResult | None]
"""From who asks, the version and the request to a ruling; None: all of it may be served."""


# --- a request is refused as a whole ------------------------------------------------------------------------


def _whole(may: Callable[[Requester, Any], bool], refusal: Callable[[Any], Any]) -> Guard:
    def guard(asker: Requester, version: int, request: Any) -> AuthorizationResult | None:
        return None if may(asker, request) else AuthorizationResult(None, lambda _: refusal(request))

    return guard


def _of_cluster(operation: Operation, refusal: Callable[[Any], Any]) -> Guard:
    return _whole(lambda asker, _: asker.to_cluster(operation), refusal)


def _of_member(refusal: Callable[[Any], Any]) -> Guard:
    return _whole(lambda asker, request: asker.to_group(Operation.READ, request.group_id), refusal)


# --- what is named is served or refused for itself ----------------------------------------------------------


def _each(
    items: str, may: Callable[[Requester, Any], bool], rows: str, row: Callable[[Any], Any], nothing: Any
) -> Guard:
    """Of what a request names under ``items``, each that is refused gets a ``row`` among the ``rows`` of the
    answer, behind the others; ``nothing`` is an answer without any.
    """

    def guard(asker: Requester, version: int, request: Any) -> AuthorizationResult | None:
        left: list[Any] = []
        refused: list[Any] = []
        for one in getattr(request, items):
            (left if may(asker, one) else refused).append(one)
        if not refused:
            return None

        def answer(served: Any) -> Any:
            base = nothing if served is None else served
            return replace(base, **{rows: (*getattr(base, rows), *map(row, refused))})

        return AuthorizationResult(replace(request, **{items: tuple(left)}) if left else None, answer)

    return guard


def _each_topic(operation: Operation, row: Callable[[Any], Any], nothing: Any) -> Guard:
    return _each("topics", lambda asker, one: asker.to_topic(operation, one.name), "topics", row, nothing)


# --- records ------------------------------------------------------------------------------------------------


def _refused_produce(topic: Any, code: ErrorCode = NO_TOPIC) -> ProduceTopicResponse:
    rows = (ProducePartitionResponse(part.index, code, _NO_OFFSET) for part in topic.partitions)
    return ProduceTopicResponse(topic.name, tuple(rows))


_produce_topics = _each_topic(Operation.WRITE, _refused_produce, ProduceResponse(()))


def _produce(asker: Requester, version: int, request: ProduceRequest) -> AuthorizationResult | None:
    code = ErrorCode.NONE
    if request.transactional_id is not None:
        if not asker.may(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id):
            code = NO_TRANSACTIONS
    elif _is_idempotent(request) and not asker.to_cluster(Operation.IDEMPOTENT_WRITE):
        code = NO_CLUSTER
    if code is not ErrorCode.NONE:
        rows = tuple(_refused_produce(topic, code) for topic in request.topics)
        return AuthorizationResult(None, lambda _: ProduceResponse(rows), unanswered=request.acks == 0)
    ruling = _produce_topics(asker, version, request)
    if ruling is None:
        return None
    return AuthorizationResult(ruling.request, ruling.answer, unanswered=request.acks == 0)


def _is_idempotent(request: ProduceRequest) -> bool:
    return any(
        names_producer(buffer_of(part.records)) for topic in request.topics for part in topic.partitions
    )


def _refused_fetch(topic: Any) -> FetchTopicResponse:
    rows = (
        FetchPartitionResponse(part.index, NO_TOPIC, _NO_OFFSET, _NO_OFFSET, _NO_OFFSET, None, b"")
        for part in topic.partitions
    )
    return FetchTopicResponse(topic.name, tuple(rows))


_no_fetch = FetchResponse(0, ErrorCode.NONE, NO_SESSION, ())
_consumer_fetch = _each_topic(Operation.READ, _refused_fetch, _no_fetch)


def _fetch(asker: Requester, version: int, request: FetchRequest) -> AuthorizationResult | None:
    if request.replica_id < 0:
        ruling = _consumer_fetch(asker, version, request)
        if ruling is not None and ruling.request is not None:
            # An error is told at once.
            return AuthorizationResult(replace(ruling.request, max_wait_ms=0), ruling.answer)
        return ruling
    if asker.to_cluster(Operation.CLUSTER_ACTION):
        return None
    if request.session_epoch not in {NEW_SESSION_EPOCH, FINAL_EPOCH}:
        # It names what has changed; begun anew it names all, and is told of each.
        lost = replace(_no_fetch, error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        return AuthorizationResult(None, lambda _: lost)
    rows = tuple(map(_refused_fetch, request.topics))
    return AuthorizationResult(None, lambda _: replace(_no_fetch, topics=rows))


def _refused_offsets(topic: Any) -> ListOffsetsTopicResponse:
    rows = tuple(ListOffsetsPartitionResponse(part.index, NO_TOPIC) for part in topic.partitions)
    return ListOffsetsTopicResponse(topic.name, rows)


_consumer_offsets = _each_topic(Operation.DESCRIBE, _refused_offsets, ListOffsetsResponse(0, ()))


def _list_offsets(asker: Requester, version: int, request: ListOffsetsRequest) -> AuthorizationResult | None:
    if request.replica_id >= 0 and asker.to_cluster(Operation.CLUSTER_ACTION):
        return None
    return _consumer_offsets(asker, version, request)


def _refused_epochs(topic: Any) -> EpochTopicResponse:
    rows = (EpochPartitionResponse(NO_TOPIC, part.index, _NO_OFFSET, _NO_OFFSET) for part in topic.partitions)
    return EpochTopicResponse(topic.name, tuple(rows))


_topics_epochs = _each_topic(Operation.DESCRIBE, _refused_epochs, OffsetForLeaderEpochResponse(0, ()))


def _epochs(asker: Requester, version: int, request: Any) -> AuthorizationResult | None:
    if asker.to_cluster(Operation.CLUSTER_ACTION):
        return None
    return _topics_epochs(asker, version, request)


def _refused_deletion(topic: Any) -> DeleteRecordsTopicResult:
    rows = (DeleteRecordsPartitionResult(part.index, _NO_OFFSET, NO_TOPIC) for part in topic.partitions)
    return DeleteRecordsTopicResult(topic.name, tuple(rows))


# --- topics and settings ------------------------------------------------------------------------------------


def _metadata(asker: Requester, version: int, request: MetadataRequest) -> AuthorizationResult | None:
    if request.topics is None:

        def visible(served: Any) -> Any:
            seen = (one for one in served.topics if asker.to_topic(Operation.DESCRIBE, one.name))
            return replace(served, topics=tuple(seen))

        return AuthorizationResult(request, visible)
    left: list[str] = []
    refused: list[str] = []
    for name in dict.fromkeys(request.topics):
        (left if asker.to_topic(Operation.DESCRIBE, name) else refused).append(name)
    rows = tuple(MetadataTopic(NO_TOPIC, name, name in INTERNAL_TOPICS, ()) for name in refused)
    # Brokers are told of in any case, so the handler answers even when no topic is left.
    return AuthorizationResult(
        replace(request, topics=tuple(left)), lambda served: replace(served, topics=(*served.topics, *rows))
    )


def _of_settings(
    operation: Operation, rows: str, row: Callable[[Any, ErrorCode, str], Any], nothing: Any
) -> Guard:
    """What has settings is a topic, or a broker of the cluster."""

    def may(asker: Requester, resource: Any) -> bool:
        if resource.resource_type == ConfigType.TOPIC:
            return asker.to_topic(operation, resource.resource_name)
        return asker.to_cluster(operation)

    def refused(resource: Any) -> Any:
        if resource.resource_type == ConfigType.TOPIC:
            return row(resource, NO_TOPIC, _no(operation, resource.resource_name))
        return row(resource, NO_CLUSTER, _no(operation))

    return _each("resources", may, rows, refused, nothing)


_alter_configs = _of_settings(
    Operation.ALTER_CONFIGS,
    "responses",
    lambda one, code, text: AlterConfigsResourceResponse(code, text, one.resource_type, one.resource_name),
    AlterConfigsResponse(0, ()),
)


# --- groups -------------------------------------------------------------------------------------------------


def _refused_commit(topic: Any, code: ErrorCode = NO_TOPIC) -> OffsetCommitResponseTopic:
    rows = tuple(OffsetCommitResponsePartition(part.partition_index, code) for part in topic.partitions)
    return OffsetCommitResponseTopic(topic.name, rows)


_commit_topics = _each_topic(Operation.READ, _refused_commit, OffsetCommitResponse(0, ()))


def _offset_commit(
    asker: Requester, version: int, request: OffsetCommitRequest
) -> AuthorizationResult | None:
    if asker.to_group(Operation.READ, request.group_id):
        return _commit_topics(asker, version, request)
    rows = tuple(_refused_commit(topic, NO_GROUP) for topic in request.topics)
    return AuthorizationResult(None, lambda _: OffsetCommitResponse(0, rows))


def _refused_offset(topic: Any, code: ErrorCode = NO_TOPIC) -> OffsetFetchResponseTopic:
    rows = (
        OffsetFetchResponsePartition(index, _NO_OFFSET, _NO_OFFSET, "", code)
        for index in topic.partition_indexes
    )
    return OffsetFetchResponseTopic(topic.name, tuple(rows))


_fetch_topics = _each_topic(Operation.DESCRIBE, _refused_offset, OffsetFetchResponse(0, (), ErrorCode.NONE))


def _offset_fetch(asker: Requester, version: int, request: OffsetFetchRequest) -> AuthorizationResult | None:
    if not asker.to_group(Operation.DESCRIBE, request.group_id):
        # Where the group's error has no place, each partition has it.
        named = (request.topics or ()) if version < 2 else ()
        rows = tuple(_refused_offset(topic, NO_GROUP) for topic in named)
        return AuthorizationResult(None, lambda _: OffsetFetchResponse(0, rows, NO_GROUP))
    if request.topics is not None:
        return _fetch_topics(asker, version, request)

    def visible(served: Any) -> Any:
        seen = (one for one in served.topics if asker.to_topic(Operation.DESCRIBE, one.name))
        return replace(served, topics=tuple(seen))

    return AuthorizationResult(request, visible)


def _find_coordinator(
    asker: Requester, version: int, request: FindCoordinatorRequest
) -> AuthorizationResult | None:
    code = ErrorCode.NONE
    if request.key_type == CoordinatorType.TRANSACTION:
        if not asker.may(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, request.key):
            code = NO_TRANSACTIONS
    elif not asker.to_group(Operation.DESCRIBE, request.key):
        code = NO_GROUP
    if code is ErrorCode.NONE:
        return None
    return AuthorizationResult(None, lambda _: FindCoordinatorResponse(0, code, _WORDS[code], -1, "", -1))


def _list_groups(asker: Requester, version: int, request: ListGroupsRequest) -> AuthorizationResult | None:
    if asker.to_cluster(Operation.DESCRIBE):
        return None

    def visible(served: Any) -> Any:
        seen = (one for one in served.groups if asker.to_group(Operation.DESCRIBE, one.group_id))
        return replace(served, groups=tuple(seen))

    return AuthorizationResult(request, visible)


def _init_producer_id(
    asker: Requester, version: int, request: InitProducerIdRequest
) -> AuthorizationResult | None:
    name = request.transactional_id
    if name is None:
        allowed, code = asker.to_cluster(Operation.IDEMPOTENT_WRITE), NO_CLUSTER
    else:
        allowed = asker.may(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, name)
        code = NO_TRANSACTIONS
    if allowed:
        return None
    return AuthorizationResult(
        None, lambda _: InitProducerIdResponse(0, code, NO_PRODUCER_ID, NO_PRODUCER_EPOCH)
    )


def _replicas(row: Callable[[str, int, ErrorCode], Any], response: Callable[[ErrorCode, Any], Any]) -> Guard:
    def refusal(request: Any) -> Any:
        rows = tuple(row(one.topic, one.index, NO_CLUSTER) for one in request.partitions)
        return response(NO_CLUSTER, rows)

    return _of_cluster(Operation.CLUSTER_ACTION, refusal)


def _free(asker: Requester, version: int, request: Any) -> AuthorizationResult | None:
    return None


REQUEST_AUTHORIZERS: Mapping[ApiKey, Guard] = {
    ApiKey.PRODUCE: _produce,
    ApiKey.FETCH: _fetch,
    ApiKey.LIST_OFFSETS: _list_offsets,
    ApiKey.METADATA: _metadata,
    ApiKey.LEADER_AND_ISR: _replicas(LeaderAndIsrPartitionError, LeaderAndIsrResponse),
    ApiKey.STOP_REPLICA: _replicas(StopReplicaPartitionError, StopReplicaResponse),
    ApiKey.UPDATE_METADATA: _of_cluster(
        Operation.CLUSTER_ACTION, lambda request: UpdateMetadataResponse(NO_CLUSTER)
    ),
    ApiKey.CONTROLLED_SHUTDOWN: _of_cluster(
        Operation.CLUSTER_ACTION, lambda request: ControlledShutdownResponse(NO_CLUSTER, ())
    ),
    ApiKey.OFFSET_COMMIT: _offset_commit,
    ApiKey.OFFSET_FETCH: _offset_fetch,
    ApiKey.FIND_COORDINATOR: _find_coordinator,
    ApiKey.JOIN_GROUP: _of_member(
        lambda request: JoinGroupResponse(0, NO_GROUP, -1, "", "", request.member_id, ())
    ),
    ApiKey.HEARTBEAT: _of_member(lambda request: HeartbeatResponse(0, NO_GROUP)),
    ApiKey.LEAVE_GROUP: _of_member(lambda request: LeaveGroupResponse(0, NO_GROUP)),
    ApiKey.SYNC_GROUP: _of_member(lambda request: SyncGroupResponse(0, NO_GROUP, b"")),
    ApiKey.DESCRIBE_GROUPS: _each(
        "groups",
        lambda asker, name: asker.to_group(Operation.DESCRIBE, name),
        "groups",
        lambda name: DescribedGroup(NO_GROUP, name, "", "", "", ()),
        DescribeGroupsResponse(0, ()),
    ),
    ApiKey.LIST_GROUPS: _list_groups,
    ApiKey.API_VERSIONS: _free,
    ApiKey.CREATE_TOPICS: _each(
        "topics",
        lambda asker, topic: asker.may_create(topic.name),
        "topics",
        lambda topic: CreatableTopicResult(topic.name, NO_TOPIC, _no(Operation.CREATE, topic.name)),
        CreateTopicsResponse(0, ()),
    ),
    ApiKey.DELETE_TOPICS: _each(
        "topic_names",
        lambda asker, name: asker.to_topic(Operation.DELETE, name),
        "topics",
        lambda name: DeletableTopicResult(name, NO_TOPIC),
        DeleteTopicsResponse(0, ()),
    ),
    ApiKey.DELETE_RECORDS: _each_topic(Operation.DELETE, _refused_deletion, DeleteRecordsResponse(0, ())),
    ApiKey.INIT_PRODUCER_ID: _init_producer_id,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: _epochs,
    ApiKey.DESCRIBE_ACLS: _of_cluster(
        Operation.DESCRIBE, lambda request: DescribeAclsResponse(0, NO_CLUSTER, _no(Operation.DESCRIBE), ())
    ),
    ApiKey.CREATE_ACLS: _of_cluster(
        Operation.ALTER,
        lambda request: CreateAclsResponse(
            0, tuple(AclCreationResult(NO_CLUSTER, _no(Operation.ALTER)) for _ in request.creations)
        ),
    ),
    ApiKey.DELETE_ACLS: _of_cluster(
        Operation.ALTER,
        lambda request: DeleteAclsResponse(
            0, tuple(DeleteAclsFilterResult(NO_CLUSTER, _no(Operation.ALTER), ()) for _ in request.filters)
        ),
    ),
    # As Kafka: who may not describe the cluster is told of no directory.
    ApiKey.DESCRIBE_LOG_DIRS: _of_cluster(Operation.DESCRIBE, lambda request: DescribeLogDirsResponse(0, ())),
    ApiKey.DESCRIBE_CONFIGS: _of_settings(
        Operation.DESCRIBE_CONFIGS,
        "results",
        lambda one, code, text: DescribeConfigsResult(code, text, one.resource_type, one.resource_name, ()),
        DescribeConfigsResponse(0, ()),
    ),
    ApiKey.ALTER_CONFIGS: _alter_configs,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _alter_configs,
    ApiKey.CREATE_PARTITIONS: _each(
        "topics",
        lambda asker, topic: asker.to_topic(Operation.ALTER, topic.name),
        "results",
        lambda topic: CreatePartitionsTopicResult(topic.name, NO_TOPIC, _no(Operation.ALTER, topic.name)),
        CreatePartitionsResponse(0, ()),
    ),
    ApiKey.DELETE_GROUPS: _each(
        "groups_names",
        lambda asker, name: asker.to_group(Operation.DELETE, name),
        "results",
        lambda name: DeletableGroupResult(name, NO_GROUP),
        DeleteGroupsResponse(0, ()),
    ),
}
"""The guard of each API."""
