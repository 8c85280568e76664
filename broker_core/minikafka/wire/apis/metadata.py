"""Metadata: the brokers, and the topics with their leaders.

Version 0 cannot request no topics: an empty list requests all. From version 1 on null requests all, and the
response has the controller, racks and internal topics. Version 2 adds the cluster id, version 3
throttle_time_ms. Version 4: the client can prevent the automatic creation of topics. Version 5: offline
replicas; version 7: leader epochs; version 6 is the same as 5.
"""

from typing import Annotated

from minikafka.base.values import fast_value
from minikafka.wire.api import Api, ApiKey
from minikafka.wire.fields import STRING, ArrayOf, Int16, Int32, since


@fast_value
class MetadataRequest:
    """The topics to describe. ``topics`` None requests all, in every version."""

    topics: Annotated[
        tuple[str, ...] | None,
        since(1, earlier=ArrayOf(STRING, empty_is_null=True), earlier_note="empty: all"),
        "null: all",
    ]
    allow_auto_topic_creation: Annotated[bool, since(4)] = True


@fast_value
class MetadataBroker:
    """The address of one broker."""

    node_id: Int32
    host: str
    port: Int32
    rack: Annotated[str | None, since(1)] = None


@fast_value
class MetadataPartition:
    """A partition, with its leader and replicas."""

    error_code: Int16
    index: Int32
    leader_id: Annotated[Int32, "-1: none"]
    leader_epoch: Annotated[Int32, since(7, default=-1), "-1: unknown"]
    replica_nodes: Annotated[tuple[Int32, ...], "the first is preferred"]
    isr_nodes: Annotated[tuple[Int32, ...], "in-sync replicas"]
    offline_replicas: Annotated[tuple[Int32, ...], since(5)] = ()


@fast_value
class MetadataTopic:
    """A topic with all its partitions."""

    error_code: Int16
    name: str
    is_internal: Annotated[bool, since(1, default=False)]
    partitions: tuple[MetadataPartition, ...]


@fast_value
class MetadataResponse:
    """The cluster as one broker knows it."""

    throttle_time_ms: Annotated[Int32, since(3, default=0)]
    brokers: tuple[MetadataBroker, ...]
    cluster_id: Annotated[str | None, since(2)]
    controller_id: Annotated[Int32, since(1, default=-1), "-1: none"]
    topics: tuple[MetadataTopic, ...]


METADATA = Api(ApiKey.METADATA, "Metadata", 0, 7, MetadataRequest, MetadataResponse)
