"""Requests of the protocol by what tests name in them: topics, groups, partitions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from minikafka.wire.api import ApiKey
from minikafka.wire.apis.alter_configs import AlterableConfig, AlterConfigsRequest, AlterConfigsResource
from minikafka.wire.apis.create_acls import AclCreation, CreateAclsRequest
from minikafka.wire.apis.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from minikafka.wire.apis.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from minikafka.wire.apis.delete_groups import DeleteGroupsRequest
from minikafka.wire.apis.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from minikafka.wire.apis.delete_topics import DeleteTopicsRequest
from minikafka.wire.apis.describe_configs import (
    ConfigResourceType,
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from minikafka.wire.apis.describe_groups import DescribeGroupsRequest
from minikafka.wire.apis.fetch import FetchPartition, FetchRequest, FetchTopic
from minikafka.wire.apis.find_coordinator import FindCoordinatorRequest
from minikafka.wire.apis.heartbeat import HeartbeatRequest
from minikafka.wire.apis.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from minikafka.wire.apis.leave_group import LeaveGroupRequest
from minikafka.wire.apis.list_offsets import (
    LATEST,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from minikafka.wire.apis.metadata import metadata_request
from minikafka.wire.apis.offset_commit import (
    DEFAULT_RETENTION,
    NO_GENERATION,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from minikafka.wire.apis.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from minikafka.wire.apis.produce import ProducePartition, ProduceRequest, ProduceTopic
from minikafka.wire.apis.sync_group import SyncGroupRequest, SyncGroupRequestAssignment


@dataclass(frozen=True, slots=True)
class Request:
    """One request of the protocol, to be sent as ``version`` of its API."""

    key: ApiKey
    version: int
    body: Any
    answered: bool = True
    """False for a produce request with acks=0."""

    def at(self, version: int) -> Request:
        """Return the request in this version."""
        return replace(self, version=version)


def metadata(*topics: str) -> Request:
    """A metadata request for ``topics``, or for all."""
    return Request(ApiKey.METADATA, 2, metadata_request(topics or None))


# --- topics -------------------------------------------------------------------------------------------------


def create_topic(
    name: str,
    partitions: int = 1,
    *,
    replicas: int = 1,
    timeout_ms: int = 5000,
    settings: Mapping[str, str] | None = None,
) -> Request:
    """A request to create one topic."""
    configs = tuple(CreatableTopicConfig(*setting) for setting in (settings or {}).items())
    return create_topics(CreatableTopic(name, partitions, replicas, (), configs), timeout_ms=timeout_ms)


def place_topic(name: str, *replicas: tuple[int, ...]) -> Request:
    """A request to create a topic whose partitions have these replicas."""
    assignment = tuple(CreatableReplicaAssignment(*partition) for partition in enumerate(replicas))
    return create_topics(CreatableTopic(name, -1, -1, assignment))


def create_topics(
    *topics: CreatableTopic, timeout_ms: int = 5000, validate_only: bool | None = None
) -> Request:
    """A request to create topics; only version 1 can ask for a validation."""
    body = CreateTopicsRequest(topics, timeout_ms, bool(validate_only))
    return Request(ApiKey.CREATE_TOPICS, 0 if validate_only is None else 1, body)


def delete_topics(*names: str, timeout_ms: int = 0) -> Request:
    return Request(ApiKey.DELETE_TOPICS, 1, DeleteTopicsRequest(names, timeout_ms))


def create_partitions(
    *topics: CreatePartitionsTopic, timeout_ms: int = 0, validate_only: bool = False
) -> Request:
    return Request(ApiKey.CREATE_PARTITIONS, 0, CreatePartitionsRequest(topics, timeout_ms, validate_only))


def alter_configs(*topics: str, name: str = "retention.ms", value: str = "1") -> Request:
    configs = (AlterableConfig(name, value),)
    resources = tuple(AlterConfigsResource(ConfigResourceType.TOPIC, topic, configs) for topic in topics)
    return Request(ApiKey.ALTER_CONFIGS, 0, AlterConfigsRequest(resources, False))


def describe_configs(*topics: str, include_synonyms: bool = False) -> Request:
    resources = tuple(DescribeConfigsResource(ConfigResourceType.TOPIC, topic, None) for topic in topics)
    return Request(ApiKey.DESCRIBE_CONFIGS, 1, DescribeConfigsRequest(resources, include_synonyms))


def create_acls(*topics: str, pattern_type: int = 3) -> Request:
    """A request to let a user read ``topics``; the default pattern type is that of literal names."""
    creations = (AclCreation(2, topic, pattern_type, "User:a", "*", 3, 3) for topic in topics)
    return Request(ApiKey.CREATE_ACLS, 1, CreateAclsRequest(tuple(creations)))


# --- records ------------------------------------------------------------------------------------------------


def produce(
    topic: str, message_set: bytes, *, partitions: Iterable[int] = (0,), acks: int = -1, version: int = 2
) -> Request:
    """A produce request with the same message set for each of ``partitions``."""
    parts = tuple(ProducePartition(partition, message_set) for partition in partitions)
    body = ProduceRequest(None, acks, 5000, (ProduceTopic(topic, parts),))
    return Request(ApiKey.PRODUCE, version, body, answered=acks != 0)


def fetch(
    topic: str,
    offset: int = 0,
    *,
    partition: int = 0,
    wait_ms: int = 0,
    min_bytes: int = 1,
    max_bytes: int = 1 << 20,
    version: int = 3,
    leader_epoch: int = -1,
    isolation_level: int = 0,
) -> Request:
    """A fetch request for one partition."""
    part = FetchPartition(partition, leader_epoch, offset, -1, max_bytes)
    body = FetchRequest(
        -1, wait_ms, min_bytes, 1 << 24, isolation_level, 0, -1, (FetchTopic(topic, (part,)),)
    )
    return Request(ApiKey.FETCH, version, body)


def list_offsets(
    *topics: str,
    partitions: Iterable[int] = (0,),
    timestamp_ms: int = LATEST,
    replica_id: int = -1,
    isolation_level: int = 0,
) -> Request:
    parts = tuple(ListOffsetsPartition(number, -1, timestamp_ms, 1) for number in partitions)
    wanted = tuple(ListOffsetsTopic(topic, parts) for topic in topics)
    return Request(ApiKey.LIST_OFFSETS, 1, ListOffsetsRequest(replica_id, isolation_level, wanted))


def delete_records(*topics: str, partitions: Iterable[int] = (0,), offset: int = -1) -> Request:
    parts = tuple(DeleteRecordsPartition(number, offset) for number in partitions)
    wanted = tuple(DeleteRecordsTopic(topic, parts) for topic in topics)
    return Request(ApiKey.DELETE_RECORDS, 0, DeleteRecordsRequest(wanted, 1_000))


# --- groups -------------------------------------------------------------------------------------------------


def find_coordinator(group: str = "g") -> Request:
    return Request(ApiKey.FIND_COORDINATOR, 0, FindCoordinatorRequest(group))


def join_group(
    group: str = "g",
    protocols: Mapping[str, bytes] | None = None,
    *,
    member_id: str = "",
    session_ms: int = 10_000,
    rebalance_ms: int = 10_000,
) -> Request:
    offered = ({"p": b""} if protocols is None else protocols).items()
    body = JoinGroupRequest(
        group,
        session_ms,
        rebalance_ms,
        member_id,
        "consumer",
        tuple(JoinGroupRequestProtocol(*protocol) for protocol in offered),
    )
    return Request(ApiKey.JOIN_GROUP, 1, body)


def sync_group(
    group: str, generation: int, member_id: str, shares: Mapping[str, bytes] | None = None
) -> Request:
    """A request for a member's share; the leader sends the ``shares`` of all members."""
    assignments = tuple(SyncGroupRequestAssignment(*share) for share in (shares or {}).items())
    return Request(ApiKey.SYNC_GROUP, 0, SyncGroupRequest(group, generation, member_id, assignments))


