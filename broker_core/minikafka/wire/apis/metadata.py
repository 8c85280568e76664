"""Metadata: the brokers, and who leads which partition.

Version 0 has no way to ask for no topic: an empty list asks for all. From version 1 on null asks for all,
and the response names the controller, racks and internal topics. Version 2 adds the cluster's id.
"""

from __future__ import annotations

from dataclasses import dataclass

from minikafka.wire.api import Api
from minikafka.wire.keys import ApiKey
from minikafka.wire.schema import (
    BOOLEAN,
    INT16,
    INT32,
    NULLABLE_STRING,
    STRING,
    ArrayOf,
    Struct,
    field,
)


@dataclass(frozen=True, slots=True)
class MetadataRequest:
    """``topics`` None asks for all, in every version."""

    topics: tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class MetadataBroker:
    """Where one broker listens."""

    node_id: int
    host: str
    port: int
    rack: str | None = None


@dataclass(frozen=True, slots=True)
class MetadataPartition:
    """``leader_id`` -1: there is none."""

    error_code: int
    index: int
    leader_id: int
    replica_nodes: tuple[int, ...]
    isr_nodes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class MetadataTopic:
    """One topic with all its partitions."""

    error_code: int
    name: str
    is_internal: bool
    partitions: tuple[MetadataPartition, ...]


@dataclass(frozen=True, slots=True)
class MetadataResponse:
    """The cluster as one broker knows it."""

    brokers: tuple[MetadataBroker, ...]
    cluster_id: str | None
    controller_id: int
    topics: tuple[MetadataTopic, ...]


METADATA = Api(
    ApiKey.METADATA,
    "Metadata",
    0,
    2,
    request=Struct(
        MetadataRequest,
        field("topics", ArrayOf(STRING, empty_is_null=True), "empty: all", until=0),
        field("topics", ArrayOf(STRING, nullable=True), "null: all", since=1),
    ),
    response=Struct(
        MetadataResponse,
        field(
            "brokers",
            ArrayOf(
                Struct(
                    MetadataBroker,
                    field("node_id", INT32),
                    field("host", STRING),
                    field("port", INT32),
                    field("rack", NULLABLE_STRING, since=1),
                )
            ),
        ),
        field("cluster_id", NULLABLE_STRING, since=2),
        field("controller_id", INT32, "-1: none", since=1, default=-1),
        field(
            "topics",
            ArrayOf(
                Struct(
                    MetadataTopic,
                    field("error_code", INT16),
                    field("name", STRING),
                    field("is_internal", BOOLEAN, since=1, default=False),
                    field(
                        "partitions",
                        ArrayOf(
                            Struct(
                                MetadataPartition,
                                field("error_code", INT16),
                                field("index", INT32),
                                field("leader_id", INT32, "-1: none"),
                                field("replica_nodes", ArrayOf(INT32), "the first is preferred"),
                                field("isr_nodes", ArrayOf(INT32), "in-sync replicas"),
                            )
                        ),
                    ),
                )
            ),
        ),
    ),
)
