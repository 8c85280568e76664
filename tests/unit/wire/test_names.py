"""Our tables against kafka-python's, which are Kafka's own message definitions: same bytes, same names."""

from __future__ import annotations

import uuid
import warnings
from itertools import count
from typing import Any

import pytest

from minikafka.wire import consumer_protocol, schema
from minikafka.wire.api import Api, ApiKey
from minikafka.wire.api_table import APIS
from minikafka.wire.apis.delete_topics import DELETE_TOPICS
from minikafka.wire.fields import UUID, ZERO_UUID, ArrayOf, Type
from minikafka.wire.frame_parts import join
from minikafka.wire.schema import Struct
from tests.support.wire_values import filled

with warnings.catch_warnings():  # it reads its tables in a way that Python 3.11 calls deprecated
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.protocol import admin, consumer, metadata, producer, sasl

OTHER_NAMES = {
    "OffsetCommitRequest": {"generation_id": "generation_id_or_member_epoch"},
    "DeleteTopicsResponse": {"topics": "responses"},
    "MetadataTopic": {"topic_authorized_operations": "authorized_operations"},
    "MetadataResponse": {"cluster_authorized_operations": "authorized_operations"},
    "ProduceRequest": {"topics": "topic_data"},
    "ProduceTopic": {"partitions": "partition_data"},
    "ProduceResponse": {"topics": "responses"},
    "ProduceTopicResponse": {"partitions": "partition_responses"},
    "FetchRequest": {"forgotten_topics": "forgotten_topics_data"},
    "FetchTopic": {"name": "topic"},
    "FetchPartition": {"index": "partition"},
    "ForgottenTopic": {"name": "topic"},
    "FetchResponse": {"topics": "responses"},
    "FetchTopicResponse": {"name": "topic"},
    "FetchPartitionResponse": {"index": "partition_index"},
    "ListOffsetsPartition": {"index": "partition_index"},
    "ListOffsetsPartitionResponse": {"index": "partition_index", "offsets": "old_style_offsets"},
    "MetadataPartition": {"index": "partition_index"},
    "DeleteRecordsPartition": {"index": "partition_index"},
    "DeleteRecordsPartitionResult": {"index": "partition_index"},
    "EpochTopic": {"name": "topic"},
    "EpochPartition": {"index": "partition"},
    "EpochTopicResponse": {"name": "topic"},
    "EpochPartitionResponse": {"index": "partition"},
    "ReassignablePartition": {"index": "partition_index"},
    "ReassignablePartitionResponse": {"index": "partition_index"},
    "OngoingPartitionReassignment": {"index": "partition_index"},
    "DescribeProducersPartition": {"index": "partition_index"},
    "AddPartitionsToTxnRequest": {
        "transactional_id": "v3_and_below_transactional_id",
        "producer_id": "v3_and_below_producer_id",
        "producer_epoch": "v3_and_below_producer_epoch",
        "topics": "v3_and_below_topics",
    },
    "AddPartitionsToTxnResponse": {"results_by_topic": "results_by_topic_v3_and_below"},
    "DescribeClusterResponse": {"cluster_authorized_operations": "authorized_operations"},
}
"""The fields that kafka-python, which has the names of Kafka's newest release, calls otherwise."""

OPERATIONS = ("authorized_operations", "topic_authorized_operations", "cluster_authorized_operations")
"""Bit fields, which kafka-python shows as lists."""

BETWEEN_BROKERS = (
    ApiKey.LEADER_AND_ISR,
    ApiKey.STOP_REPLICA,
    ApiKey.UPDATE_METADATA,
    ApiKey.CONTROLLED_SHUTDOWN,
)
"""The APIs that kafka-python, a client, does not know: ``test_between_brokers``."""

OWN = (ApiKey.COPY_BATCHES,)
"""The APIs of minikafka, which kafka-python does not know either."""

EVERY_VERSION = [
    pytest.param(api, version, id=f"{api.name}-{version}")
    for api in APIS.values()
    if api.key not in (*BETWEEN_BROKERS, *OWN)
    for version in range(api.min_version, api.max_version + 1)
]


def by_name(type_: Type, version: int, value: Any) -> Any:
    """A value as kafka-python shows it: names and plain values, of the fields that ``version`` has."""
    if type_ is UUID:
        return str(uuid.UUID(bytes=value)) if value != ZERO_UUID else None
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(type_, ArrayOf):
        return None if value is None else [by_name(type_.element, version, element) for element in value]
    if not isinstance(type_, Struct):
        return value
    names = OTHER_NAMES.get(type_.name, {})
    return {
        names.get(name, name): bits_of(getattr(value, name))
        if name in OPERATIONS
        else by_name(row.type, version, getattr(value, name))
        for name, row in type_.rows(version)
        if row is not None
    }


def bits_of(value: int) -> list[int]:
    """The operations in a bit field, as kafka-python shows them."""
    return [bit for bit in range(31) if value >> bit & 1]


def theirs(api: Api[Any, Any], side: str) -> Any:
    """kafka-python's class for one side of an API."""
    name = api.name + side
    return next(
        getattr(place, name) for place in (admin, consumer, metadata, producer, sasl) if hasattr(place, name)
    )


@pytest.mark.parametrize("nulls", [False, True], ids=["values", "nulls"])
@pytest.mark.parametrize(("api", "version"), EVERY_VERSION)
def test_another_codec_decodes_the_same_names_and_values(
    api: Api[Any, Any], version: int, nulls: bool
) -> None:
    for side, message in (("Request", Struct(api.request)), ("Response", Struct(api.response))):
        # From 0, as kafka-python reads an ApiVersions response with an error as one of version 0.
        value = filled(message, version, count(0), nulls=nulls)
        flexible = api.is_flexible[version]
        encoded = join(schema.encode(message.cls, version, value, flexible))
        assert schema.decode(message.cls, version, encoded, flexible=flexible) == value
        found = theirs(api, side)[version].decode(encoded)
        assert found.to_dict() == by_name(message, version, value)
        if not (api is DELETE_TOPICS and side == "Request"):  # whose encode() wants a header first
            assert bytes(found.encode()) == encoded


@pytest.mark.parametrize("version", [0, 1])
def test_another_codec_reads_our_subscriptions_and_assignments(version: int) -> None:
    for message, encode, decode, name in (
        (
            Struct(consumer_protocol.Subscription),
            consumer_protocol.encode_subscription,
            consumer_protocol.decode_subscription,
            "ConsumerProtocolSubscription",
        ),
        (
            Struct(consumer_protocol.Assignment),
            consumer_protocol.encode_assignment,
            consumer_protocol.decode_assignment,
            "ConsumerProtocolAssignment",
        ),
    ):
        value = filled(message, version, count(1), nulls=False)
        encoded = encode(value, version)
        assert decode(encoded) == value
        found = getattr(consumer, name).decode(encoded)
        assert found.to_dict() == by_name(message, version, value)
