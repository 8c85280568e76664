"""Metadata: the brokers, and the topics with their leaders.

Version 0 cannot request no topics: an empty list requests all. From version 1 on null requests all, and the
response has the controller, racks and internal topics. Version 2 adds the cluster id, version 3
throttle_time_ms. Version 4: the client can prevent the automatic creation of topics. Version 5: offline
replicas; version 7: leader epochs; version 8: the operations that the client is authorized to do; version 10:
topic ids; version 11: no more operations on the cluster; version 12: topics may be requested by id. Versions
6 and 9 have no new fields.
"""

from collections.abc import Iterable
from dataclasses import field
from typing import Annotated

from minikafka.base.values import fast_value
from minikafka.wire.api import NO_OPERATIONS, Api, ApiKey
from minikafka.wire.fields import ZERO_UUID, ArrayOf, Int16, Int32, Uuid, since
from minikafka.wire.schema import Struct


@fast_value
class MetadataRequestTopic:
    """A topic to describe, by its name, or by its id without a name."""

    topic_id: Annotated[Uuid, since(10)] = field(default=ZERO_UUID, kw_only=True)
    name: Annotated[str | None, since(10, earlier=str), "null: by id"]


@fast_value
class MetadataRequest:
    """The topics to describe. ``topics`` None requests all, in every version."""

    topics: Annotated[
        tuple[MetadataRequestTopic, ...] | None,
        since(
            1, earlier=ArrayOf(Struct(MetadataRequestTopic), empty_is_null=True), earlier_note="empty: all"
        ),
        "null: all",
    ]
    allow_auto_topic_creation: Annotated[bool, since(4)] = True
    include_cluster_authorized_operations: Annotated[bool, since(8, until=10)] = False
    include_topic_authorized_operations: Annotated[bool, since(8)] = False

    @property
    def names(self) -> tuple[str, ...] | None:
        """The names of the topics; None: all."""
        if self.topics is None:
            return None
        return tuple(topic.name for topic in self.topics if topic.name is not None)

    @property
    def ids(self) -> tuple[bytes, ...]:
        """The ids of the topics, each once. If there are any, names do not count."""
        return tuple(dict.fromkeys(row.topic_id for row in self.topics or () if row.topic_id != ZERO_UUID))


def metadata_request(names: Iterable[str] | None, allow_auto_topic_creation: bool = True) -> MetadataRequest:
    """Return a request for topics by name; None: all."""
    topics = None if names is None else tuple(map(MetadataRequestTopic, names))
    return MetadataRequest(topics, allow_auto_topic_creation)


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
    name: Annotated[str | None, since(12, earlier=str), "null: an unknown id"]
    topic_id: Annotated[Uuid, since(10)] = field(default=ZERO_UUID, kw_only=True)
    is_internal: Annotated[bool, since(1, default=False)]
    partitions: tuple[MetadataPartition, ...]
    topic_authorized_operations: Annotated[Int32, since(8), "bits; -2^31: not requested"] = NO_OPERATIONS


@fast_value
class MetadataResponse:
    """The cluster as one broker knows it."""

    throttle_time_ms: Annotated[Int32, since(3, default=0)]
    brokers: tuple[MetadataBroker, ...]
    cluster_id: Annotated[str | None, since(2)]
    controller_id: Annotated[Int32, since(1, default=-1), "-1: none"]
    topics: tuple[MetadataTopic, ...]
    cluster_authorized_operations: Annotated[Int32, since(8, until=10), "bits; -2^31: not requested"] = (
        NO_OPERATIONS
    )


BY_ID_SINCE = 12
"""The first version with requests by topic id."""

METADATA = Api(ApiKey.METADATA, "Metadata", 0, 12, MetadataRequest, MetadataResponse)