def heartbeat(group: str, generation: int, member_id: str) -> Request:
    return Request(ApiKey.HEARTBEAT, 0, HeartbeatRequest(group, generation, member_id))


def leave_group(group: str, member_id: str) -> Request:
    return Request(ApiKey.LEAVE_GROUP, 0, LeaveGroupRequest(group, member_id))


def commit_offsets(
    *topics: str,
    group: str = "g",
    offsets: Mapping[int, int] | None = None,
    generation: int = NO_GENERATION,
    member_id: str = "",
) -> Request:
    """A request to commit the same ``offsets`` by partition for each topic."""
    parts = tuple(
        OffsetCommitRequestPartition(number, offset, -1, DEFAULT_RETENTION, "")
        for number, offset in ({0: 5} if offsets is None else offsets).items()
    )
    committed = tuple(OffsetCommitRequestTopic(topic, parts) for topic in topics)
    body = OffsetCommitRequest(group, generation, member_id, DEFAULT_RETENTION, committed)
    return Request(ApiKey.OFFSET_COMMIT, 2, body)


def fetch_offsets(*topics: str, group: str = "g", partitions: Iterable[int] = (0,)) -> Request:
    """A request for the committed offsets of ``topics``, or, from version 2, of all."""
    wanted = tuple(OffsetFetchRequestTopic(topic, tuple(partitions)) for topic in topics)
    return Request(ApiKey.OFFSET_FETCH, 2, OffsetFetchRequest(group, wanted or None))


def describe_groups(*groups: str) -> Request:
    return Request(ApiKey.DESCRIBE_GROUPS, 0, DescribeGroupsRequest(groups))


def delete_groups(*groups: str) -> Request:
    return Request(ApiKey.DELETE_GROUPS, 0, DeleteGroupsRequest(groups))
