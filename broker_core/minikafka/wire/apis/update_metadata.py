"""UpdateMetadata: the controller updates a broker's metadata cache.

Each request has all live brokers, and the partitions that changed. Version 1: a broker has several endpoints,
one per security protocol, where version 0 has one address. Version 2 adds racks, version 3 the names of
listeners (a protocol may then have several), version 4 replicas on failed disks.
"""

from __future__ import annotations

from minikafka.base.values import fast_value
from minikafka.wire.api import Api, ApiKey
from minikafka.wire.schema import (
    INT16,
    INT32,
    MAX_CONTROLLER_ELEMENTS,
    NULLABLE_STRING,
    STRING,
    ArrayOf,
    Struct,
    array,
    field,
)


@fast_value
class UpdateMetadataPartition:
    """A partition, as in its state znode."""

    topic: str
    index: int
    controller_epoch: int
    leader_id: int
    """-1: none; -2: its topic is being deleted, remove the partition from the cache."""
    leader_epoch: int
    isr: tuple[int, ...]
    zk_version: int
    replicas: tuple[int, ...]
    offline_replicas: tuple[int, ...] = ()


@fast_value
class UpdateMetadataEndpoint:
    """An endpoint of a broker. ``listener`` is empty in versions without it; the listener then has the name
    of its security protocol: 0 PLAINTEXT, 1 SSL, 2 SASL_PLAINTEXT, 3 SASL_SSL.
    """

    port: int
    host: str
    listener: str
    security_protocol: int


@fast_value
class UpdateMetadataBroker:
    """A live broker. ``host`` and ``port``, of its plain-text endpoint, are in version 0 only, which has no
    ``endpoints``.
    """

    broker_id: int
    host: str = ""
    port: int = -1
    endpoints: tuple[UpdateMetadataEndpoint, ...] = ()
    rack: str | None = None


@fast_value
class UpdateMetadataRequest:
    """The cluster's metadata, from the controller of an epoch."""

    controller_id: int
    controller_epoch: int
    partitions: tuple[UpdateMetadataPartition, ...]
    live_brokers: tuple[UpdateMetadataBroker, ...]


@fast_value
class UpdateMetadataResponse:
    """The error of the whole request."""

    error_code: int


UPDATE_METADATA = Api(
    ApiKey.UPDATE_METADATA,
    "UpdateMetadata",
    0,
    4,
    request=Struct(
        UpdateMetadataRequest,
        field("controller_id", INT32),
        field("controller_epoch", INT32),
        array(
            "partitions",
            UpdateMetadataPartition,
            field("topic", STRING),
            field("index", INT32),
            field("controller_epoch", INT32, "of the decision"),
            field("leader_id", INT32, "-1: none, -2: being deleted"),
            field("leader_epoch", INT32),
            field("isr", ArrayOf(INT32), "in-sync replicas"),
            field("zk_version", INT32, "of the state znode"),
            field("replicas", ArrayOf(INT32), "the first is preferred"),
            field("offline_replicas", ArrayOf(INT32), "on failed disks", since=4, default=()),
        ),
        array(
            "live_brokers",
            UpdateMetadataBroker,
            field("broker_id", INT32),
            field("host", STRING, "for plain text", until=0, default=""),
            field("port", INT32, until=0, default=-1),
            array(
                "endpoints",
                UpdateMetadataEndpoint,
                field("port", INT32),
                field("host", STRING),
                field("listener", STRING, since=3, default=""),
                field("security_protocol", INT16, "0: plain text"),
                since=1,
                default=(),
            ),
            field("rack", NULLABLE_STRING, since=2),
        ),
    ),
    response=Struct(UpdateMetadataResponse, field("error_code", INT16)),
    max_elements=MAX_CONTROLLER_ELEMENTS,
)
