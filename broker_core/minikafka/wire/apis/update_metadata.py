"""UpdateMetadata: the controller updates a broker's metadata cache.

Each request has all live brokers, and the partitions that changed. Version 1: a broker has several endpoints,
one per security protocol, where version 0 has one address. Version 2 adds racks, version 3 the names of
listeners (a protocol may then have several), version 4 replicas on failed disks, version 5 the broker's
epoch, with partitions by topic, version 7 topic ids, and version 8 whether a KRaft controller sends it, and
all partitions. Version 6 has no new fields.
"""

from dataclasses import field
from typing import Annotated

from minikafka.base.values import fast_value
from minikafka.wire.api import Api, ApiKey
from minikafka.wire.fields import ZERO_UUID, Int8, Int16, Int32, Int64, Uuid, since, tagged, until
from minikafka.wire.schema import MAX_CONTROLLER_ELEMENTS


@fast_value
class UpdateMetadataPartition:
    """A partition, as in its state znode. ``topic`` is empty where the partitions are by topic."""

    topic: Annotated[str, until(4, default="")]
    index: Int32
    controller_epoch: Annotated[Int32, "of the decision"]
    leader_id: Annotated[Int32, "-1: none, -2: being deleted"]
    """-1: none; -2: its topic is being deleted, remove the partition from the cache."""
    leader_epoch: Int32
    isr: Annotated[tuple[Int32, ...], "in-sync replicas"]
    zk_version: Annotated[Int32, "of the state znode"]
    replicas: Annotated[tuple[Int32, ...], "the first is preferred"]
    offline_replicas: Annotated[tuple[Int32, ...], since(4), "on failed disks"] = ()


@fast_value
class UpdateMetadataTopicState:
    """The partitions of one topic."""

    topic: str
    topic_id: Annotated[Uuid, since(7)] = field(default=ZERO_UUID, kw_only=True)
    partitions: tuple[UpdateMetadataPartition, ...]


@fast_value
class UpdateMetadataEndpoint:
    """An endpoint of a broker. ``listener`` is empty in versions without it; the listener then has the name
    of its security protocol: 0 PLAINTEXT, 1 SSL, 2 SASL_PLAINTEXT, 3 SASL_SSL.
    """

    port: Int32
    host: str
    listener: Annotated[str, since(3, default="")]
    security_protocol: Annotated[Int16, "0: plain text"]


@fast_value
class UpdateMetadataBroker:
    """A live broker. ``host`` and ``port``, of its plain-text endpoint, are in version 0 only, which has no
    ``endpoints``.
    """

    broker_id: Int32
    host: Annotated[str, until(0), "for plain text"] = ""
    port: Annotated[Int32, until(0)] = -1
    endpoints: Annotated[tuple[UpdateMetadataEndpoint, ...], since(1)] = ()
    rack: Annotated[str | None, since(2)] = None


@fast_value
class UpdateMetadataRequest:
    """The cluster's metadata, from the controller of an epoch: ``partitions``, or from version 5 on
    ``topics``.
    """

    controller_id: Int32
    is_kraft_controller: Annotated[bool, since(8)] = field(default=False, kw_only=True)
    controller_epoch: Int32
    broker_epoch: Annotated[Int64, since(5), "-1: unknown"] = field(default=-1, kw_only=True)
    partitions: Annotated[tuple[UpdateMetadataPartition, ...], until(4, default=())]
    topics: Annotated[tuple[UpdateMetadataTopicState, ...], since(5)] = field(default=(), kw_only=True)
    live_brokers: tuple[UpdateMetadataBroker, ...]
    type: Annotated[Int8, tagged(0, 8), "1: partitions that changed, 2: all"] = 0


@fast_value
class UpdateMetadataResponse:
    """The error of the whole request."""

    error_code: Int16


UPDATE_METADATA = Api(
    ApiKey.UPDATE_METADATA,
    "UpdateMetadata",
    0,
    8,
    UpdateMetadataRequest,
    UpdateMetadataResponse,
    max_elements=MAX_CONTROLLER_ELEMENTS,
)
