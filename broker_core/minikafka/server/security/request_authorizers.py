"""The permissions that each API needs, and the response to a request that lacks them.

As in ``KafkaApis`` of 3.9, for all versions: a topic that the client may not describe gets
TOPIC_AUTHORIZATION_FAILED when the request names it, and is left out of a listing of all topics (0.10.1
answers UNKNOWN_TOPIC_OR_PARTITION in some places); CREATE on a topic needs no cluster-wide permission.
Beyond Kafka, a broker with ClusterAction may list the offsets of partitions that it replicates.

A request authorizer splits a request: its ``AuthorizationResult`` holds the part to serve, and adds the
denials to the response (``authorization``). ``REQUEST_AUTHORIZERS`` has one for every API that is served.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from minikafka.base.acls import Operation, ResourceType
from minikafka.base.errors import ErrorCode
from minikafka.server.security.admin_authorizers import ADMIN_AUTHORIZERS
from minikafka.server.security.authorization import (
    CLUSTER_DENIED,
    NO_OFFSET,
    TOPIC_DENIED,
    TRANSACTIONAL_ID_DENIED,
    AuthorizationResult,
    RequestAuthorizer,
    Requester,
    cluster_request,
    denial_message,
    denied_topic,
    each_item,
    each_topic,
)
from minikafka.server.security.group_authorizers import GROUP_AUTHORIZERS
from minikafka.server.security.topic_authorizers import TOPIC_AUTHORIZERS
from minikafka.server.security.transaction_authorizers import TRANSACTION_AUTHORIZERS
from minikafka.wire.api import ApiKey
from minikafka.wire.apis.alter_configs import AlterConfigsResourceResponse, AlterConfigsResponse
from minikafka.wire.apis.alter_replica_log_dirs import alter_log_dirs_response, log_dirs_of
from minikafka.wire.apis.controlled_shutdown import ControlledShutdownResponse
from minikafka.wire.apis.copy_batches import CopyBatchesRequest
from minikafka.wire.apis.create_acls import AclCreationResult, CreateAclsResponse
from minikafka.wire.apis.create_partitions import CreatePartitionsResponse, CreatePartitionsTopicResult
from minikafka.wire.apis.delete_acls import DeleteAclsFilterResult, DeleteAclsResponse
from minikafka.wire.apis.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from minikafka.wire.apis.describe_acls import DescribeAclsResponse
from minikafka.wire.apis.describe_configs import (
    ConfigResourceType,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from minikafka.wire.apis.describe_log_dirs import DescribeLogDirsResponse
from minikafka.wire.apis.fetch import (
    FINAL_EPOCH,
    NEW_SESSION_EPOCH,
    NO_SESSION,
    FetchPartitionResponse,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    FetchTopicResponse,
)
from minikafka.wire.apis.init_producer_id import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from minikafka.wire.apis.leader_and_isr import LeaderAndIsrPartitionError, LeaderAndIsrResponse
from minikafka.wire.apis.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
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
from minikafka.wire.apis.update_metadata import UpdateMetadataResponse

# --- records ------------------------------------------------------------------------------------------------

_denied_produce = denied_topic(
    ProduceTopicResponse, lambda part, code: ProducePartitionResponse(part.index, code, NO_OFFSET)
)
_produce_topics = each_topic(Operation.WRITE, _denied_produce, ProduceResponse(()))


def _produce(
    requester: Requester, version: int, request: ProduceRequest | CopyBatchesRequest
) -> AuthorizationResult | None:
    if request.transactional_id is not None:
        code = _transactional_id_denial(requester, request.transactional_id)
        if code is not ErrorCode.NONE:
            rows = tuple(_denied_produce(topic, code) for topic in request.topics)
            answer = ProduceResponse(rows)
            return AuthorizationResult(None, lambda _: answer, needs_no_response=request.acks == 0)
    result = _produce_topics(requester, version, request)
    return None if result is None else replace(result, needs_no_response=request.acks == 0)


def _copy_batches(
    requester: Requester, version: int, request: CopyBatchesRequest
) -> AuthorizationResult | None:
    """Authorize CopyBatches as Produce, and Read on the sources: without it the client copies, and gets the
    error of its fetch.
    """
    sources = {part.source_topic for topic in request.topics for part in topic.partitions}
    if all(requester.may_on_topic(Operation.READ, source) for source in sources):
        return _produce(requester, version, request)
    rows = tuple(_denied_produce(topic, ErrorCode.OPERATION_NOT_ATTEMPTED) for topic in request.topics)
    return AuthorizationResult(None, lambda _: ProduceResponse(rows), needs_no_response=request.acks == 0)


def _transactional_id_denial(requester: Requester, transactional_id: str) -> ErrorCode:
    """Return the error if the client may not write with that transactional id; else NONE."""
    allowed = requester.may(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id)
    return ErrorCode.NONE if allowed else TRANSACTIONAL_ID_DENIED


def _producer_id_denial(requester: Requester, transactional_id: str | None) -> ErrorCode:
    """Return the error if the client may not have a producer id; else NONE.

    As since Kafka 2.8 (KIP-679), whoever may write to a topic may have one.
    """
    if transactional_id is not None:
        return _transactional_id_denial(requester, transactional_id)
    allowed = requester.may_on_any(Operation.WRITE, ResourceType.TOPIC) or requester.may_on_cluster(
        Operation.IDEMPOTENT_WRITE
    )
    return ErrorCode.NONE if allowed else CLUSTER_DENIED


def _denied_fetch(topic: FetchTopic) -> FetchTopicResponse:
    parts = (
        FetchPartitionResponse(part.index, TOPIC_DENIED, NO_OFFSET, NO_OFFSET, NO_OFFSET, (), b"")
        for part in topic.partitions
    )
    return FetchTopicResponse(topic.name, tuple(parts), topic_id=topic.topic_id)


_no_fetch = FetchResponse(0, ErrorCode.NONE, NO_SESSION, ())


def _fetch(requester: Requester, version: int, request: FetchRequest) -> AuthorizationResult | None:
    if request.follower_id < 0:
        # The partitions of a session are not all named: each is checked when it is read.
        return AuthorizationResult(request, lambda served: served)
    if requester.may_on_cluster(Operation.CLUSTER_ACTION):
        return None
    if request.session_epoch not in {NEW_SESSION_EPOCH, FINAL_EPOCH}:
        # An incremental request names only changes; a new session names all partitions and gets their errors.
        lost = replace(_no_fetch, error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        return AuthorizationResult(None, lambda _: lost)
    rows = tuple(map(_denied_fetch, request.topics))
    return AuthorizationResult(None, lambda _: replace(_no_fetch, topics=rows))


_consumer_offsets = each_topic(
    Operation.DESCRIBE,
    denied_topic(ListOffsetsTopicResponse, lambda part, code: ListOffsetsPartitionResponse(part.index, code)),
    ListOffsetsResponse(0, ()),
)


def _list_offsets(
    requester: Requester, version: int, request: ListOffsetsRequest
) -> AuthorizationResult | None:
    if request.replica_id >= 0 and requester.may_on_cluster(Operation.CLUSTER_ACTION):
        return None
    return _consumer_offsets(requester, version, request)


_topics_epochs = each_topic(
    Operation.DESCRIBE,
    denied_topic(
        EpochTopicResponse, lambda part, code: EpochPartitionResponse(code, part.index, NO_OFFSET, NO_OFFSET)
    ),
    OffsetForLeaderEpochResponse(0, ()),
)


def _offset_for_leader_epoch(requester: Requester, version: int, request: Any) -> AuthorizationResult | None:
    if requester.may_on_cluster(Operation.CLUSTER_ACTION):
        return None
    return _topics_epochs(requester, version, request)


# --- topics and settings ------------------------------------------------------------------------------------


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
            return row(resource, TOPIC_DENIED, denial_message(operation, resource.resource_name))
        return row(resource, CLUSTER_DENIED, denial_message(operation))

    return each_item("resources", may, rows, denied, nothing)


_alter_configs = _config_request(
    Operation.ALTER_CONFIGS,
    "responses",
    lambda resource, code, text: AlterConfigsResourceResponse(
        code, text, resource.resource_type, resource.resource_name
    ),
    AlterConfigsResponse(0, ()),
)


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

    return cluster_request(Operation.CLUSTER_ACTION, denial)


def _always_allowed(requester: Requester, version: int, request: Any) -> AuthorizationResult | None:
    return None


REQUEST_AUTHORIZERS: Mapping[ApiKey, RequestAuthorizer] = {
    **ADMIN_AUTHORIZERS,
    **GROUP_AUTHORIZERS,
    **TRANSACTION_AUTHORIZERS,
    ApiKey.PRODUCE: _produce,
    ApiKey.COPY_BATCHES: _copy_batches,
    ApiKey.FETCH: _fetch,
    ApiKey.LIST_OFFSETS: _list_offsets,
    ApiKey.LEADER_AND_ISR: _replica_request(LeaderAndIsrPartitionError, LeaderAndIsrResponse),
    ApiKey.STOP_REPLICA: _replica_request(StopReplicaPartitionError, StopReplicaResponse),
    ApiKey.UPDATE_METADATA: cluster_request(
        Operation.CLUSTER_ACTION, lambda request: UpdateMetadataResponse(CLUSTER_DENIED)
    ),
    ApiKey.CONTROLLED_SHUTDOWN: cluster_request(
        Operation.CLUSTER_ACTION, lambda request: ControlledShutdownResponse(CLUSTER_DENIED, ())
    ),
    ApiKey.API_VERSIONS: _always_allowed,
    ApiKey.SASL_HANDSHAKE: _always_allowed,
    ApiKey.SASL_AUTHENTICATE: _always_allowed,
    **TOPIC_AUTHORIZERS,
    ApiKey.DELETE_RECORDS: each_topic(
        Operation.DELETE,
        denied_topic(
            DeleteRecordsTopicResult,
            lambda part, code: DeleteRecordsPartitionResult(part.index, NO_OFFSET, code),
        ),
        DeleteRecordsResponse(0, ()),
    ),
    ApiKey.INIT_PRODUCER_ID: _init_producer_id,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: _offset_for_leader_epoch,
    ApiKey.DESCRIBE_ACLS: cluster_request(
        Operation.DESCRIBE,
        lambda request: DescribeAclsResponse(0, CLUSTER_DENIED, denial_message(Operation.DESCRIBE), ()),
    ),
    ApiKey.CREATE_ACLS: cluster_request(
        Operation.ALTER,
        lambda request: CreateAclsResponse(
            0,
            tuple(
                AclCreationResult(CLUSTER_DENIED, denial_message(Operation.ALTER)) for _ in request.creations
            ),
        ),
    ),
    ApiKey.DELETE_ACLS: cluster_request(
        Operation.ALTER,
        lambda request: DeleteAclsResponse(
            0,
            tuple(
                DeleteAclsFilterResult(CLUSTER_DENIED, denial_message(Operation.ALTER), ())
                for _ in request.filters
            ),
        ),
    ),
    ApiKey.ALTER_REPLICA_LOG_DIRS: cluster_request(
        Operation.ALTER,
        lambda request: alter_log_dirs_response(dict.fromkeys(log_dirs_of(request), CLUSTER_DENIED)),
    ),
    # As in Kafka: without DESCRIBE on the cluster no directory is listed, before version 3 without an error.
    ApiKey.DESCRIBE_LOG_DIRS: cluster_request(
        Operation.DESCRIBE, lambda request: DescribeLogDirsResponse(0, (), error_code=CLUSTER_DENIED)
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
    ApiKey.CREATE_PARTITIONS: each_item(
        "topics",
        lambda requester, topic: requester.may_on_topic(Operation.ALTER, topic.name),
        "results",
        lambda topic: CreatePartitionsTopicResult(
            topic.name, TOPIC_DENIED, denial_message(Operation.ALTER, topic.name)
        ),
        CreatePartitionsResponse(0, ()),
    ),
}
"""The authorizer of each API."""
