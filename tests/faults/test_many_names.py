"""Requests that name very many topics, groups or partitions, on many connections at a time. See
``attack`` for who else is there, and what must hold for them.
"""

from __future__ import annotations

import struct

import pytest

from minikafka.wire.api import ApiKey
from minikafka.wire.apis.alter_configs import AlterableConfig, AlterConfigsRequest, AlterConfigsResource
from minikafka.wire.apis.create_acls import AclCreation, CreateAclsRequest
from minikafka.wire.apis.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from minikafka.wire.apis.create_topics import CreatableTopic, CreateTopicsRequest
from minikafka.wire.apis.delete_topics import DeleteTopicsRequest
from minikafka.wire.apis.describe_groups import DescribeGroupsRequest
from minikafka.wire.apis.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from minikafka.wire.apis.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from minikafka.wire.apis.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from tests.faults.attack import AttackedBroker, Others, asking, read_exactly, reads_proc
from tests.support import simulation
from tests.support.simulation import Request

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.timeout(300), reads_proc]

CONNECTIONS = 20
NAMES = tuple(f"n{number}" for number in range(60_000))


def alter_configs() -> Request:
    configs = (AlterableConfig("retention.ms", "1"),)
    resources = tuple(AlterConfigsResource(2, name, configs) for name in NAMES)
    return Request(ApiKey.ALTER_CONFIGS, 0, AlterConfigsRequest(resources, False))


def create_acls() -> Request:
    creations = tuple(AclCreation(2, name, 3, "User:a", "*", 3, 3) for name in NAMES)
    return Request(ApiKey.CREATE_ACLS, 1, CreateAclsRequest(creations))


def create_topics() -> Request:
    topics = tuple(CreatableTopic(name, 1, 9) for name in NAMES[:10_000])
    return Request(ApiKey.CREATE_TOPICS, 1, CreateTopicsRequest(topics, 1_000))


def delete_topics() -> Request:
    return Request(ApiKey.DELETE_TOPICS, 1, DeleteTopicsRequest(NAMES, 1_000))


def create_partitions() -> Request:
    topics = tuple(CreatePartitionsTopic(name, 5, None) for name in NAMES)
    return Request(ApiKey.CREATE_PARTITIONS, 0, CreatePartitionsRequest(topics, 1_000, False))


def describe_groups() -> Request:
    return Request(ApiKey.DESCRIBE_GROUPS, 0, DescribeGroupsRequest(NAMES))


def commit_offsets() -> Request:
    parts = (OffsetCommitRequestPartition(0, 5, -1, -1, ""),)
    topics = tuple(OffsetCommitRequestTopic(name, parts) for name in NAMES)
    return Request(ApiKey.OFFSET_COMMIT, 2, OffsetCommitRequest("g", -1, "", -1, topics))


def fetch_offsets() -> Request:
    topics = tuple(OffsetFetchRequestTopic(name, (0,)) for name in NAMES)
    return Request(ApiKey.OFFSET_FETCH, 1, OffsetFetchRequest("g", topics))


def list_offsets() -> Request:
    parts = (ListOffsetsPartition(0, -1, -1, 1),)
    topics = tuple(ListOffsetsTopic(name, parts) for name in NAMES)
    return Request(ApiKey.LIST_OFFSETS, 1, ListOffsetsRequest(-1, 0, topics))


def metadata() -> Request:
    return simulation.metadata(*NAMES)


def produce() -> Request:
    return simulation.produce("steady", b"", partitions=tuple(range(1, len(NAMES))), version=7)


@pytest.mark.parametrize(
    "request_of",
    [
        delete_topics,
        *(
            pytest.param(request_of, marks=pytest.mark.long)
            for request_of in (
                alter_configs,
                create_acls,
                create_topics,
                create_partitions,
                describe_groups,
                commit_offsets,
                fetch_offsets,
                list_offsets,
                metadata,
                produce,
            )
        ),
    ],
    ids=lambda request_of: request_of.__name__,
)
def test_requests_that_name_very_many_stop_nobody(broker: AttackedBroker, request_of: object) -> None:
    assert callable(request_of)
    with Others(broker), asking(broker, request_of(), CONNECTIONS) as socks:
        for sock in socks:
            (size,) = struct.unpack(">i", read_exactly(sock, 4))
            while size:
                received = len(sock.recv(min(size, 1 << 20)))
                assert received, "the broker has closed the connection"
                size -= received
