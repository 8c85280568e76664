"""Metadata: the brokers, and the topics with their leaders.

Version 0 cannot request no topics: an empty list requests all. From version 1 on null requests all, and the
response has the controller, racks and internal topics. Version 2 adds the cluster id, version 3
throttle_time_ms. Version 4: the client can prevent the automatic creation of topics. Version 5: offline
replicas; version 7: leader epochs; version 6 is the same as 5.
"""

from __future__ import annotations

from minikafka.base.values import fast_value
from minikafka.wire.api import Api, ApiKey
from minikafka.wire.schema import (
    BOOLEAN,
    INT16,
    INT32,
    NULLABLE_STRING,
    STRING,
    ArrayOf,
    Struct,
    array,
    field,
)


@fast_value
class MetadataRequest:
    """The topics to describe. ``topics`` None requests all, in every version."""

    topics: tuple[str, ...] | None
    allow_auto_topic_creation: bool = True


@fast_value
class MetadataBroker:
    """The address of one broker."""

    node_id: int
    host: str
    port: int
    rack: str | None = None


@fast_value
class MetadataPartition:
    """A partition, with its leader and replicas. ``leader_id`` -1: there is no leader."""

    error_code: int
    index: int
    leader_id: int
    leader_epoch: int
    replica_nodes: tuple[int, ...]
    isr_nodes: tuple[int, ...]
    offline_replicas: tuple[int, ...] = ()


@fast_value
class MetadataTopic:
    """A topic with all its partitions."""

    error_code: int
    name: str
    is_internal: bool
    partitions: tuple[MetadataPartition, ...]


@fast_value
class MetadataResponse:
    """The cluster as one broker knows it."""

    throttle_time_ms: int
    brokers: tuple[MetadataBroker, ...]
    cluster_id: str | None
    controller_id: int
    topics: tuple[MetadataTopic, ...]


METADATA = Api(
    ApiKey.METADATA,
    "Metadata",
    0,
    7,
    request=Struct(
        MetadataRequest,
        field("topics", ArrayOf(STRING, empty_is_null=True), "empty: all", until=0),
        field("topics", ArrayOf(STRING, nullable=True), "null: all", since=1),
        field("allow_auto_topic_creation", BOOLEAN, since=4, default=True),
    ),
    response=Struct(
        MetadataResponse,
        field("throttle_time_ms", INT32, since=3, default=0),
        array(
            "brokers",
            MetadataBroker,
            field("node_id", INT32),
            field("host", STRING),
            field("port", INT32),
            field("rack", NULLABLE_STRING, since=1),
        ),
        field("cluster_id", NULLABLE_STRING, since=2),
        field("controller_id", INT32, "-1: none", since=1, default=-1),
        array(
            "topics",
            MetadataTopic,
            field("error_code", INT16),
            field("name", STRING),
            field("is_internal", BOOLEAN, since=1, default=False),
            array(
                "partitions",
                MetadataPartition,
                field("error_code", INT16),
                field("index", INT32),
                field("leader_id", INT32, "-1: none"),
                field("leader_epoch", INT32, "-1: unknown", since=7, default=-1),
                field("replica_nodes", ArrayOf(INT32), "the first is preferred"),
                field("isr_nodes", ArrayOf(INT32), "in-sync replicas"),
                field("offline_replicas", ArrayOf(INT32), since=5, default=()),
            ),
        ),
    ),
)
