"""Messages of all APIs and versions, byte for byte as the classes of Apache Kafka 3.9.1 write them."""

from __future__ import annotations

import base64
import json
from itertools import count
from pathlib import Path
from typing import Any

from minikafka.base.ids import uuid_text
from minikafka.wire import schema
from minikafka.wire.api_table import APIS
from minikafka.wire.fields import UUID, ArrayOf, Type
from minikafka.wire.frame_parts import join
from minikafka.wire.framing import RequestHeader
from minikafka.wire.schema import Struct
from tests.interop.releases import KAFKA_3_9
from tests.support.wire_values import filled
from tests.unit.wire.test_names import OPERATIONS
from tests.unit.wire.test_names import OTHER_NAMES as SNAKE_NAMES

PROGRAM = Path(__file__).parent / "java" / "Messages.java"

OTHER_NAMES = {
    "LeaderAndIsrRequest.is_kraft_controller": "isKRaftController",
    "LeaderAndIsrRequest.partitions": "ungroupedPartitionStates",
    "LeaderAndIsrRequest.topics": "topicStates",
    "LeaderAndIsrTopicState.topic": "topicName",
    "LeaderAndIsrTopicState.partitions": "partitionStates",
    "LeaderAndIsrPartition.topic": "topicName",
    "LeaderAndIsrPartition.index": "partitionIndex",
    "LeaderAndIsrPartition.leader_id": "leader",
    "LeaderAndIsrPartition.zk_version": "partitionEpoch",
    "LiveLeader.host": "hostName",
    "LeaderAndIsrResponse.partitions": "partitionErrors",
    "LeaderAndIsrTopicError.partitions": "partitionErrors",
    "LeaderAndIsrPartitionError.topic": "topicName",
    "LeaderAndIsrPartitionError.index": "partitionIndex",
    "StopReplicaRequest.is_kraft_controller": "isKRaftController",
    "StopReplicaRequest.partitions": "ungroupedPartitions",
    "StopReplicaPartition.topic": "topicName",
    "StopReplicaPartition.index": "partitionIndex",
    "StopReplicaTopicState.topic": "topicName",
    "StopReplicaTopicState.partitions": "partitionStates",
    "StopReplicaPartitionState.index": "partitionIndex",
    "StopReplicaResponse.partitions": "partitionErrors",
    "StopReplicaPartitionError.topic": "topicName",
    "StopReplicaPartitionError.index": "partitionIndex",
    "UpdateMetadataRequest.is_kraft_controller": "isKRaftController",
    "UpdateMetadataRequest.partitions": "ungroupedPartitionStates",
    "UpdateMetadataRequest.topics": "topicStates",
    "UpdateMetadataTopicState.topic": "topicName",
    "UpdateMetadataTopicState.partitions": "partitionStates",
    "UpdateMetadataPartition.topic": "topicName",
    "UpdateMetadataPartition.index": "partitionIndex",
    "UpdateMetadataPartition.leader_id": "leader",
    "UpdateMetadataBroker.broker_id": "id",
    "UpdateMetadataBroker.host": "v0Host",
    "UpdateMetadataBroker.port": "v0Port",
    "RemainingPartition.topic": "topicName",
    "RemainingPartition.index": "partitionIndex",
}
"""Kafka's names of the fields whose names in camel case are others, beside those in ``SNAKE_NAMES``."""


def kafkas_name(message: str, name: str) -> str:
    snake = name if name in OPERATIONS else SNAKE_NAMES.get(message, {}).get(name, name)
    first, *more = snake.split("_")
    return OTHER_NAMES.get(f"{message}.{name}", first + "".join(map(str.capitalize, more)))


def in_json(type_: Type, version: int, value: Any) -> Any:
    """A value with Kafka's names, of the fields that ``version`` has."""
    if type_ is UUID:
        return uuid_text(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(type_, ArrayOf) and value is not None:
        return [in_json(type_.element, version, item) for item in value]
    if not isinstance(type_, Struct):
        return value
    return {
        kafkas_name(type_.name, name): in_json(row.type, version, getattr(value, name))
        for name, row in type_.rows(version)
        if row is not None
    }


def test_every_version_has_the_bytes_that_the_release_writes(tmp_path: Path) -> None:
    asked, ours = [], []
    for api in APIS.values():
        for version, flexible in api.is_flexible.items():
            for side, message in (("Request", Struct(api.request)), ("Response", Struct(api.response))):
                for nulls in (False, True):
                    value = filled(message, version, count(1), nulls=nulls)
                    shown = json.dumps(in_json(message, version, value))
                    asked.append(f"{api.name}{side} {version} {shown}")
                    header = RequestHeader(int(api.key), version, 7, "c").encode()
                    encoded = join(schema.encode(message.cls, version, value, flexible))
                    ours.append((header.hex() if side == "Request" else "") + encoded.hex())
                    assert schema.decode(message.cls, version, encoded, flexible=flexible) == value
    (tmp_path / "asked").write_text("\n".join(asked), "utf-8")
    theirs = KAFKA_3_9.run(str(PROGRAM), str(tmp_path / "asked")).out.split()
    assert [*zip(asked, ours, strict=True)] == [*zip(asked, theirs, strict=True)]


def test_every_api_has_a_schema_up_to_the_newest_version_of_the_release() -> None:
    lines = KAFKA_3_9.run(str(PROGRAM)).out.splitlines()
    newest = {int(key): int(version) for key, version in map(str.split, lines)}
    ours = {int(key): api.max_version for key, api in APIS.items()}
    assert ours == {key: newest[key] for key in ours}
