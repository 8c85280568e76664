"""What each request needs permission for, what its refusal looks like, and that no more is refused."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import pytest

from minikafka.base.acls import (
    ANONYMOUS,
    CLUSTER,
    WILDCARD_HOST,
    WILDCARD_RESOURCE,
    Acl,
    Operation,
    PatternType,
    Permission,
    Resource,
    ResourceType,
)
from minikafka.base.errors import ConfigError, ErrorCode
from minikafka.net.interfaces import Exchange, RequestHandler
from minikafka.records.format.batch import build_batch
from minikafka.records.format.message_set import Record, build_message_set
from minikafka.registry.acls import acl_path, change_resource
from minikafka.security.authorizer import Authorizer
from minikafka.security.principals import KafkaPrincipal
from minikafka.server.config.properties import BrokerConfig
from minikafka.server.handlers import Services, handlers
from minikafka.server.security.access_control import DecisionCache
from minikafka.server.security.request_authorizers import REQUEST_AUTHORIZERS
from minikafka.server.security.transaction_authorizers import TRANSACTION_AUTHORIZERS
from minikafka.wire.api import ApiKey
from minikafka.wire.apis.alter_configs import AlterConfigsRequest, AlterConfigsResource
from minikafka.wire.apis.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from minikafka.wire.apis.controlled_shutdown import ControlledShutdownRequest
from minikafka.wire.apis.create_acls import AclCreation, CreateAclsRequest
from minikafka.wire.apis.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from minikafka.wire.apis.create_topics import CreatableTopic, CreateTopicsRequest
from minikafka.wire.apis.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from minikafka.wire.apis.delete_groups import DeleteGroupsRequest
from minikafka.wire.apis.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from minikafka.wire.apis.delete_topics import DeleteTopicsRequest
from minikafka.wire.apis.describe_acls import DescribeAclsRequest
from minikafka.wire.apis.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from minikafka.wire.apis.describe_groups import DescribeGroupsRequest
from minikafka.wire.apis.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from minikafka.wire.apis.fetch import (
    FINAL_EPOCH,
    NEW_SESSION_EPOCH,
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ReplicaState,
)
from minikafka.wire.apis.find_coordinator import CoordinatorType, FindCoordinatorRequest
from minikafka.wire.apis.heartbeat import HeartbeatRequest
from minikafka.wire.apis.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from minikafka.wire.apis.init_producer_id import InitProducerIdRequest
from minikafka.wire.apis.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from minikafka.wire.apis.leader_and_isr import LeaderAndIsrPartition, LeaderAndIsrRequest
from minikafka.wire.apis.leave_group import LeaveGroupRequest
from minikafka.wire.apis.list_groups import ListGroupsRequest
from minikafka.wire.apis.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from minikafka.wire.apis.metadata import metadata_request
from minikafka.wire.apis.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from minikafka.wire.apis.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from minikafka.wire.apis.offset_for_leader_epoch import (
    EpochPartition,
    EpochTopic,
    OffsetForLeaderEpochRequest,
)
from minikafka.wire.apis.produce import ProducePartition, ProduceRequest, ProduceTopic
from minikafka.wire.apis.stop_replica import StopReplicaPartition, StopReplicaRequest
from minikafka.wire.apis.sync_group import SyncGroupRequest
from minikafka.wire.apis.update_metadata import UpdateMetadataRequest
from tests.support import requests
from tests.support.access_cases import (
    ADMIN_CASES,
    CLUSTER_DENIED,
    COPY_CASES,
    GROUP,
    GROUP_CASES,
    GROUP_DENIED,
    TOPIC_DENIED,
    Case,
)
from tests.support.guarded_broker import AUTHORIZER, OTHER, TOPIC, Guarded
from tests.support.requests import Request
from tests.support.simulation import Simulation

TRANSACTIONAL_ID_DENIED = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
DENIALS = {TOPIC_DENIED, GROUP_DENIED, CLUSTER_DENIED, TRANSACTIONAL_ID_DENIED}

TRANSACTIONS = Resource(ResourceType.TRANSACTIONAL_ID, "x")
MESSAGES = build_message_set([Record(None, b"v", 0)])
BATCH = build_batch([Record(None, b"v", 0)])
NUMBERED = build_batch([Record(None, b"v", 0)], producer_id=7, producer_epoch=0, base_sequence=0)

READ, WRITE, CREATE, DELETE = Operation.READ, Operation.WRITE, Operation.CREATE, Operation.DELETE
ALTER, DESCRIBE, ACTION = Operation.ALTER, Operation.DESCRIBE, Operation.CLUSTER_ACTION


@pytest.fixture
def world() -> Guarded:
    return Guarded()


def codes(answer: Any) -> set[ErrorCode]:
    """All error codes in an answer, wherever they stand."""
    return set(_codes(answer))


def _codes(value: Any) -> Iterator[ErrorCode]:
    if isinstance(value, tuple):
        for item in value:
            yield from _codes(item)
    elif dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            if field.name == "error_code":
                yield ErrorCode(getattr(value, field.name))
            else:
                yield from _codes(getattr(value, field.name))


def produce(records: bytes, transactional_id: str | None = None) -> ProduceRequest:
    return ProduceRequest(transactional_id, 1, 0, (ProduceTopic("t", (ProducePartition(0, records),)),))


def fetch(replica_id: int = -1, epoch: int = -1) -> FetchRequest:
    parts = (FetchTopic("t", (FetchPartition(0, -1, 0, -1, 100),)),)
    return FetchRequest(replica_id, 0, 0, 1000, 0, 0, epoch, parts)


def offsets(replica_id: int = -1) -> ListOffsetsRequest:
    return ListOffsetsRequest(replica_id, 0, (ListOffsetsTopic("t", (ListOffsetsPartition(0, -1, -1),)),))


COMMIT = OffsetCommitRequest(
    "g", -1, "", -1, (OffsetCommitRequestTopic("t", (OffsetCommitRequestPartition(0, 1, -1, -1, ""),)),)
)
COMMITTED = OffsetFetchRequest("g", (OffsetFetchRequestTopic("t", (0,)),))
JOIN = JoinGroupRequest("g", 10_000, 10_000, "", "consumer", (JoinGroupRequestProtocol("range", b""),))
RULE = AclCreation(2, "t", 3, "User:alice", "*", 3, 3)
FILTER = DeleteAclsFilter(2, "nobody", 3, None, None, 1, 1)
LED = LeaderAndIsrPartition("t", 0, 0, 0, 0, (0,), 0, (0,))
EPOCHS = OffsetForLeaderEpochRequest((EpochTopic("t", (EpochPartition(0, -1, 0),)),))
SETTINGS = AlterConfigsRequest((AlterConfigsResource(2, "t", ()),), validate_only=True)
MORE = CreatePartitionsRequest((CreatePartitionsTopic("t", 2, None),), 1000, validate_only=True)
MOVES = AlterReplicaLogDirsRequest((AlterReplicaLogDir("/kafka", (AlterReplicaLogDirTopic("t", (0,)),)),))
SOME = IncrementalAlterConfigsRequest((IncrementalAlterConfigsResource(2, "t", ()),), validate_only=True)
BROKER = DescribeConfigsRequest((DescribeConfigsResource(4, "0", None),))
TOPICS_OWN = DescribeConfigsRequest((DescribeConfigsResource(2, "t", None),))
GONE = DeleteRecordsRequest((DeleteRecordsTopic("t", (DeleteRecordsPartition(0, 0),)),), 1000)

K = ApiKey
CASES = [
    Case(K.PRODUCE, 2, produce(MESSAGES), ((WRITE, TOPIC),), TOPIC_DENIED),
    Case(K.PRODUCE, 7, produce(BATCH), ((WRITE, TOPIC),), TOPIC_DENIED),
    Case(K.PRODUCE, 6, produce(BATCH, "x"), ((WRITE, TOPIC), (WRITE, TRANSACTIONS)), TRANSACTIONAL_ID_DENIED),
    Case(K.PRODUCE, 7, produce(NUMBERED), ((WRITE, TOPIC),), TOPIC_DENIED),
    Case(K.FETCH, 2, fetch(), ((READ, TOPIC),), TOPIC_DENIED),
    Case(K.FETCH, 10, fetch(), ((READ, TOPIC),), TOPIC_DENIED),
    Case(K.FETCH, 2, fetch(replica_id=1), ((ACTION, CLUSTER),), TOPIC_DENIED),
    Case(K.FETCH, 8, fetch(replica_id=1, epoch=0), ((ACTION, CLUSTER),), TOPIC_DENIED),
    Case(K.LIST_OFFSETS, 0, offsets(), ((DESCRIBE, TOPIC),), TOPIC_DENIED),
    Case(K.LIST_OFFSETS, 4, offsets(), ((DESCRIBE, TOPIC),), TOPIC_DENIED),
    Case(K.LIST_OFFSETS, 4, offsets(replica_id=1), ((ACTION, CLUSTER),), TOPIC_DENIED),
    Case(K.METADATA, 1, metadata_request(("t",)), ((DESCRIBE, TOPIC),), TOPIC_DENIED),
    Case(K.LEADER_AND_ISR, 0, LeaderAndIsrRequest(1, 0, (LED,), ()), ((ACTION, CLUSTER),), CLUSTER_DENIED),
    Case(
        *(K.STOP_REPLICA, 0, StopReplicaRequest(1, 0, False, (StopReplicaPartition("t", 0),))),
        ((ACTION, CLUSTER),),
        CLUSTER_DENIED,
    ),
    Case(K.UPDATE_METADATA, 2, UpdateMetadataRequest(1, 0, (), ()), ((ACTION, CLUSTER),), CLUSTER_DENIED),
    Case(K.CONTROLLED_SHUTDOWN, 1, ControlledShutdownRequest(7), ((ACTION, CLUSTER),), CLUSTER_DENIED),
    Case(K.OFFSET_COMMIT, 2, COMMIT, ((READ, TOPIC), (READ, GROUP)), GROUP_DENIED),
    Case(K.OFFSET_COMMIT, 2, COMMIT, ((READ, GROUP), (READ, TOPIC)), TOPIC_DENIED),
    Case(K.OFFSET_FETCH, 0, COMMITTED, ((DESCRIBE, TOPIC), (DESCRIBE, GROUP)), GROUP_DENIED),
    Case(K.OFFSET_FETCH, 5, COMMITTED, ((DESCRIBE, GROUP), (DESCRIBE, TOPIC)), TOPIC_DENIED),
    Case(K.FIND_COORDINATOR, 0, FindCoordinatorRequest("g"), ((DESCRIBE, GROUP),), GROUP_DENIED),
    Case(
        *(K.FIND_COORDINATOR, 2, FindCoordinatorRequest("x", CoordinatorType.TRANSACTION)),
        ((DESCRIBE, TRANSACTIONS),),
        TRANSACTIONAL_ID_DENIED,
    ),
    Case(K.JOIN_GROUP, 3, JOIN, ((READ, GROUP),), GROUP_DENIED),
    Case(K.SYNC_GROUP, 0, SyncGroupRequest("g", 1, "m", ()), ((READ, GROUP),), GROUP_DENIED),
    Case(K.HEARTBEAT, 1, HeartbeatRequest("g", 1, "m"), ((READ, GROUP),), GROUP_DENIED),
    Case(K.LEAVE_GROUP, 1, LeaveGroupRequest("g", "m"), ((READ, GROUP),), GROUP_DENIED),
    Case(K.DESCRIBE_GROUPS, 2, DescribeGroupsRequest(("g",)), ((DESCRIBE, GROUP),), GROUP_DENIED),
    Case(K.DELETE_GROUPS, 1, DeleteGroupsRequest(("g",)), ((DELETE, GROUP),), GROUP_DENIED),
    Case(
        *(K.CREATE_TOPICS, 2, CreateTopicsRequest((CreatableTopic("new", 1, 1),), 1000)),
        ((CREATE, CLUSTER),),
        TOPIC_DENIED,
    ),
    Case(
        *(K.CREATE_TOPICS, 0, CreateTopicsRequest((CreatableTopic("new", 1, 1),), 1000)),
        ((CREATE, Resource(ResourceType.TOPIC, "new")),),
        TOPIC_DENIED,
    ),
    Case(K.DELETE_TOPICS, 1, DeleteTopicsRequest(("t",), 1000), ((DELETE, TOPIC),), TOPIC_DENIED),
    Case(K.DELETE_RECORDS, 1, GONE, ((DELETE, TOPIC),), TOPIC_DENIED),
    Case(K.CREATE_PARTITIONS, 1, MORE, ((ALTER, TOPIC),), TOPIC_DENIED),
    Case(
        *(K.INIT_PRODUCER_ID, 1, InitProducerIdRequest(None, 1000)),
        ((Operation.IDEMPOTENT_WRITE, CLUSTER),),
        CLUSTER_DENIED,
    ),
    Case(
        *(K.INIT_PRODUCER_ID, 1, InitProducerIdRequest("x", 1000)),
        ((WRITE, TRANSACTIONS),),
        TRANSACTIONAL_ID_DENIED,
    ),
    Case(K.OFFSET_FOR_LEADER_EPOCH, 0, EPOCHS, ((ACTION, CLUSTER),), TOPIC_DENIED),
    Case(K.OFFSET_FOR_LEADER_EPOCH, 2, EPOCHS, ((DESCRIBE, TOPIC),), TOPIC_DENIED),
    Case(
        *(K.DESCRIBE_ACLS, 1, DescribeAclsRequest(1, None, 1, None, None, 1, 1)),
        ((DESCRIBE, CLUSTER),),
        CLUSTER_DENIED,
    ),
    Case(K.CREATE_ACLS, 1, CreateAclsRequest((RULE, RULE)), ((ALTER, CLUSTER),), CLUSTER_DENIED),
    Case(K.DELETE_ACLS, 1, DeleteAclsRequest((FILTER, FILTER)), ((ALTER, CLUSTER),), CLUSTER_DENIED),
    Case(K.ALTER_REPLICA_LOG_DIRS, 2, MOVES, ((ALTER, CLUSTER),), CLUSTER_DENIED),
    Case(K.DESCRIBE_CONFIGS, 1, TOPICS_OWN, ((Operation.DESCRIBE_CONFIGS, TOPIC),), TOPIC_DENIED),
    Case(K.DESCRIBE_CONFIGS, 2, BROKER, ((Operation.DESCRIBE_CONFIGS, CLUSTER),), CLUSTER_DENIED),
    Case(K.ALTER_CONFIGS, 1, SETTINGS, ((Operation.ALTER_CONFIGS, TOPIC),), TOPIC_DENIED),
    Case(K.INCREMENTAL_ALTER_CONFIGS, 0, SOME, ((Operation.ALTER_CONFIGS, TOPIC),), TOPIC_DENIED),
    *ADMIN_CASES,
    *COPY_CASES,
    *GROUP_CASES,
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_request_is_refused_with_the_code_of_what_it_lacks(world: Guarded, case: Case) -> None:
    for operation, resource in case.needs[:-1]:
        world.allow(operation, resource)
    answer = world.call(Request(case.key, case.version, case.body))
    assert codes(answer) - {ErrorCode.NONE} == {case.refusal}


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_request_with_all_that_it_needs_is_not_refused(world: Guarded, case: Case) -> None:
    for operation, resource in case.needs:
        world.allow(operation, resource)
    answer = world.call(Request(case.key, case.version, case.body))
    assert not codes(answer) & DENIALS


def test_every_api_that_is_served_has_a_guard(world: Guarded) -> None:
    none: Any = None
    assert (
        REQUEST_AUTHORIZERS.keys()
        == handlers(Services(world.machine.broker, none, none, none, none, none)).keys()
    )
    tested_below = {
        K.DESCRIBE_CLUSTER,
        K.API_VERSIONS,
        K.LIST_GROUPS,
        K.DESCRIBE_LOG_DIRS,
        K.SASL_HANDSHAKE,
        K.SASL_AUTHENTICATE,
    }
    tested_elsewhere = TRANSACTION_AUTHORIZERS.keys()
    assert {case.key for case in CASES} | tested_below | tested_elsewhere == REQUEST_AUTHORIZERS.keys()


def test_who_may_write_to_a_topic_may_have_a_producer_id(world: Guarded) -> None:
    request = Request(K.INIT_PRODUCER_ID, 1, InitProducerIdRequest(None, 1000))
    world.allow(READ, TOPIC)
    assert world.call(request).error_code == CLUSTER_DENIED
    world.allow(WRITE, OTHER)
    assert world.call(request).error_code == 0


def test_only_denied_topics_of_a_request_are_rejected(world: Guarded) -> None:
    world.allow(WRITE, OTHER)
    topics = tuple(ProduceTopic(name, (ProducePartition(0, MESSAGES),)) for name in ("t", "other"))
    answer = world.call(Request(K.PRODUCE, 2, ProduceRequest(None, -1, 1000, topics)))
    assert {topic.name: topic.partitions[0].error_code for topic in answer.topics} == {"t": 29, "other": 0}


def test_without_an_answer_a_refused_message_ends_the_connection(world: Guarded) -> None:
    world.call(requests.produce("t", MESSAGES, acks=0))
    assert world.connection is not None
    assert world.connection.closed
    world.allow(WRITE, OTHER)
    topics = tuple(ProduceTopic(name, (ProducePartition(0, MESSAGES),)) for name in ("t", "other"))
    world.call(Request(K.PRODUCE, 2, ProduceRequest(None, 0, 1000, topics), answered=False))
    assert world.connection.closed


def test_a_fetch_that_is_refused_a_part_does_not_wait(world: Guarded) -> None:
    world.allow(READ, OTHER)
    parts = tuple(FetchTopic(name, (FetchPartition(0, -1, 0, -1, 100),)) for name in ("t", "other"))
    began_ms = world.clock.monotonic_ms()
    answer = world.call(Request(K.FETCH, 10, FetchRequest(-1, 5000, 1, 1000, 0, 0, -1, parts)))
    assert {topic.name: topic.partitions[0].error_code for topic in answer.topics} == {"t": 29, "other": 0}
    assert world.clock.monotonic_ms() == began_ms


@pytest.mark.parametrize("slots", [True, False], ids=["with a slot", "without one"])
def test_each_partition_of_a_new_session_is_checked(world: Guarded, slots: bool) -> None:
    world.allow(READ, OTHER)
    if not slots:
        world.machine.broker.fetch_sessions._slots = 0
    parts = tuple(FetchTopic(name, (FetchPartition(0, -1, 0, -1, 100),)) for name in ("t", "other"))
    began = world.call(Request(K.FETCH, 10, FetchRequest(-1, 0, 1, 1000, 0, 0, 0, parts)))
    assert bool(began.session_id) == slots
    assert {topic.name: topic.partitions[0].error_code for topic in began.topics} == {"t": 29, "other": 0}


def test_a_consumers_session_follows_its_permissions(world: Guarded) -> None:
    world.allow(READ, TOPIC)
    began = world.call(Request(K.FETCH, 10, fetch(epoch=0)))
    for epoch, allowed in enumerate((True, False, False, True), 1):
        world.allow(READ, TOPIC) if allowed else world.forget(TOPIC)
        more = FetchRequest(-1, 0, 1, 1000, 0, began.session_id, epoch, ())
        answer = world.call(Request(K.FETCH, 10, more))
        assert codes(answer.topics) == (set() if epoch == 1 else {ErrorCode(0 if allowed else 29)})


def test_a_followers_session_ends_with_its_permission(world: Guarded) -> None:
    world.allow(ACTION, CLUSTER)
    began = world.call(Request(K.FETCH, 8, fetch(replica_id=1, epoch=0)))
    assert began.session_id > 0
    world.forget(CLUSTER)
    more = FetchRequest(1, 0, 0, 1000, 0, began.session_id, 1, ())
    ended = world.call(Request(K.FETCH, 8, more))
    assert ended.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


@pytest.mark.parametrize("epoch", [FINAL_EPOCH, NEW_SESSION_EPOCH], ids=["alone", "session"])
def test_topics_are_checked_by_the_names_of_their_ids(world: Guarded, epoch: int) -> None:
    world.allow(READ, OTHER)
    ids = world.machine.broker.metadata_cache.topic_ids
    unknown, part = bytes(16), (FetchPartition(0, -1, 0, -1, 100),)
    topics = tuple(FetchTopic("", part, topic_id=one) for one in (ids["t"], ids["other"], unknown))
    answer = world.call(Request(K.FETCH, 17, FetchRequest(-1, 0, 1, 1000, 0, 0, epoch, topics)))
    found = {topic.topic_id: topic.partitions[0].error_code for topic in answer.topics}
    assert found == {ids["t"]: TOPIC_DENIED, ids["other"]: 0, unknown: ErrorCode.UNKNOWN_TOPIC_ID}


def test_a_newer_follower_needs_its_permission_too(world: Guarded) -> None:
    world.allow(READ, TOPIC)
    topic_id = world.machine.broker.metadata_cache.topic_ids["t"]
    topics = (FetchTopic("", (FetchPartition(0, -1, 0, -1, 100),), topic_id=topic_id),)
    body = FetchRequest(-1, 0, 0, 1000, 0, 0, 0, topics, replica_state=ReplicaState(1, -1))
    (denied,) = world.call(Request(K.FETCH, 17, body)).topics
    assert (denied.topic_id, denied.partitions[0].error_code) == (topic_id, TOPIC_DENIED)
    world.allow(ACTION, CLUSTER)
    (allowed,) = world.call(Request(K.FETCH, 17, body)).topics
    assert (allowed.topic_id, allowed.partitions[0].error_code) == (topic_id, 0)


def test_who_asks_for_all_topics_sees_those_that_they_may_describe(world: Guarded) -> None:
    world.allow(DESCRIBE, OTHER)
    assert [topic.name for topic in world.call(requests.metadata()).topics] == ["other"]


def test_brokers_are_told_of_where_every_topic_is_refused(world: Guarded) -> None:
    answer = world.call(requests.metadata("t"))
    assert [broker.node_id for broker in answer.brokers] == [0]


@pytest.mark.parametrize("resource", [CLUSTER, Resource(ResourceType.TOPIC, "new")], ids=str)
def test_a_topic_is_made_for_who_asks_for_it_and_may_create(world: Guarded, resource: Resource) -> None:
    world.allow(DESCRIBE, Resource(ResourceType.TOPIC, WILDCARD_RESOURCE))
    (refused,) = world.call(requests.metadata("new")).topics
    assert refused.error_code == TOPIC_DENIED
    world.allow(CREATE, resource)
    (coming,) = world.call(requests.metadata("new")).topics
    assert coming.error_code == ErrorCode.LEADER_NOT_AVAILABLE
    world.settle()
    (there,) = world.call(requests.metadata("new")).topics
    assert there.error_code == ErrorCode.NONE


def test_committed_offsets_show_only_topics_that_may_be_described(world: Guarded) -> None:
    for topic in ("t", "other"):
        world.allow(READ, Resource(ResourceType.TOPIC, topic))
    world.allow(READ, GROUP)
    world.call(Request(K.FIND_COORDINATOR, 0, FindCoordinatorRequest("g")))
    world.settle()
    rows = (OffsetCommitRequestPartition(0, 1, -1, -1, ""),)
    topics = tuple(OffsetCommitRequestTopic(name, rows) for name in ("t", "other"))
    done = world.call(Request(K.OFFSET_COMMIT, 2, OffsetCommitRequest("g", -1, "", -1, topics)))
    assert codes(done) == {ErrorCode.NONE}
    world.forget(TOPIC)
    shown = world.call(Request(K.OFFSET_FETCH, 2, OffsetFetchRequest("g", None)))
    assert [topic.name for topic in shown.topics] == ["other"]


def test_data_directories_are_named_to_who_may_describe_the_cluster(world: Guarded) -> None:
    request = Request(K.DESCRIBE_LOG_DIRS, 4, DescribeLogDirsRequest(None))
    assert (world.call(request).error_code, world.call(request).results) == (31, ())
    assert world.call(request.at(2)) == DescribeLogDirsResponse(0, ())
    world.allow(DESCRIBE, CLUSTER)
    assert len(world.call(request).results) == 1


def test_groups_are_listed_that_may_be_described_or_with_the_cluster_all(world: Guarded) -> None:
    for resource in (TOPIC, GROUP, Resource(ResourceType.GROUP, "h")):
        world.allow(READ, resource)
    world.call(Request(K.FIND_COORDINATOR, 0, FindCoordinatorRequest("g")))
    world.settle()
    for name in ("g", "h"):
        world.call(Request(K.OFFSET_COMMIT, 2, dataclasses.replace(COMMIT, group_id=name)))

    def listed() -> list[str]:
        answer = world.call(Request(K.LIST_GROUPS, 2, ListGroupsRequest()))
        return sorted(group.group_id for group in answer.groups)

    assert listed() == ["g", "h"]
    world.forget(GROUP)
    assert listed() == ["h"]
    world.allow(DESCRIBE, CLUSTER)
    assert listed() == ["g", "h"]


def test_controller_retries_until_the_other_broker_allows_it(
    world: Guarded, caplog: pytest.LogCaptureFixture
) -> None:
    other = world.machine_of(1)
    other.start(AUTHORIZER)
    for _ in range(5):
        world.clock.advance(1_000)
        world.settle()
    assert other.running is not None
    assert not other.running.serving.is_set()
    assert caplog.text.count("denies requests of its controller") == 1
    world.allow(ACTION, CLUSTER)
    world.clock.advance(1_000)
    world.settle()
    assert other.running.serving.is_set()


def test_rules_hold_as_soon_as_the_broker_hears_of_them(world: Guarded) -> None:
    assert world.produce("t", b"x").error_code == TOPIC_DENIED
    world.allow(WRITE, TOPIC)
    assert world.produce("t", b"x").error_code == ErrorCode.NONE
    world.allow(WRITE, TOPIC, Permission.DENY)
    assert world.produce("t", b"x").error_code == TOPIC_DENIED


class As:
    """Serves the requests of every connection as those of alice."""

    def __init__(self, handler: RequestHandler) -> None:
        self._handler = handler

    def on_request(self, exchange: Exchange, frame: memoryview) -> None:
        exchange.principal = KafkaPrincipal.user("alice")
        self._handler.on_request(exchange, frame)


def test_rules_are_about_the_principal_of_the_connection(caplog: pytest.LogCaptureFixture) -> None:
    world = Simulation()
    world.machine.intercept = As
    world.machine.start({**AUTHORIZER, "super.users": ANONYMOUS})
    store = world.zookeeper.connect()
    with caplog.at_level("INFO"):
        assert world.create_topic("t") == TOPIC_DENIED
    assert "denied: principal=User:alice host=" in caplog.text
    rule = Acl("User:alice", Permission.ALLOW, WILDCARD_HOST, CREATE)
    change_resource(store, CLUSTER, lambda rules: rules | {rule})
    world.settle()
    assert world.create_topic("t") == 0


def test_rules_of_before_the_start_hold_from_the_start_on() -> None:
    world = Simulation()
    rule = Acl(ANONYMOUS, Permission.ALLOW, WILDCARD_HOST, CREATE)
    change_resource(world.zookeeper.connect(), CLUSTER, lambda rules: rules | {rule})
    world.machine.start(AUTHORIZER)
    assert world.create_topic("t") == 0
    assert world.produce("t", b"x").error_code == TOPIC_DENIED


def test_super_users_need_no_rules() -> None:
    world = Simulation.serving("t", properties={**AUTHORIZER, "super.users": f"User:root; {ANONYMOUS}"})
    assert world.produce("t", b"x").error_code == ErrorCode.NONE


def test_everyone_is_allowed_without_acls_if_configured() -> None:
    world = Simulation.serving("t", properties={**AUTHORIZER, "allow.everyone.if.no.acl.found": "true"})
    rule = Acl("User:alice", Permission.ALLOW, WILDCARD_HOST, WRITE)
    change_resource(world.zookeeper.connect(), TOPIC, lambda rules: rules | {rule})
    world.settle()
    assert world.produce("t", b"x").error_code == TOPIC_DENIED


def test_rules_that_cannot_be_read_close_their_resource_alone(
    world: Guarded, caplog: pytest.LogCaptureFixture
) -> None:
    world.allow(WRITE, OTHER)
    world.allow(WRITE, TOPIC)
    world.rules.write(acl_path(TOPIC), b"{nonsense")
    world.rules.create("/kafka-acl-changes/acl_changes_", b"Topic:t", sequential=True)
    world.rules.create("/kafka-acl-changes/acl_changes_", b"nonsense", sequential=True)
    world.settle()
    assert world.produce("t", b"x").error_code == TOPIC_DENIED
    assert world.produce("other", b"x").error_code == ErrorCode.NONE
    assert "/kafka-acl/Topic/t" in caplog.text
    assert "/kafka-acl-changes/acl_changes_" in caplog.text


def test_at_the_start_too_what_cannot_be_read_is_closed(caplog: pytest.LogCaptureFixture) -> None:
    world = Simulation()
    store = world.zookeeper.connect()
    store.create(acl_path(TOPIC), b"{nonsense", make_parents=True)
    store.create("/kafka-acl/Nonsense")
    world.machine.start({**AUTHORIZER, "allow.everyone.if.no.acl.found": "true"})
    assert world.create_topic("t") == 0
    assert world.produce("t", b"x").error_code == TOPIC_DENIED
    assert "/kafka-acl/Topic/t" in caplog.text
    assert "/kafka-acl/Nonsense" in caplog.text


def test_rule_of_a_prefix_by_another_broker_holds_at_once(world: Guarded) -> None:
    prefix = Resource(ResourceType.TOPIC, "oth", PatternType.PREFIXED)
    world.allow(WRITE, prefix)
    assert world.produce("other", b"x").error_code == ErrorCode.NONE
    assert world.produce("t", b"x").error_code == TOPIC_DENIED


def test_prefix_whose_rules_cannot_be_read_is_closed(
    world: Guarded, caplog: pytest.LogCaptureFixture
) -> None:
    world.allow(WRITE, OTHER)
    world.allow(WRITE, TOPIC)
    prefix = Resource(ResourceType.TOPIC, "oth", PatternType.PREFIXED)
    world.allow(WRITE, prefix)
    world.rules.write(acl_path(prefix), b"{nonsense")
    change = b'{"version":1,"resourceType":"TOPIC","name":"oth","patternType":"PREFIXED"}'
    world.rules.create("/kafka-acl-extended-changes/acl_changes_", change, sequential=True)
    world.settle()
    assert world.produce("other", b"x").error_code == TOPIC_DENIED
    assert world.produce("t", b"x").error_code == ErrorCode.NONE
    assert acl_path(prefix) in caplog.text


def test_after_an_expired_session_rules_are_read_anew(world: Guarded) -> None:
    world.zookeeper.expire(world.machine.store)
    rule = Acl(ANONYMOUS, Permission.ALLOW, WILDCARD_HOST, WRITE)
    world.rules.create(acl_path(TOPIC), b"", make_parents=True)
    change_resource(world.rules, TOPIC, lambda rules: rules | {rule})
    for name in world.rules.children("/kafka-acl-changes"):
        world.rules.delete(f"/kafka-acl-changes/{name}")
    world.settle()
    world.clock.advance(30_000)
    world.settle()
    assert world.produce("t", b"x").error_code == ErrorCode.NONE


def test_another_authorizer_is_refused_by_its_name() -> None:
    given = {"zookeeper.connect": "z", "authorizer.class.name": "com.example.Mine"}
    with pytest.raises(ConfigError, match=r"com\.example\.Mine.*SimpleAclAuthorizer"):
        BrokerConfig.from_properties(given)


@pytest.mark.parametrize("name", ["auth.SimpleAclAuthorizer", "authorizer.AclAuthorizer"])
def test_authorizer_has_the_names_of_old_and_new_releases(name: str) -> None:
    given = {"zookeeper.connect": "z", "authorizer.class.name": f"kafka.security.{name}"}
    assert BrokerConfig.from_properties(given).authorizer is not None


def test_a_decision_is_made_once_and_a_refusal_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    decisions = DecisionCache(Authorizer())
    with caplog.at_level("INFO"):
        answers = {
            decisions.allows("User:alice", "127.0.0.1", WRITE, ResourceType.TOPIC, "t") for _ in range(3)
        }
    assert answers == {False}
    assert caplog.messages == ["denied: principal=User:alice host=127.0.0.1 operation=Write resource=Topic:t"]
